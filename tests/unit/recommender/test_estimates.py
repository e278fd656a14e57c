"""From released sums to estimates: shrunk towards what is known before, with the noise that
really is in them.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS
from hdpmf.common.privacy.mechanisms import H_FLOOR, Stretch
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import BitContribution, ItemCounts, Plan, SumContribution, Survey
from hdpmf.private.client.ranking import certainly_above
from hdpmf.untrusted.recommender import Recommender
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.recommender.deconvolution import SURE, deconvolve, deconvolve_gaussian, margin
from hdpmf.untrusted.recommender.sums import MOST_SPREAD, SPREAD, facts_from_sums, regress

N = 4000


def survey_for(design, epsilon=1.0, n_items=N):
    return Survey(
        design=design,
        coding="threshold" if design == "L" else "soft",
        epsilon=epsilon,
        n_items=n_items,
        catalogue="c",
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
    )


def true_weights(rng):
    """Mostly unrated items, as in real catalogues."""
    return np.where(rng.random(N) < 0.7, 0.0, rng.lognormal(2.0, 1.0, N))


def calibration(found, truth, unclear):
    """Mean squared error of the unclear items over the variance that was stated for them: 1
    where it is right.
    """
    error = (found.mean - truth)[unclear]
    return float((error**2).mean() / (found.deviation[unclear] ** 2).mean())


def test_deconvolution_states_how_far_off_it_is():
    """Assuming half the noise, it takes noise for weight and states too little variance."""
    rng = np.random.default_rng(5)
    truth, scale = true_weights(rng), 4.0
    released = truth + rng.laplace(0, scale, N)
    unclear = released < 10 * scale
    right = calibration(deconvolve(released, scale), truth, unclear)
    wrong = calibration(deconvolve(released, scale / 2), truth, unclear)
    assert 0.85 < right < 1.15
    assert wrong > 1.6


@pytest.mark.parametrize("epsilon", [1.0, 0.25])
def test_facts_are_made_with_the_noise_that_was_released(epsilon):
    """Popularity by facts is popularity by a deconvolution with the law's own scale, to the last
    bit.
    """
    rng = np.random.default_rng(6)
    scale = WEIGHT_SCALE / epsilon
    weights = np.rint(WEIGHT_UNITS * (true_weights(rng) + rng.laplace(0, scale, N))).astype(
        np.int64
    )
    answer = SumContribution(scores=np.zeros(N, np.int64), weights=weights, total=0)
    facts = facts_from_sums(survey_for("A", epsilon), answer, None)
    expected = deconvolve(weights / WEIGHT_UNITS, scale).size_biased
    np.testing.assert_array_equal(facts.popularity, expected.astype(np.float32))


def test_a_few_odd_items_do_not_decide_how_far_biases_spread():
    """Three clear items with biases of 1.2 stars count like 3 against the prior's 30, so that
    0.2 becomes about 0.3.
    """
    n = 500
    slopes = np.where(np.arange(n) < 3, 50.0, 1e-6)
    biases = np.where(np.arange(n) < 3, np.array([1.2, -1.2, 1.2])[np.arange(n) % 3], 0.0)
    _, spread = regress(slopes * biases, slopes, np.ones(n), None)
    assert SPREAD < spread < 0.35
    _, nothing = regress(np.zeros(n), np.full(n, 1e-6), np.ones(n), None)
    assert nothing == pytest.approx(SPREAD)  # no item is clear: what was known before stays
    _, many = regress(50 * np.tile([1.2, -1.2], n // 2), np.full(n, 50.0), np.ones(n), None)
    assert many == MOST_SPREAD  # many items do decide


@pytest.mark.slow
@pytest.mark.parametrize("design", ["A", "L"])
def test_an_item_of_few_ratings_is_held_near_the_others(design):
    """400 items, nearly no noise: rated 200 times it is far from the mean, rated twice it is held
    near it, and an item that nobody rated is where the others are."""
    n, epsilon = 400, 1e6
    counts = np.resize([200, 2, 60, 20], n)  # how often an item is rated says nothing of the others
    counts[2] = 0
    top = np.zeros(n)
    top[:2] = 1.0  # everybody likes the first two; half like the others
    share = np.where(top > 0, 1.0, 0.5)
    if design == "L":
        items = np.repeat(np.arange(n), counts)
        plus = np.concatenate(
            [np.arange(count) < share[item] * count for item, count in enumerate(counts)]
        )
        answer = BitContribution(
            senders=np.arange(len(items)),
            items=items,
            units=np.full(len(items), 64),
            plus=plus.astype(np.int64),
            ruler=np.zeros(len(items), np.int64),
        )
        facts = facts_from_bits(survey_for("L", 8.0, n), answer, None)
    else:
        # Entries of one weight unit reach from -5 to 5, in the soft coding's tenths.
        scores = np.rint(WEIGHT_UNITS * counts * (2 * share - 1) * 5).astype(np.int64)
        answer = SumContribution(scores=scores, weights=WEIGHT_UNITS * counts, total=0)
        facts = facts_from_sums(survey_for(design, epsilon, n), answer, None)
    often, seldom, never = np.abs(facts.bias[:3] - np.median(facts.bias[3:]))
    assert often > 0.5
    assert seldom < 0.5 * often
    assert never < 0.1 * often
    assert facts.variance[2] > facts.variance[1] > facts.variance[0]


class Zeros(SeededNoise):
    """What a generator of float32 gives once in six million draws."""

    def exponentials(self, shape):
        return np.zeros(shape, np.float32)


@pytest.mark.parametrize("per_item", [True, False])
def test_h_is_never_zero(per_item):
    """With h = 0 the gradients of everybody would go out without noise."""
    plan = Plan(
        n_items=5,
        n_factors=3,
        epochs=2,
        learning_rate=0.1,
        reg=0.0,
        mechanism="stretch",
        epsilon=1.0,
        scale_low=1.0,
        scale_high=5.0,
        scale_steps=True,
        fresh_noise=True,
    )
    recommender = Recommender(plan, Stretch(), Zeros(1), h_per_item=per_item)
    recommender.open([None])
    recommender.start([ItemCounts(counts=np.ones(5, np.int64))])
    for _ in range(2):
        h = recommender.next_round().h
        assert h.shape == (5 if per_item else 1, 3)
        assert (h == np.float32(H_FLOOR)).all()


def test_items_of_little_evidence_stand_in_the_order_of_their_sums():
    """Few different estimates are left where noise is large: with ties, the catalogue decided."""
    generator = np.random.default_rng(0)
    true = np.where(np.arange(2_000) % 20 == 0, 6.0, 1.0)
    released = true + generator.laplace(0, 4.0, len(true))
    popularity = deconvolve(released, 4.0).size_biased.astype(np.float32)
    best = np.argsort(-popularity, kind="stable")[:100]
    assert len(np.unique(popularity[best])) == 100
    assert set(best.tolist()) == set(np.argsort(-released)[:100].tolist())


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_noise_alone_seldom_makes_an_item_well_known(law):
    """At most 2 SURE of catalogues, which 200 of them exceed with p < .001 where SURE holds."""
    rng, false, named = np.random.default_rng(2), 0, 0
    raised = margin(300, **{law: 5.0})
    true = np.where(np.arange(300) < 30, 400.0, 20.0)
    for _ in range(200):
        released = true + getattr(rng, {"gaussian": "normal"}.get(law, law))(0.0, 5.0, 300)
        made = {"laplace": deconvolve, "gaussian": deconvolve_gaussian}[law]
        above = certainly_above(made(released, 5.0).size_biased, np.log(20.0), raised)
        false += above[true == 20.0].any()
        named += above[true == 400.0].sum()
    assert false <= 2 * SURE * 200
    assert named == 200 * 30
