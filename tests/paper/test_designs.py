"""What the proved designs promise, on the real data: the mean of five seeds at epsilon 1 with the
default weights. Errors are over all test ratings, also of items that training never saw.

Standard deviations between seeds are 0.001 to 0.005, so that the mean of five is known to 0.0005 to
0.002 (docs/designs.md has the numbers). HDPBit takes longer, and its bounds are further away: on
ML-1M one seed has 0.0015, and the bounds are 2 and 8 of these above (10 and 14 s each); on Douban
two seeds have 0.0026, and the bound is 4 above (6 s each).
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from hdpmf import BiasedMF, HDPBit, HDPSum, PrivacySpec, load_dataset, load_split
from hdpmf.untrusted.recommender.bits import facts_from_bits

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def splits(data_folder):
    return {
        "ml-100k": load_split("ml-100k"),
        "ml-1m": load_dataset("ml-1m").hold_out(per_user=10, rng=1),
        "douban": load_dataset("douban").hold_out(per_user=10, rng=1),
    }


def mean_mse(split, kind, seeds=5, **params):
    train, test = split
    errors = []
    for seed in range(seeds):
        weights = PrivacySpec().draw(train, rng=seed)
        errors.append(kind(rng=seed, **params).fit(train, weights, lists=False).score(test)["mse"])
    return float(np.mean(errors))


@pytest.mark.parametrize(
    ("data", "kind", "params", "bound"),
    [
        ("ml-100k", HDPSum, {"features": False}, 0.950),
        ("ml-1m", HDPSum, {"features": False}, 0.870),
        ("douban", HDPSum, {"features": False}, 0.820),
        ("ml-100k", HDPSum, {}, 0.918),
        ("ml-1m", HDPSum, {}, 0.842),
        ("ml-100k", HDPBit, {}, 0.885),
        ("ml-1m", HDPBit, {}, 0.812),
        ("douban", HDPBit, {"features": False}, 0.810),
    ],
)
def test_accuracy_at_epsilon_1(splits, data, kind, params, bound):
    seeds = {"ml-1m": 1, "douban": 2}.get(data, 5) if kind is HDPBit else 5
    assert mean_mse(splits[data], kind, seeds=seeds, **params) <= bound


def test_the_strongest_yardstick_is_as_strong_as_the_readme_says(splits):
    """Over all test ratings, at what cross-validation chose (docs/results)."""
    for data, params, bound in (
        ("ml-100k", {"learning_rate": 0.01, "reg": 0.1}, 0.868),
        ("douban", {"learning_rate": 0.01, "reg": 0.2}, 0.735),
    ):
        train, test = splits[data]
        model = BiasedMF(50, epochs=40, rng=0, **params).fit(train)
        assert model.score(test)["mse"] <= bound, data


@pytest.mark.parametrize(("data", "chosen"), [("ml-1m", True), ("yelp-sample", False)])
def test_bits_choose_whether_who_rated_what_is_used(splits, data, chosen):
    """By the training part alone: of ML-1M most of it is used, of the Yelp sample little."""
    parts = splits.get(data) or load_dataset(data).hold_out(per_user=10, rng=1)
    release = HDPBit(rng=0).release(parts[0], PrivacySpec().draw(parts[0], rng=0))
    whole, counted = (
        facts_from_bits(release.survey, release.bits, release.features, number)
        for number in (8, None)
    )
    count = 0.0
    if counted.similarity is not None:
        count = float(np.median(counted.similarity.rest / whole.similarity.rest))
    assert count > 0.5 if chosen else count < 0.3


def test_more_budget_is_more_accuracy(splits):
    errors = [
        mean_mse(splits["ml-100k"], HDPSum, seeds=3, epsilon=epsilon)
        for epsilon in (0.25, 1.0, 4.0, 16.0)
    ]
    assert errors == sorted(errors, reverse=True)


def test_a_whole_private_run_on_ml_1m_takes_seconds(splits):
    """Processor time of all threads: more than the time that passes on two idle cores, and the
    same on busy ones.
    """
    train, test = splits["ml-1m"]
    weights = PrivacySpec().draw(train, rng=0)
    HDPSum(rng=0).fit(train, weights)  # compiled once
    begin = time.process_time()
    HDPSum(rng=0).fit(train, weights).score(test)
    assert time.process_time() - begin < 3
