"""Recent ratings count more in lists: how much, of which models, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.errors import RatingsError
from hdpmf.models import EASE, BiasedMF, HDPBit, HDPSum, MostPopular, load_model
from hdpmf.private.client.ranking import ChooseAndLike, heights, inputs
from hdpmf.private.client.recency import (
    AFTER_PAUSE,
    LEAST,
    PAUSE,
    UNKNOWN,
    freshness,
    lasting_taste,
    steady,
)

WORLD = synthetic_world(n_users=40, n_items=30, n_ratings=500, rng=3)
TRAIN, TEST = WORLD.split_by_time(0.3, per_user=True)
NOW = float(WORLD.timestamps.max()) + 5.0  # type: ignore[union-attr]
UNTIMED = replace(WORLD, timestamps=None)
SUMS = HDPSum(rng=0).fit(TRAIN)
BITS = HDPBit(rng=0).fit(TRAIN)
LINEAR = EASE().fit(TRAIN)

times = st.lists(st.one_of(st.integers(0, 10**9), st.just(UNKNOWN)), min_size=1, max_size=12)


@given(times, st.integers(0, 2 * 10**9))
def test_the_freshest_counts_most_and_nothing_counts_less_than_a_twentieth(
    when: list[int], now: int
) -> None:
    array = np.array(when)
    found = freshness(np.array([0, len(when)]), array, np.array([float(now)]))
    known = array != UNKNOWN
    assert found.min() >= np.float32(LEAST)
    assert found.max() == 1.0
    if not known.any():
        assert (found == 1).all()
        return
    assert found[known].max() == 1.0
    assert (found[~known] == np.float32(LEAST)).all()
    by_age = np.argsort(-array[known], kind="stable")
    assert (np.diff(found[known][by_age]) <= 0).all()
    assert (found[array > now] == 1.0).all()  # a clock may be wrong: as if made now


def test_freshness_falls_within_a_session_and_not_after_a_month() -> None:
    start, made = np.array([0, 3]), np.array([0, 3000, 3600])
    soon = freshness(start, made, np.array([3605.0]))
    assert soon == pytest.approx([LEAST, (1.5 / 61.5) ** 0.75, 1.0], abs=1e-6)
    later = freshness(start, made, np.array([3600.0 + 30 * 86400]))
    assert later == pytest.approx([1, 1, 1], abs=0.002)
    # Each user has an own clock; who has none is left alone.
    two = freshness(np.array([0, 3, 6]), np.tile(made, 2), np.array([3605.0, np.nan]))
    assert two.tolist() == [*soon.tolist(), 1.0, 1.0, 1.0]


def test_taste_counts_half_after_a_pause() -> None:
    start, made = np.array([0, 2, 3, 3]), np.array([5, 100, UNKNOWN])
    for now, wanted in ((99.0, 1.0), (100.0 + PAUSE - 1, 1.0), (100.0 + PAUSE, AFTER_PAUSE)):
        found = lasting_taste(start, made, np.full(3, now))
        assert found.tolist() == [wanted, 1.0, 1.0]
    assert lasting_taste(start, made, np.full(3, np.nan)).tolist() == [1.0, 1.0, 1.0]


def test_a_device_goes_by_the_hour_or_by_the_last_rating() -> None:
    start, made = np.array([0, 2, 3, 3]), np.array([5, 7300, UNKNOWN])
    for clock, wanted in ((7300.0, 7300), (10_799.9, 7300), (10_800.0, 10_800), (14_399.0, 10_800)):
        hour = clock // 3600 * 3600
        assert steady(start, made, clock).tolist() == [wanted, hour, hour]
    last = float(TRAIN.timestamps.max())  # type: ignore[union-attr]
    soon, later = (SUMS.devices_.at_full_hour(last + 3600 * hours) for hours in (1, 9000))
    at = steady(SUMS.devices_.rated_start, SUMS.devices_.times, last + 3600)  # type: ignore[arg-type]
    assert np.array_equal(soon.fresh, SUMS.devices_.at_time(at).fresh)  # type: ignore[arg-type]
    assert not np.array_equal(soon.fresh, later.fresh)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [SUMS, BITS], ids=["hdp-sum", "hdp-bit"])
def test_lists_without_a_time_are_those_of_ratings_without_times(model: HDPSum | HDPBit) -> None:
    plain = type(model)(rng=0).fit(replace(TRAIN, timestamps=None))
    users = np.arange(5)
    assert np.array_equal(model._order().scores(users), plain._order().scores(users))
    assert model.rank(TEST)["ndcg"] == plain.rank(TEST)["ndcg"]
    with pytest.raises(RatingsError, match="no times, so nothing is recent"):
        plain.recommend(plain.devices_.users.ids[0].item(), now=NOW)
    with pytest.raises(RatingsError, match="no times, so nothing is recent"):
        plain.rank(TEST, in_time=True)


def test_a_rating_just_made_moves_the_list_and_old_ones_do_not() -> None:
    user = TRAIN.users.ids[0].item()
    before = LINEAR.recommend(user, 10)
    late = LINEAR.recommend(user, 10, now=NOW + 1e10)
    assert [one.rank_score for one in late] == pytest.approx(
        [one.rank_score for one in before], rel=1e-3
    )
    own = TRAIN.timestamps[TRAIN.user_codes == 0].max()  # type: ignore[index]
    after = LINEAR.recommend(user, 10, now=float(own))
    assert [one.rank_score for one in after] != [one.rank_score for one in before]
    devices = LINEAR.devices_.at_time(float(own))
    weighed, plain = inputs(devices, np.array([0])), heights(LINEAR.devices_, np.array([0]))
    assert np.array_equal(weighed.indices, plain.indices)
    assert weighed.data == pytest.approx(plain.data * devices.fresh[: plain.nnz])  # type: ignore[index]
    wanted = LINEAR.lists_.scores(plain.indices.astype(np.int64), weighed.data)
    best = np.argsort(-np.where(np.isin(np.arange(30), plain.indices), -np.inf, wanted))
    assert after[0].item == TRAIN.items.ids[best[0]]
    assert LINEAR.devices_.fresh is None  # nothing of it stays


def test_parts_add_up_in_time_and_stars_stay_stars() -> None:
    at = float(TRAIN.timestamps.max()) + PAUSE  # type: ignore[union-attr]
    users, items = np.arange(6), np.arange(30)
    choose = SUMS._at_time(at)._order()
    assert isinstance(choose, ChooseAndLike)
    orders = (choose, BITS._at_time(at)._order())
    for order in orders:
        scores = order.scores(users)
        for row, parts in zip(scores, order.parts(users, [items] * 6), strict=True):
            assert parts.scores == pytest.approx(row, abs=1e-3)
    taste = choose.scores(users) - SUMS._order().scores(users)
    assert np.abs(taste).max() > 0


def test_lists_in_time_are_for_splits_by_time() -> None:
    found = BITS.rank(TEST, in_time=True)
    assert found["n_users"] == BITS.rank(TEST)["n_users"]
    assert found["ndcg"] != BITS.rank(TEST)["ndcg"]
    # The same by hand: everybody's list at the time of their first test rating.
    firsts = {
        code: float(TEST.timestamps[TEST.user_codes == code].min())  # type: ignore[index]
        for code in np.unique(TEST.user_codes).tolist()
    }
    hits = []
    for code, first in firsts.items():
        own = TEST.user_codes == code
        liked = set(TEST.item_ids[own & (TEST.values >= 4)].tolist())
        if liked:
            user = TEST.users.ids[code].item()
            listed = [one.item for one in BITS.recommend(user, 10, now=first)]
            hits.append(len(liked & set(listed)) / len(liked))
    assert found["recall"] == pytest.approx(np.mean(hits), abs=0.02)  # unrated items may be listed
    train, test = WORLD.hold_out(5, rng=0)
    with pytest.raises(RatingsError, match="need a split by time"):
        HDPSum(rng=0).fit(train).rank(test, in_time=True)
    with pytest.raises(RatingsError, match=r"no times.*timestamp"):
        BITS.rank(replace(TEST, timestamps=None), in_time=True)


def test_yardsticks_are_measured_in_time_too() -> None:
    assert (
        EASE().fit(TRAIN).rank(TEST, in_time=True)["ndcg"] != EASE().fit(TRAIN).rank(TEST)["ndcg"]
    )
    popular = MostPopular().fit(TRAIN)
    assert popular.rank(TEST, in_time=True) == popular.rank(TEST)


def test_times_stay_with_users_who_are_saved_folded_in_or_taken_apart(tmp_path: Path) -> None:
    SUMS.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.devices_.times is not None
    assert again.devices_.times.tolist() == SUMS.devices_.times.tolist()  # type: ignore[union-attr]
    user = TRAIN.users.ids[3].item()
    assert again.recommend(user, now=NOW) == SUMS.recommend(user, now=NOW)
    part = again.only_users([user])
    own = TRAIN.timestamps[TRAIN.user_codes == 3]  # type: ignore[index]
    assert sorted(part.devices_.times.tolist()) == sorted(own.tolist())  # type: ignore[union-attr]
    # Newcomers without times have none, and others keep theirs.
    new = Ratings.from_arrays([10**6] * 3, TRAIN.items.ids[:3], [5, 4, 1])
    part.fold_in(new)
    assert part.devices_.times.tolist()[-3:] == [UNKNOWN] * 3  # type: ignore[union-attr]
    assert sorted(part.devices_.times.tolist()[:-3]) == sorted(own.tolist())  # type: ignore[union-attr]
    assert part.recommend(10**6, now=NOW) == part.recommend(10**6)
    plain = HDPSum(rng=0).fit(UNTIMED)
    assert plain.devices_.times is None
    plain.fold_in(new)
    assert plain.devices_.times is None
    plain.save(tmp_path / "plain")
    assert load_model(tmp_path / "plain").devices_.times is None


def test_times_are_in_the_order_of_what_was_rated() -> None:
    made = {
        (user, item): at
        for user, item, at in zip(TRAIN.user_codes, TRAIN.item_codes, TRAIN.timestamps, strict=True)  # type: ignore[arg-type]
    }
    for model in (SUMS, EASE().fit(TRAIN)):
        devices = model.devices_
        users = np.repeat(np.arange(TRAIN.n_users), np.diff(devices.rated_start))
        wanted = [made[pair] for pair in zip(users, devices.rated, strict=True)]
        assert devices.times.tolist() == wanted  # type: ignore[union-attr]


def test_biased_mf_knows_items_of_strangers() -> None:
    model = BiasedMF(rng=0).fit(TRAIN)
    items = TRAIN.items.ids[:4]
    wanted = np.clip(model.mean_ + model.item_bias_[:4], 1, 5)
    assert model.predict([10**6] * 4, items) == pytest.approx(wanted, abs=1e-5)
    assert model.predict([10**6], [10**6]) == pytest.approx([model.mean_], abs=1e-5)


def test_nothing_that_is_sent_depends_on_times() -> None:
    """When people rated stays on their devices: the same is released whatever the times are."""
    for times in (None, TRAIN.timestamps[::-1], np.zeros_like(TRAIN.timestamps)):  # type: ignore[index]
        other = replace(TRAIN, timestamps=times)
        bits = HDPBit(rng=0).fit(other)
        assert bits.release_ is not None
        assert BITS.release_ is not None
        assert bits.release_.digest == BITS.release_.digest
        facts = HDPSum(rng=0).fit(other).facts_
        assert np.array_equal(facts.bias, SUMS.facts_.bias)
        assert np.array_equal(facts.popularity, SUMS.facts_.popularity)
