"""Bounds of what is computed on a device, at the bound: lengths of vectors, draws of h, the last
round.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.mechanisms import MECHANISMS
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Opening, Plan, Round
from hdpmf.errors import PrivacyError
from hdpmf.private.client import GradientClient
from hdpmf.private.client.devices import _strengths
from hdpmf.private.client.h_plausibility import FALSE_ALARM, HPlausibility, largest_plausible


def test_a_ridge_brings_just_into_the_unit_ball_what_is_too_long() -> None:
    values = np.array([[0.5, 2.0], [0.5, 2.0], [0.0, 1.0]])
    projected = np.array([[3.0, 4.0], [0.1, 0.2], [0.9, -30.0]])
    found = _strengths(values, projected, 0.01)
    lengths = np.linalg.norm(projected / (values + found), axis=1)
    np.testing.assert_allclose(lengths[[0, 2]], 1.0, rtol=1e-9)
    assert found[1] == pytest.approx(0.01)
    assert lengths[1] < 1.0


@pytest.mark.parametrize(("n_rows", "rounds"), [(1, 1), (50, 1), (50, 20)])
def test_a_row_of_h_may_be_so_small_and_no_smaller(n_rows: int, rounds: int) -> None:
    """One false alarm in 10^9 over all rows and rounds, once for each round and once for all so
    far.
    """
    log_error = math.log(FALSE_ALARM) - math.log(2 * n_rows * rounds)
    bound = largest_plausible(10, log_error)
    for part, refused in ((0.999, False), (1.001, True)):
        h = np.ones((n_rows, 10), np.float32)
        h[-1] = math.exp(-part * bound / 10)
        law = HPlausibility(10, rounds)
        if refused:
            with pytest.raises(PrivacyError, match="in this round"):
                law.check(h)
        else:
            law.check(h)
            assert law.seen == 1


def test_all_rounds_together_may_be_so_small_and_no_smaller() -> None:
    log_error = math.log(FALSE_ALARM) - math.log(2 * 5 * 20)
    bound = largest_plausible(2 * 10, log_error)
    for part, refused in ((0.999, False), (1.001, True)):
        h = np.ones((5, 10), np.float32)
        h[-1] = math.exp(-part * bound / 20)  # half in each of two rounds
        law = HPlausibility(10, 20)
        law.check(h)
        if refused:
            with pytest.raises(PrivacyError, match="over the rounds so far"):
                law.check(h)
        else:
            law.check(h)
            assert law.seen == 2


WORLD = synthetic_world(n_users=12, n_items=20, n_ratings=130, rng=0)


def _moved(mechanism: str, *, scale_steps: bool, closing: bool) -> np.ndarray:
    """How far user vectors move in the round after the first."""
    plan = Plan(
        n_items=20,
        n_factors=3,
        epochs=1 if closing else 2,
        learning_rate=1e-4,
        reg=0.01,
        mechanism=mechanism,
        epsilon=1.0,
        scale_low=1.0,
        scale_high=5.0,
        scale_steps=scale_steps,
        fresh_noise=True,
    )  # type: ignore[arg-type]
    made = MECHANISMS[mechanism]()
    shard = GradientClient(
        WORLD, PrivacyWeights.uniform(WORLD), made, SeededNoise(1, 2), 7, Workers(1)
    )
    shard.accept(plan)
    counts = shard.open(Opening(noise_budget=made.noise_budget(1.0, None))).counts
    V = np.random.default_rng(0).normal(0, 0.3, (20, 3)).astype(np.float32)
    h = np.ones((20, 3), np.float32) if mechanism == "weight" else None
    shard.receive(Round(number=1, item_factors=V, raters=counts, h=h))
    before = shard.vectors.copy()
    shard.receive(Round(number=2, item_factors=V, raters=counts, h=None if closing else h))
    return np.asarray(shard.vectors - before)


@pytest.mark.parametrize(
    ("mechanism", "closing"), [("weight", True), ("weight", False), ("none", True), ("paid", False)]
)
def test_a_round_is_a_small_step_by_the_number_of_ratings(mechanism: str, closing: bool) -> None:
    with_roots, without = (
        _moved(mechanism, scale_steps=scaled, closing=closing) for scaled in (True, False)
    )
    assert 0 < np.abs(without).max() < 0.05
    roots = np.sqrt(WORLD.user_counts())[:, None]
    np.testing.assert_allclose(without, with_roots * roots, rtol=0.02, atol=1e-6)


def test_where_vectors_are_not_sent_the_last_round_fits_them() -> None:
    assert np.abs(_moved("paid", scale_steps=True, closing=True)).max() > 0.2
