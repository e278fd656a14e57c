"""Lists against the definition, written out user by user."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale, synthetic_world
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, NotFittedError, RatingsError
from hdpmf.models import ranking_metrics
from hdpmf.models.ranking_metrics import PER_USER, best_of, rank, relevant_from, users_at_once

WORLD = synthetic_world(n_users=80, n_items=60, n_ratings=2000, rng=1)
TRAIN, TEST = WORLD.hold_out(6, rng=1)
WEIGHTS = PrivacySpec().draw(TRAIN, rng=0)


def by_definition(model, train, test, n):
    """All metrics from ``recommend``-like lists, one user at a time."""
    trained = dict(
        zip(model.catalogue_.items.ids.tolist(), model._candidates().tolist(), strict=True)
    )
    times, raters = Counter(), Counter(train.item_ids.tolist())
    in_training = set(train.item_ids.tolist())
    per_user = {name: [] for name in ("ndcg", "recall", "precision", "map", "mrr", "hit_rate")}
    for user in np.unique(test.user_ids):
        rated = set(train.item_ids[train.user_ids == user].tolist())
        mine = test.user_ids == user
        liked = set(test.item_ids[mine & (test.values >= 4)].tolist())
        if not rated or not liked:
            continue
        candidates = [item for item in sorted(in_training - rated) if trained[item]]
        code = model.devices_.users.find([user])[0]
        places = model.catalogue_.items.find(np.array(candidates))
        scores = model._order().scores(np.array([code]))[0][places]
        ordered = sorted(zip(-scores, candidates, strict=True))
        top = [item for _, item in ordered[:n]]
        times.update(top)
        found = [item in liked for item in top]
        gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(found))
        ideal = sum(1 / math.log2(place + 2) for place in range(min(n, len(liked))))
        per_user["ndcg"].append(gain / ideal)
        per_user["recall"].append(sum(found) / len(liked))
        per_user["precision"].append(sum(found) / n)
        precisions = [
            sum(found[: place + 1]) / (place + 1) for place, hit in enumerate(found) if hit
        ]
        per_user["map"].append(sum(precisions) / min(len(liked), n))
        per_user["mrr"].append(1 / (found.index(True) + 1) if any(found) else 0.0)
        per_user["hit_rate"].append(float(any(found)))
    able = [item for item in in_training if trained[item]]
    counts = sorted(times[item] for item in able)
    apart = sum(abs(left - right) for left in counts for right in counts)
    return (
        {name: np.mean(values) for name, values in per_user.items()}
        | {
            "coverage": len(times) / len(in_training),
            "popularity": sum(raters[item] * often for item, often in times.items())
            / sum(times.values()),
            "gini": apart / (2 * len(counts) * sum(counts)),
            "n_users": len(per_user["ndcg"]),
        }
        | {
            f"{name}_margin": 1.959964 * np.std(values, ddof=1) / math.sqrt(len(values))
            for name, values in per_user.items()
        }
    )


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if one.model.can_rank])
@pytest.mark.parametrize("n", [3, 10])
def test_ranking_is_what_the_definition_says(method, n, monkeypatch):
    monkeypatch.setattr(ranking_metrics, "_BLOCK_USERS", 7)
    monkeypatch.setattr(ranking_metrics, "_BLOCK_SCORES", 500)  # several blocks
    known = METHODS[method]
    params = {"epochs": 8, "learning_rate": 0.05, "rng": 0, **known.fixed}
    accepted = known.model.parameter_names()
    model = known.model(**{name: value for name, value in params.items() if name in accepted}).fit(
        TRAIN, WEIGHTS
    )
    measured = model.rank(TEST, n)
    expected = by_definition(model, TRAIN, TEST, n)
    assert {name: measured[name] for name in expected} == pytest.approx(expected)
    assert set(ranking_metrics.METRICS) < set(measured)
    assert 0 < measured["coverage"] <= 1


@pytest.mark.parametrize("n", [3, 10])
def test_a_model_that_knows_the_answers_ranks_them_first(n):
    model = METHODS["mf"].model(2, epochs=1, rng=0).fit(TRAIN)
    # Every user's vector picks out one item; here one that the user likes in the test set, where
    # there is one.
    model.devices_.vectors = np.eye(TRAIN.n_users, dtype=np.float32)
    liked = np.zeros((TRAIN.n_items, TRAIN.n_users), np.float32)
    liked[TEST.item_codes, TEST.user_codes] = TEST.values >= 4
    everywhere = np.ones(
        TRAIN.n_items, np.int64
    )  # as often as any other, so that only liking counts
    model.catalogue_ = type(model.catalogue_)(TRAIN.items, liked * 5, everywhere, TRAIN.scale, None)
    measured = model.rank(TEST, n)
    in_training = TRAIN.item_counts()[TEST.item_codes] > 0
    if in_training.all():
        assert measured["ndcg"] == pytest.approx(1.0)
    assert measured["recall"] > (0.95 if n == 10 else 0.5)


def test_users_and_items_that_nobody_knows_are_no_trouble():
    model = METHODS["mf"].model(3, epochs=3, rng=0).fit(TRAIN)
    base = model.rank(TEST)
    foreign = Ratings.from_arrays(
        np.concatenate((TEST.user_ids, [10**6, TEST.user_ids[0]])),
        np.concatenate((TEST.item_ids, [TEST.item_ids[0], 10**6])),
        np.concatenate((TEST.values, [5.0, 5.0])),
        scale=TEST.scale,
    )
    measured = model.rank(foreign)
    assert measured["n_users"] - base["n_users"] in (
        0,
        1,
    )  # only the known user can be new, by the unknown item
    assert measured["recall"] <= base["recall"]


def test_equal_scores_come_in_the_order_of_the_catalogue():
    table = np.array(
        [[1, 3, 3, 3, 0], [2, 2, 2, 2, 2], [0, 5, 1, 5, 9], [-np.inf, 1, -np.inf, -np.inf, -np.inf]]
    )
    top, listed = best_of(table.astype(np.float32), 2)
    assert top[:3].tolist() == [[1, 2], [0, 1], [4, 1]]
    assert top[3, 0] == 1
    assert listed.tolist() == [[True, True], [True, True], [True, True], [True, False]]
    top, listed = best_of(table, 9)
    assert top.shape == listed.shape == (4, 5)
    assert best_of(np.zeros((3, 0)), 4)[0].shape == (3, 0)


@pytest.mark.parametrize(
    ("scale", "expected"), [((1, 5), 4.0), ((0.5, 5), 3.875), ((1, 10), 7.75), ((0, 100), 75.0)]
)
def test_relevant_is_the_top_quarter_of_the_scale(scale, expected):
    assert relevant_from(RatingScale(*scale)) == expected


def test_what_cannot_be_ranked_says_so():
    for name in ("user-mean", "global-mean"):
        with pytest.raises(ConfigError, match="same for every item"):
            METHODS[name].model().fit(TRAIN).rank(TEST)
    model = METHODS["mf"].model(3, epochs=1, rng=0)
    with pytest.raises(NotFittedError):
        model.rank(TEST)
    model.fit(TRAIN)
    with pytest.raises(RatingsError, match="nothing to rank for"):
        model.rank(TEST.take(TEST.values < 4))
    with pytest.raises(ConfigError, match="at least 1"):
        model.rank(TEST, 0)


class _Devices:
    """Users of whom only what they rated is known."""

    def __init__(self, rated_start, rated):
        self.rated_start, self.rated, self.users = rated_start, rated, self

    def find(self, ids):
        return np.asarray(ids, int)


def test_lists_are_measured_as_ranx_measures_them():
    """Against what ranx 0.3.21 found for the same lists (ranx_fixture.py, which says how); it
    compiles for minutes.
    """
    stored = json.loads((Path(__file__).parent / "ranx_fixture.json").read_text())
    scores = np.array(stored["scores"])
    n_users, n_items = scores.shape
    rated = [np.array(items, int) for items in stored["rated"]]
    devices = _Devices(
        np.concatenate(([0], np.cumsum([len(items) for items in rated]))), np.concatenate(rated)
    )
    pairs = [(user, item) for user, items in enumerate(stored["relevant"]) for item in items]
    users, items = np.array(pairs).T
    test = Ratings.from_arrays(users, items, np.full(len(pairs), 5.0), scale=(1, 5))
    for n, measured in stored["ranx"].items():
        expected = {name: np.array(values) for name, values in measured.items()}
        found = rank(
            devices,
            np.ones(n_items, bool),
            lambda chosen: scores[chosen],
            test,
            test.items.ids.astype(int),
            int(n),
        )
        assert found.users.tolist() == list(range(n_users))
        # ranx divides an average precision by all that is relevant, we by what the list has room
        # for.
        n_liked = np.array([len(items) for items in stored["relevant"]])
        expected["map"] *= n_liked / np.minimum(n_liked, int(n))
        for name in PER_USER:
            assert found.values[name] == pytest.approx(expected[name], abs=1e-12), (n, name)


def test_memory_is_that_of_a_block_however_many_users_there_are():
    # A million users and 100,000 items: a block of scores in eight bytes each.
    assert users_at_once(100_000) * 100_000 * 8 <= 64 << 20
    assert users_at_once(100_000) >= 64
    assert users_at_once(10**8) == 1
    rng = np.random.default_rng(0)

    def peak(n_users, n_items=3000, n_factors=8):
        people, items = (
            rng.standard_normal((n_users, n_factors)),
            rng.standard_normal((n_factors, n_items)),
        )
        devices = _Devices(np.arange(n_users + 1), rng.integers(0, n_items, n_users))
        test = Ratings.from_arrays(
            np.arange(n_users), rng.integers(0, n_items, n_users), np.full(n_users, 5.0)
        )
        places, everything = test.items.ids.astype(int), np.ones(n_items, bool)
        tracemalloc.start()
        rank(devices, everything, lambda users: people[users] @ items, test, places, 10)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(700), peak(7000)
    block = 8 * users_at_once(3000) * 3000
    assert few < 3 * block
    assert many - few < 300 * 6300  # some numbers per user; the whole table would be 150 MB more
