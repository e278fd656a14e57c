"""The three controls of the audit. If one fails, the audit is broken, or the design is.

Sums seen without noise must fail, half of the noise must be flagged, and the design must pass
with a bound never above 1 beyond the 5 % error.

About the 5 %: a bound holds with 95 % confidence, so an audit of a true claim may call it broken
with a probability of up to 5 %, whatever the mechanism. Among n independent audits the number of
those is then at most binomial(n, 0.05). The test is on that number: it fails where more are seen
than would be, if the claim were true, with a probability of ``FALSE_ALARM``. (In fact an audit of
these mechanisms errs in 0.3 % to 1.3 % of cases, as two measured rates have to be off at once.)
Seeds are fixed, so that what passes, passes always; the false alarm is that of choosing other
seeds.
"""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from hdpmf.common.data import synthetic_world
from hdpmf.lab.audit.game import Audit, run_audit
from hdpmf.lab.audit.one_round import Design, bit_scores, sum_scores
from hdpmf.lab.audit.scores import BROKEN, STANDS, Scores, ceiling, lower_bound, verdict
from hdpmf.lab.audit.world import choose_target
from hdpmf.private.client import pairs as client_pairs
from tests.unit.audit.planted_noise import WeakDesign

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-3

# About how far a bound of N runs strays from its expectation: TPR 0.5 and FPR 0.5/e, relative
# errors added up.
_PER_ROOT_N = math.sqrt((1 - 0.5) / 0.5 + (1 - 0.5 / math.e) / (0.5 / math.e))


def _most_above(audits):
    """How many of so many audits of a true claim may call it broken."""
    return int(binom.ppf(1 - FALSE_ALARM, audits, 0.05))


@pytest.fixture(scope="module")
def target():
    return choose_target(synthetic_world(), 1.0)


@pytest.fixture(scope="module")
def as_designed(target):
    """20 times 2,000 runs of the design as it is, with a seed each; tests look at the same ones."""
    return [sum_scores(target, Design("A", 1.0), 2_000, seed) for seed in range(20)]


def _together(scores):
    return Scores(
        np.concatenate([part.low for part in scores]),
        np.concatenate([part.high for part in scores]),
    )


def _bound(scores, runs):
    pilot = Scores(scores.low[:runs], scores.high[:runs])
    return lower_bound(pilot, Scores(scores.low[runs:], scores.high[runs:])).epsilon


def test_sums_seen_without_noise_fail():
    result = run_audit(Audit("hdp-sum", "messages", 1_000))
    assert (result.verdict, result.claim_covers_view) == (BROKEN, False)
    assert result.epsilon_lower_bound == pytest.approx(ceiling(1_000))


def test_sums_with_half_the_noise_are_flagged(target):
    """True epsilon 2; the bound of 10,000 runs is about 1.9 with a standard deviation of 0.04."""
    bound = _bound(sum_scores(target, WeakDesign("A", 1.0), 20_000, 0), 10_000)
    assert verdict(1.0, bound) == BROKEN
    assert 1.7 < bound <= 2.0


def test_sums_as_designed_pass(as_designed):
    bound = _bound(_together(as_designed[:10]), 10_000)
    assert verdict(1.0, bound) == STANDS
    assert bound > 0.85  # not by being blind


def test_sums_as_designed_are_above_their_claim_no_more_often_than_stated(as_designed):
    """20 audits of 1,000 runs; at most 5 may be above 1 (more: 0.03 % if each had the full 5 %)."""
    bounds = [_bound(scores, 1_000) for scores in as_designed]
    assert sum(verdict(1.0, bound) == BROKEN for bound in bounds) <= _most_above(20)
    # The mean is where it should be, within 4 standard errors.
    assert np.mean(bounds) == pytest.approx(
        0.80, abs=4 * _PER_ROOT_N / math.sqrt(1_000 * 20) + 0.03
    )


def test_noise_that_is_a_little_too_small_is_above_too_often(target):
    """What the test above can see: 0.8 of the noise, a true epsilon of 1.25."""
    design = WeakDesign("A", 1.0, factor=0.8)
    bounds = [_bound(sum_scores(target, design, 4_000, seed), 2_000) for seed in range(8)]
    assert sum(verdict(1.0, bound) == BROKEN for bound in bounds) > _most_above(8)


