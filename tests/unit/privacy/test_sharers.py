"""Who shares in a study, and what a rating of each level costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.accounting import Setting, cost, person_costs
from hdpmf.common.privacy.levels import LEVELS
from hdpmf.common.privacy.spec import Sharers, people_by_level
from hdpmf.errors import ConfigError, PrivacyError

WORLD = synthetic_world(n_users=200, n_items=40, n_ratings=4_000, rng=0)


@pytest.mark.parametrize(
    ("text", "who", "level"),
    [
        ("0.09", 0.09, "seen"),
        ("0.05:open", 0.05, "open"),
        ("1:seen", 1.0, "seen"),
        ("liberal", "liberal", "seen"),
        ("liberal:open", "liberal", "open"),
    ],
)
def test_who_shares_as_people_write_it(text, who, level):
    sharers = Sharers.parse(text)
    assert (sharers.who, sharers.level) == (who, level)
    assert Sharers.parse(str(sharers)) == sharers


@pytest.mark.parametrize(
    "text", ["", ":open", "1.5", "-0.1", "nan", "0.1:", "0.1:hidden", "0.1:all", "a:b:c"]
)
def test_what_nobody_can_mean(text):
    with pytest.raises(ConfigError, match=r"--share-levels takes a part .*as 0\.09, liberal"):
        Sharers.parse(text, "--share-levels")


def test_a_part_of_people_drawn_at_random():
    weights = PrivacySpec().draw(WORLD, rng=0)
    shared = Sharers(0.25, "open").drawn(weights, 7)
    assert shared.user_levels is not None
    assert np.bincount(shared.user_levels, minlength=3).tolist() == [150, 0, 50]
    assert np.array_equal(shared.beta, weights.beta)
    again = Sharers(0.25, "open").drawn(weights, 7).user_levels
    other = Sharers(0.25, "open").drawn(weights, 8).user_levels
    assert np.array_equal(shared.user_levels, again)
    assert not np.array_equal(shared.user_levels, other)
    # More sharers are those and others, so that a curve is of growing sets.
    more = Sharers(0.5, "open").drawn(weights, 7).user_levels
    assert (more[shared.user_levels == 2] == 2).all()
    assert not Sharers(0.0).drawn(weights, 7).has_levels
    with pytest.raises(ConfigError, match="everybody's level"):
        Sharers(0.1).drawn(shared, 7)


def test_a_group_of_the_specification():
    sharers = Sharers("liberal")
    weights = sharers.in_spec(PrivacySpec()).draw(WORLD, rng=0)
    assert np.array_equal(weights.user_levels == 1, weights.beta == 1)
    assert sharers.drawn(weights, 0) is weights
    assert Sharers(0.3).in_spec(PrivacySpec()) == PrivacySpec()
    with pytest.raises(ConfigError, match="no user group 'liberals'"):
        Sharers("liberals").in_spec(PrivacySpec())


def test_people_count_by_the_least_hidden_of_their_ratings():
    weights = PrivacyWeights.uniform(WORLD).with_levels(
        users={WORLD.users.ids[0].item(): "open", WORLD.users.ids[1].item(): "seen"},
        items={WORLD.items.ids[0].item(): "hidden"},
    )
    counted = people_by_level(WORLD, weights)
    assert [counted[level]["people"] for level in LEVELS] == [198, 1, 1]
    assert sum(row["ratings"] for row in counted.values()) == len(WORLD)
    levels = weights.levels_for(WORLD)
    assert counted["open"]["ratings"] == (levels == 2).sum()


VIEWS = ("sums", "two-servers", "final")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_what_a_rating_costs_by_level(view, weight):
    def epsilon(level, neighbours, **more):
        return cost(
            "hdp-share", view, level=level, neighbours=neighbours, weight=weight, epsilon=2.0
        ).pure

    for neighbours in ("value", "presence"):
        plain = cost("hdp-sum", view, neighbours=neighbours, weight=weight, epsilon=2.0).pure
        assert epsilon("hidden", neighbours) == plain
        assert math.isinf(epsilon("open", neighbours))
    bit = cost("hdp-bit", "messages", weight=weight, epsilon=2.0).pure
    assert epsilon("seen", "value") == bit
    assert math.isinf(epsilon("seen", "presence"))


@pytest.mark.parametrize("view", VIEWS)
def test_parts_of_a_person_add_up_and_what_is_published_is_left_out(view):
    levels = ["hidden", "hidden", "seen", "open"]
    weights = [0.75, 0.5, 0.75, 1.0]
    whole = cost("hdp-share", view, unit="user", weight=weights, level=levels)
    hidden = cost("hdp-sum", view, unit="user", weight=weights[:2])
    seen = cost("hdp-bit", "messages", unit="user", weight=weights[2:3])
    assert whole.pure == pytest.approx(hidden.pure + seen.pure)
    assert "publishes is not counted" in whole.reason
    limited = cost(
        "hdp-share", view, unit="user", weight=weights, level=levels, max_ratings=1
    )  # hidden ones up to a weight of 1, one seen
    assert limited.pure == pytest.approx(1.0 + 0.75)


def test_levels_are_of_methods_that_know_them():
    with pytest.raises(ConfigError, match="hdp-sum knows no levels"):
        cost("hdp-sum", "sums", level="seen")
    with pytest.raises(PrivacyError, match="hidden, seen or open"):
        cost("hdp-share", "sums", level="shown")
    with pytest.raises(ConfigError, match="2 ratings have as many levels, not 1"):
        cost("hdp-share", "sums", unit="user", weight=[1, 1], level=["seen"])


def test_people_in_a_table():
    weights = Sharers(0.5).drawn(PrivacySpec().draw(WORLD, rng=0), 0)
    setting = Setting("hdp-share", scale=WORLD.scale)
    found = person_costs(setting, "sums", WORLD, weights)
    plain = person_costs(Setting("hdp-sum", scale=WORLD.scale), "sums", WORLD, weights)
    assert found.heaviest.cost.pure == pytest.approx(plain.heaviest.cost.pure, rel=1e-6)
    published = person_costs(
        setting, "sums", WORLD, PrivacySpec().draw(WORLD, rng=0).with_levels(users="open",
        items={WORLD.items.ids[0].item(): "hidden"}),
    )  # fmt: skip
    assert 0 < published.heaviest.cost.pure <= 1.0  # all but one are published
