"""Levels of what is hidden: the more hidden one counts, and what is not said is hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import Group, PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.levels import LEVELS, level_codes
from hdpmf.errors import PrivacyError, RatingsError

TABLE = Ratings.from_arrays(["a", "a", "b", "c"], [1, 2, 1, 2], [5, 3, 1, 4])
names = st.sampled_from(LEVELS)


def named(weights: PrivacyWeights, ratings: Ratings = TABLE) -> list[str]:
    return [LEVELS[code] for code in weights.levels_for(ratings).tolist()]


def test_everything_is_hidden_where_nothing_is_said():
    weights = PrivacyWeights.uniform(TABLE)
    assert weights.levels_for(TABLE).dtype == np.int8
    assert set(named(weights)) == {"hidden"}
    assert set(named(weights.with_levels(items="open"))) == {"hidden"}


@given(st.lists(names, min_size=3, max_size=3), st.lists(names, min_size=2, max_size=2))
def test_the_more_hidden_of_user_and_item_counts(users: list[str], items: list[str]):
    weights = PrivacyWeights.uniform(TABLE).with_levels(users=users, items=items)
    expected = [
        min(users[user], items[item], key=LEVELS.index)
        for user, item in zip(TABLE.user_codes, TABLE.item_codes, strict=True)
    ]
    assert named(weights) == expected
    assert named(weights.take(np.array([3, 0])), TABLE.take(np.array([3, 0]))) == [
        expected[3],
        expected[0],
    ]


def test_levels_by_id():
    weights = PrivacyWeights.uniform(TABLE).with_levels(users={"a": "seen", "c": "open"})
    assert named(weights) == ["seen", "seen", "hidden", "open"]
    marked = weights.with_levels(items={2: "hidden"})
    assert named(marked) == ["seen", "hidden", "hidden", "hidden"]
    assert named(marked.with_levels(users="open")) == ["open", "hidden", "open", "hidden"]
    assert marked.for_ratings(TABLE).tolist() == [1.0] * 4  # weights are as they were


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ({"users": "secret"}, "hidden, seen or open"),
        ({"users": ["seen", "hidden"]}, "each of 3 users, got 2"),
        ({"users": {"z": "seen"}}, "1 are not in the ratings"),
        ({"users": [0, 1, 3]}, "row 3"),
        ({"users": [0, -1, 2]}, "row 2"),
        ({"items": ["open", "clear"]}, r"levels of items, row 2.*1 rows"),
        ({"items": [[0, 1]]}, "must be a list"),
        ({"items": [0.0, 1.0]}, "row 1"),
    ],
)
def test_what_is_no_level(levels: dict[str, Any], match: str):
    with pytest.raises(PrivacyError, match=match):
        PrivacyWeights.uniform(TABLE).with_levels(**levels)


def test_an_error_does_not_repeat_what_was_given():
    with pytest.raises(PrivacyError) as caught:
        level_codes(["seen", "likes-chess"], "levels")
    assert "chess" not in str(caught.value)


def test_repr_shows_no_level():
    assert "open" not in repr(PrivacyWeights.uniform(TABLE).with_levels(users="open"))


def test_levels_in_a_table_per_user_and_per_item(tmp_path: Any):
    users = pd.DataFrame(
        {"user": ["a", "c", "x"], "weight": [0.5] * 3, "Level": ["open", "Seen", "open"]}
    )
    file = tmp_path / "items.csv"
    file.write_text("item,weight,level\n1,1,hidden\n")
    weights = PrivacyWeights.from_frame(TABLE, users, missing=1.0)
    assert named(weights) == ["open", "open", "hidden", "seen"]
    both = PrivacyWeights.from_frame(TABLE, users, file, missing=1.0)
    assert named(both) == ["hidden", "open", "hidden", "seen"]
    assert both.for_ratings(TABLE).tolist() == [0.5, 0.5, 1.0, 0.5]


def test_levels_in_a_table_per_rating():
    table = pd.DataFrame(
        {
            "user": ["c", "a", "a", "z"],
            "item": [2, 2, 1, 1],
            "weight": [0.25, 0.5, 1.0, 1.0],
            "level": ["open", "hidden", "seen", "open"],
        }
    )
    weights = PrivacyWeights.from_frame(TABLE, table, missing=0.125)
    assert named(weights) == ["seen", "hidden", "hidden", "open"]
    assert weights.for_ratings(TABLE).tolist() == [1.0, 0.5, 0.125, 0.25]
    assert weights.user_levels is not None
    assert weights.user_levels.tolist() == [1, 0, 2]  # what a person shows at most
    assert named(weights.with_levels(users="seen")) == ["seen", "hidden", "hidden", "seen"]
    part = np.array([3, 1])
    assert named(weights.take(part), TABLE.take(part)) == ["open", "hidden"]
    with pytest.raises(PrivacyError, match="levels belong to a table of 4"):
        weights.levels_for(TABLE.take(part))


@pytest.mark.parametrize("bad", ["everything", "", None, 1.5])
def test_a_level_column_with_something_else_in_it(bad: Any):
    table = pd.DataFrame(
        {"user": ["a", "b", "c"], "weight": [1.0] * 3, "level": ["seen", bad, "open"]}
    )
    with pytest.raises(PrivacyError, match="column 'level', row 2"):
        PrivacyWeights.from_frame(TABLE, table)


def test_two_columns_of_levels():
    table = pd.DataFrame(
        {"user": ["a"], "weight": [1.0], "level": ["seen"], "privacy_level": ["open"]}
    )
    with pytest.raises(RatingsError, match="2 columns of levels"):
        PrivacyWeights.from_frame(TABLE, table)


def test_groups_have_levels_and_draw_the_same_weights():
    world = synthetic_world(n_users=1000, n_items=60, n_ratings=5_000, rng=0)
    plain = PrivacySpec()
    *others, liberal = plain.user_groups
    shares = Group(liberal.name, liberal.ratio, liberal.low, liberal.high, "seen")
    marked = Group("marked", 0.33, 0.1, 0.5, "hidden")
    spec = PrivacySpec((*others, shares), (marked, *plain.item_groups[1:]))
    weights, before = spec.draw(world, rng=3), plain.draw(world, rng=3)
    assert np.array_equal(weights.beta, before.beta)
    assert np.array_equal(weights.gamma, before.gamma)
    assert before.user_levels is None
    assert before.item_levels is None
    assert weights.user_levels is not None
    assert np.array_equal(weights.user_levels == 1, weights.beta == 1)
    assert weights.item_levels is not None
    assert np.array_equal(weights.item_levels == 0, weights.gamma < 0.5)
    with pytest.raises(PrivacyError, match="group 'x': a level is"):
        Group("x", 1.0, 1.0, 1.0, "public")  # type: ignore[arg-type]
