"""The trivial private list: what most people rated, from one secure sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpmf import PrivacySpec, make_model, synthetic_world
from hdpmf.common.data import Ratings
from hdpmf.common.privacy.accounting import cost

TRAIN, TEST = synthetic_world(n_users=300, n_items=80, n_ratings=9_000, rng=3).hold_out(5, rng=0)


def _order(epsilon: float, train: Ratings = TRAIN, seed: int = 0) -> np.ndarray:
    model = make_model("private-popular", epsilon=epsilon, rng=seed).fit(train)
    return np.asarray(model.lists_.output)


def test_with_little_noise_it_is_most_popular() -> None:
    exact = make_model("most-popular", rng=0).fit(TRAIN)
    assert np.corrcoef(_order(50.0), exact.lists_.output)[0, 1] > 0.999
    private = make_model("private-popular", epsilon=50.0, rng=0).fit(TRAIN)
    assert private.rank(TEST)["ndcg"] == pytest.approx(exact.rank(TEST)["ndcg"], abs=0.02)


def test_noise_is_that_of_the_claim() -> None:
    """Counts of some hundred raters are taken as they were released, so that the noise can be seen:
    its deviation is sqrt(2) / epsilon. 40 seeds of 80 items: the estimate is off by less than 5 %
    (level 1e-3, seeds fixed)."""
    counts = TRAIN.item_counts()
    much = counts > 60
    apart = [np.exp(_order(0.5, seed=seed)[much]) - counts[much] for seed in range(40)]
    assert much.sum() > 30
    assert np.std(apart) == pytest.approx(np.sqrt(2.0) / 0.5, rel=0.1)


def test_values_are_in_nothing_that_is_sent() -> None:
    turned = replace(TRAIN, values=(6.0 - TRAIN.values).astype(np.float32))
    assert np.array_equal(_order(1.0), _order(1.0, turned))


def test_a_person_pays_for_presence() -> None:
    model = make_model("private-popular", epsilon=2.0, rng=0).fit(
        TRAIN, PrivacySpec().draw(TRAIN, rng=0)
    )
    assert (model.privacy.epsilon, model.privacy.status) == (2.0, "proved")
    assert cost(
        "private-popular", "sums", weight=0.5, epsilon=2.0, neighbours="presence"
    ).pure == pytest.approx(1.0)
    assert cost("private-popular", "sums", weight=0.5, epsilon=2.0).pure == 0.0
