"""Each rating leaves once, by its level's channel, and nothing visible depends on hidden ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.coding import weight_units
from hdpmf.common.privacy.levels import HIDDEN, LEVELS
from hdpmf.common.privacy.mechanisms import bound_contributions, bound_weights
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.common.protocol import BitContribution, OpenContribution, Survey
from hdpmf.common.protocol.oneround import bits_survey
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.sharing import (
    ShareClient,
    bound_by_level,
    bound_in_sums,
    split_by_level,
)

from .surveys import WEIGHTS, WORLD, survey_for

PEOPLE = [LEVELS[code % 3] for code in range(60)]
MARKED = ["hidden" if code % 5 == 0 else "open" for code in range(WORLD.n_items)]
SHARING = WEIGHTS.with_levels(users=PEOPLE, items=MARKED)


def survey(**changes: Any) -> Survey:
    return survey_for(design="A", sharing=True, **changes)


def client(
    ratings: Ratings = WORLD, weights: PrivacyWeights = SHARING, **changes: Any
) -> ShareClient:
    options: dict[str, Any] = {"epsilon": 1.0, "catalogue": "c", "simulation": True}
    made = ShareClient(ratings, weights, SeededNoise(1), **options | changes)
    made.accept(survey())
    return made


def plain(ratings: Ratings, weights: PrivacyWeights) -> OneRoundClient:
    made = OneRoundClient(
        ratings,
        weights,
        SeededNoise(1),
        epsilon=1.0,
        catalogue="c",
        n_users=60,
        simulation=True,
    )
    made.accept(survey_for(design="A"))
    return made


def same(first: Any, second: Any) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in first.__struct_fields__
    )


def rows(message: BitContribution | OpenContribution) -> set[tuple[int, int]]:
    return set(zip(message.senders.tolist(), message.items.tolist(), strict=True))


def rated(ratings: Ratings) -> set[tuple[int, int]]:
    return set(zip(ratings.user_codes.tolist(), ratings.item_codes.tolist(), strict=True))


def test_with_nobody_sharing_it_is_hdp_sum_number_by_number():
    ours = client(weights=WEIGHTS)
    assert same(ours.contribute(), plain(WORLD, WEIGHTS).contribute())
    bits, published = ours.shared()
    assert len(bits.items) == len(published.items) == 0


def test_users_without_ratings_count_too():
    assert "OneRoundClient(60 users" in repr(client())
    with pytest.raises(ProtocolError, match="fewer than this client alone has"):
        client(n_users=survey().contributors + 1)


def test_each_rating_leaves_by_one_channel():
    split = split_by_level(WORLD, SHARING)
    assert sum(len(part.ratings) for part in split) == len(WORLD)
    ours = client()
    assert same(ours.contribute(), plain(*split.hidden).contribute())
    bits, published = ours.shared()
    speak = weight_units(split.seen.weights.for_ratings(split.seen.ratings)) > 0
    assert rows(bits) == rated(split.seen.ratings.take(speak))
    assert rows(published) == rated(split.open.ratings)
    values = WORLD.scale.low + published.steps * (WORLD.scale.step or 0)
    assert np.array_equal(values, split.open.ratings.values)
    assert {PEOPLE[sender] for sender in bits.senders.tolist()} == {"seen"}
    assert {PEOPLE[sender] for sender in published.senders.tolist()} == {"open"}
    shown = {MARKED[item] for item in [*bits.items.tolist(), *published.items.tolist()]}
    assert shown == {"open"}


def test_hidden_ratings_for_two_servers_are_of_everybody():
    reports = list(client().entries(60))
    assert len(reports) == 60
    hidden = split_by_level(WORLD, SHARING).hidden.ratings
    for user, (weights, _) in enumerate(reports):
        mine = hidden.item_codes[hidden.user_codes == user]
        assert set(np.flatnonzero(weights)) <= set(mine.tolist())
    assert any(weights.any() for weights, _ in reports)


def test_nothing_visible_depends_on_a_hidden_value_or_on_whether_it_is_there():
    hidden = np.flatnonzero(SHARING.levels_for(WORLD) == HIDDEN)
    before = client()
    before.contribute()
    visible = before.shared()
    for row in hidden[:: max(len(hidden) // 20, 1)]:
        values = WORLD.values.copy()
        values[row] = WORLD.scale.low + WORLD.scale.high - values[row]
        others = replace(WORLD, values=values), WORLD.take(np.arange(len(WORLD)) != row)
        for other in others:
            ours = client(other)
            ours.contribute()
            assert all(map(same, visible, ours.shared()))


def pairs(ratings: Ratings) -> np.ndarray:
    return ratings.user_codes.astype(np.int64) * ratings.n_items + ratings.item_codes


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_limits_choose_what_is_visible_as_if_nothing_were_hidden(seed: int, most: int):
    levels = SHARING.levels_for(WORLD)
    draws = np.random.default_rng(seed).random(len(WORLD))
    part = bound_by_level(WORLD, SHARING, most, draws)
    kept = np.flatnonzero(np.isin(pairs(WORLD), pairs(part.ratings)))
    shown = np.flatnonzero(levels > HIDDEN)
    alone = shown[bound_contributions(WORLD.user_codes[shown], most, draws[shown])]
    assert np.array_equal(kept[levels[kept] > HIDDEN], alone)
    assert np.bincount(WORLD.user_codes[alone]).max() <= most
    units = weight_units(part.weights.for_ratings(part.ratings))
    inside = levels[kept] == HIDDEN
    assert np.bincount(part.ratings.user_codes[inside], units[inside]).max() <= 64 * most
    np.testing.assert_array_equal(
        part.weights.for_ratings(part.ratings)[~inside], SHARING.for_ratings(WORLD)[alone]
    )
    for hidden in (
        bound_by_level(WORLD, WEIGHTS, most, draws),
        bound_in_sums(WORLD, SHARING, most, draws),
    ):
        own = weight_units(WEIGHTS.for_ratings(WORLD))
        entered = bound_weights(WORLD.user_codes, most, draws, own)
        rows = np.flatnonzero((entered > 0) | (own == 0))
        assert np.array_equal(pairs(hidden.ratings), pairs(WORLD)[rows])
        sent = weight_units(hidden.weights.for_ratings(hidden.ratings))
        assert np.array_equal(sent, entered[rows])


def test_each_answer_is_given_once():
    ours = client()
    ours.contribute()
    with pytest.raises(ProtocolError, match="given once"):
        ours.contribute()
    with pytest.raises(ProtocolError, match="given once"):
        ours.entries()
    assert ours.shared_spent is None
    ours.shared()
    assert ours.spent is not None
    assert ours.shared_spent is not None
    with pytest.raises(ProtocolError, match="given once"):
        ours.shared()
    with pytest.raises(ProtocolError, match="spent"):
        ours.accept(survey())


def test_surveys_that_are_refused():
    bare = ShareClient(WORLD, SHARING, ReleasedNoise(), epsilon=1.0, catalogue="c")
    with pytest.raises(ProtocolError, match="hdp-sum"):
        bare.accept(survey_for(design="A"))
    for wrong in ({"epsilon": 2.0}, {"catalogue": "another"}, {"contributors": 3}):
        with pytest.raises(ProtocolError, match="refused"):
            bare.accept(survey(**wrong))
    with pytest.raises(ProtocolError, match="accept one first"):
        bare.shared()
    with pytest.raises(PrivacyError):
        ShareClient(WORLD, SHARING, SeededNoise(0), epsilon=1.0, catalogue="c")


def test_bits_are_about_a_threshold_whatever_the_sums_are_coded_by():
    asked = bits_survey(survey(coding="linear"))
    assert (asked.design, asked.coding, asked.sharing) == ("L", "threshold", False)


def test_repr_shows_no_rating_and_no_level():
    assert repr(client()) == "ShareClient(OneRoundClient(60 users, nothing spent))"