@pytest.mark.parametrize(("runs", "expected"), [(1_000, 0.81), (10_000, 0.94)])
def test_the_bound_approaches_the_truth_as_expected(as_designed, runs, expected):
    """Within 4 standard deviations; N = 100,000 gives 0.98 and takes too long for every day."""
    bound = _bound(_together(as_designed[10 : 10 + runs // 1_000]), runs)
    assert bound == pytest.approx(expected, abs=4 * _PER_ROOT_N / math.sqrt(runs))
    assert _expected(runs) == pytest.approx(expected, abs=0.005)
    assert _expected(100_000) == pytest.approx(0.98, abs=0.005)


def _expected(runs):
    z = norm.ppf(0.975) / math.sqrt(runs)
    p, q = 0.5, 0.5 / math.e
    return math.log((p - z * math.sqrt(p * (1 - p))) / (q + z * math.sqrt(q * (1 - q))))


@pytest.mark.parametrize(("epsilon", "weight"), [(1.0, 1.0), (4.0, 0.5), (0.5, 0.3)])
def test_a_bit_keeps_its_claim_against_whoever_sees_it(epsilon, weight):
    """200 audits; at most 20 above the claim (more: below 0.1 % if each had the full 5 %)."""
    target = choose_target(synthetic_world(80, 50, 1_600, rng=1), weight)
    bounds = [
        _bound(bit_scores(target, epsilon, "messages", 4_000, seed), 2_000) for seed in range(200)
    ]
    assert sum(verdict(epsilon * weight, bound) == BROKEN for bound in bounds) <= _most_above(200)
    assert np.mean(bounds) > 0.3 * epsilon * math.floor(64 * weight) / 64


@pytest.mark.parametrize("method", ["hdpmf", "hdpmf-w", "pdpmf"])
def test_the_paper_s_scheme_with_messages_visible_saturates_the_bound(method):
    """An attacker who errs in none of 300 runs; at 13 and more standard deviations apart that is
    no chance.
    """
    result = run_audit(Audit(method, "messages", 300))
    assert result.verdict == BROKEN
    assert result.epsilon_lower_bound > ceiling(300) - 0.1


def test_secure_sums_alone_do_not_save_it():
    result = run_audit(Audit("hdpmf", "sums", 500))
    assert result.verdict == BROKEN
    assert result.epsilon_lower_bound > 2.0


def test_not_knowing_h_does_not_save_it_either():
    assert run_audit(Audit("hdpmf", "sums-h-hidden", 1_000)).verdict == BROKEN


def test_the_presence_of_a_rating_costs_three_quarters(target):
    """8 audits of 1,000 runs against 0.75 W epsilon, as above."""
    design = Design("A", 1.0)
    bounds = []
    for seed in range(8):
        bounds.append(_bound(sum_scores(target, design, 2_000, seed, adjacency="presence"), 1_000))
    assert sum(verdict(0.75, bound) == BROKEN for bound in bounds) <= _most_above(8)
    assert np.mean(bounds) > 0.4


def _paid(**settings):
    world = synthetic_world(80, 50, 1_600, rng=1)
    return run_audit(Audit("hdpmf-paid", "sums", 1_000, **settings), world).epsilon_lower_bound


def test_hdpmf_with_a_price_that_is_paid_keeps_its_claim():
    """In one round, where the attacker sees most of it, and in ten."""
    bounds = [_paid(epochs=1, seed=seed) for seed in range(10)]
    assert sum(verdict(1.0, bound) == BROKEN for bound in bounds) <= _most_above(10)
    assert np.mean(bounds) > 0.1  # not by being blind
    assert verdict(1.0, _paid(epochs=10)) == STANDS


@pytest.mark.parametrize("epochs", [1, 10])
def test_a_price_that_is_not_paid_is_seen(epochs):
    """What the test above can see: a tenth of the noise, as if each of ten rounds had the budget
    of them all.
    """
    assert verdict(1.0, _paid(epochs=epochs, epsilon=10.0)) == BROKEN


def _of_pairs(view, adjacency, runs):
    """An audit of hdp-pairs at its default epsilon of 8, before noise that nothing repeats."""
    return run_audit(Audit("hdp-pairs", view, runs=runs, epsilon=8.0, adjacency=adjacency))


@pytest.mark.parametrize("adjacency", ["person", "exchange"])
def test_a_person_of_pairs_pays_no_more_than_claimed_and_nearly_that(adjacency):
    """Above the claim with at most 5 %, but by far less: the worst history spends 99 % of rho."""
    result = _of_pairs("sums", adjacency, 400)
    assert result.verdict == STANDS
    assert 0.5 * result.epsilon_claimed < result.epsilon_lower_bound


@pytest.mark.parametrize(
    ("view", "adjacency", "runs"),
    [("sums", "person", 200), ("sums", "exchange", 200), ("final", "person", 400)],
)
def test_half_of_the_noise_of_pairs_is_flagged(monkeypatch, view, adjacency, runs):
    """Missed at most once in 10^4: the bound is four of its own deviations above the claim."""
    noised = client_pairs._noised
    monkeypatch.setattr(
        client_pairs, "_noised", lambda sums, sigma, noise: noised(sums, sigma // 2, noise)
    )
    assert _of_pairs(view, adjacency, runs).verdict == BROKEN
