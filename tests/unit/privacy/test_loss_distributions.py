"""Composed loss distributions: never below the exact epsilon, and hardly above it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.privacy.accounting import cost, epsilon_at, loss_distributions, pure
from hdpmf.common.privacy.accounting.accountants import _counted, renyi_epsilon
from hdpmf.common.privacy.accounting.events import (
    Composed,
    DiscreteLaplaceRelease,
    Event,
    GaussianGivenH,
    LaplaceSum,
    NothingSent,
    RandomizedBit,
    Repeated,
)
from hdpmf.common.privacy.accounting.loss_distributions import compose
from hdpmf.errors import PrivacyError, UnsupportedEventError

DELTAS = (0.2, 1e-2, 1e-5, 1e-9, 1e-13)
Outcomes = tuple[np.ndarray, np.ndarray]
"""Losses, and how likely each is."""


def bit(budget: float) -> Outcomes:
    likely = 1 / (1 + math.exp(-budget))
    return np.array([budget, -budget]), np.array([likely, 1 - likely])


def discrete_laplace(steps: int, scale: float) -> Outcomes:
    """Of every outcome z, by the definition; what is outside 0 to ``steps`` has the same loss."""
    q = math.exp(-1 / scale)
    z = np.arange(-60 * int(scale + 1), steps + 60 * int(scale + 1))
    masses = (1 - q) / (1 + q) * q ** np.abs(z)
    losses = (np.abs(z - steps) - np.abs(z)) / scale
    found, where = np.unique(np.round(losses * scale).astype(int), return_inverse=True)
    return found / scale, np.bincount(where, masses)


def exact_delta(parts: Iterable[Outcomes], epsilon: float) -> float:
    """By the definition, over all combinations of outcomes."""
    losses, masses = np.zeros(1), np.ones(1)
    for own_losses, own_masses in parts:
        losses = np.add.outer(losses, own_losses).ravel()
        masses = np.multiply.outer(masses, own_masses).ravel()
    more = np.maximum(losses - epsilon, 0.0)
    return float(masses @ -np.expm1(-more))


def binomial_delta(budget: float, times: int, epsilon: float) -> float:
    """Of randomized response, by the binomial law of its lies."""
    lies = np.arange(times + 1)
    logs = np.array(
        [
            math.lgamma(times + 1) - math.lgamma(k + 1) - math.lgamma(times - k + 1)
            for k in lies.tolist()
        ]
    )
    logs += -lies * budget - times * math.log1p(math.exp(-budget))
    more = np.maximum((times - 2 * lies) * budget - epsilon, 0.0)
    return float(np.exp(logs) @ -np.expm1(-more))


def composed(counts: Mapping[Event, int]) -> loss_distributions.DeltaCurve:
    found = compose(counts)
    assert found is not None
    return found


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 4), st.integers(1, 800))
def test_bits_cost_what_the_binomial_law_says(budget: float, times: int) -> None:
    curve = composed({RandomizedBit(budget): times})
    for delta in DELTAS:
        found = curve.epsilon(delta)
        assert binomial_delta(budget, times, found) <= delta * (1 + 1e-6)
        less = min(found, budget * times) * (1 - 3e-3) - 3e-3
        assert less < 0 or binomial_delta(budget, times, less) > delta


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.5, 30)), min_size=1, max_size=3),
    st.lists(st.floats(0.01, 3), min_size=1, max_size=3),
    st.integers(1, 2),
)
def test_unlike_releases_cost_what_all_their_outcomes_say(
    moves: list[tuple[int, float]], budgets: list[float], times: int
) -> None:
    counts: dict[Event, int] = {
        DiscreteLaplaceRelease(steps / scale, scale): times for steps, scale in moves
    }
    counts |= {RandomizedBit(budget): 1 for budget in budgets}
    parts = [discrete_laplace(*move) for move in dict.fromkeys(moves)] * times
    parts += [bit(budget) for budget in dict.fromkeys(budgets)]
    most = sum(pure(event) * often for event, often in counts.items())
    curve = composed(counts)
    for delta in DELTAS[:-1]:
        found = curve.epsilon(delta)
        assert exact_delta(parts, found) <= delta * (1 + 1e-6)
        less = min(found, most) * (1 - 3e-3) - 3e-3
        assert less < 0 or exact_delta(parts, less) > delta


@pytest.mark.parametrize("shift", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("delta", [0.01, 1e-5, 1e-10])
def test_one_laplace_release_has_a_closed_form(shift: float, delta: float) -> None:
    exact = max(shift + 2 * math.log1p(-delta), 0.0)
    found = epsilon_at(LaplaceSum(shift), delta)
    assert exact <= found <= exact * (1 + 5e-4) + 1e-6


def test_a_few_laplace_releases_by_integration() -> None:
    """Two of one size and one of another, over the noise of the first two on a fine grid."""

    def delta_of_one(shift: float, epsilon: np.ndarray) -> np.ndarray:
        inside = -np.expm1((np.maximum(epsilon, -shift) - shift) / 2)
        return np.where(
            epsilon >= shift, 0.0, np.where(epsilon <= -shift, -np.expm1(epsilon), inside)
        )

    def exact(epsilon: float) -> float:
        fine = 2000
        z = (np.arange(fine) + 0.5) / fine * 0.8
        losses = np.concatenate([[0.8, -0.8], 0.8 - 2 * z])
        masses = np.concatenate([[0.5, 0.5 * math.exp(-0.8)], np.exp(-z) / 2 * 0.8 / fine])
        both = np.add.outer(losses, losses)
        return float(masses @ delta_of_one(0.5, epsilon - both) @ masses)

    curve = composed({LaplaceSum(0.8): 2, LaplaceSum(0.5): 1})
    for delta in (0.05, 1e-3):
        found = curve.epsilon(delta)
        assert exact(found) == pytest.approx(delta, rel=2e-3)
        assert exact(found) <= delta * (1 + 1e-4)


def heavy(times: int = 1) -> Event:
    weights = np.random.default_rng(5).integers(1, 65, 400) / 64
    return Repeated(Composed(tuple(map(RandomizedBit, weights.tolist()))), times)


def test_many_releases_of_many_sizes_by_plain_convolution() -> None:
    """All losses are whole 64ths, so that nothing is rounded, and nothing is transformed."""
    counts = _counted(heavy())
    masses, lowest = np.ones(1), 0
    for event, times in counts.items():
        size = round(64 * pure(event))
        likely = 1 / (1 + math.exp(-size / 64))
        one = np.zeros(2 * size + 1)
        one[0], one[-1] = 1 - likely, likely
        for _ in range(times):
            masses, lowest = np.convolve(masses, one), lowest - size
    losses = (lowest + np.arange(len(masses))) / 64
    curve = composed(counts)
    for delta in DELTAS[:-1]:
        found = curve.epsilon(delta)

        def exact(epsilon: float) -> float:
            return float(masses @ -np.expm1(-np.maximum(losses - epsilon, 0.0)))

        assert exact(found) <= delta * (1 + 1e-6)
        assert exact(found * (1 - 5e-4)) > delta


def test_the_bound_is_above_what_drawing_shows() -> None:
    """A million draws of 40 releases: the share that a delta says is not below what is seen."""
    scale, steps, times = 12.0, 5, 40
    random = np.random.default_rng(0)
    q = math.exp(-1 / scale)
    noise = random.geometric(1 - q, (200_000, times)) - random.geometric(1 - q, (200_000, times))
    losses = ((np.abs(noise - steps) - np.abs(noise)) / scale).sum(1)
    curve = composed({DiscreteLaplaceRelease(steps / scale, scale): times})
    for delta in (0.3, 0.1, 0.01):
        excess = -np.expm1(-np.maximum(losses - curve.epsilon(delta), 0.0))
        error = float(excess.std()) / math.sqrt(len(excess))
        assert abs(float(excess.mean()) - delta) < 5 * error


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(0.01, 3), min_size=1, max_size=30),
    st.lists(st.floats(1e-12, 0.4), min_size=2, max_size=6),
)
def test_a_larger_delta_never_costs_more_and_other_bounds_never_less(
    sizes: list[float], deltas: list[float]
) -> None:
    event = Composed(
        tuple(
            kind
            for size in sizes
            for kind in (RandomizedBit(size), DiscreteLaplaceRelease(size / 2, 20.0))
        )
    )
    found = [epsilon_at(event, delta) for delta in sorted(deltas)]
    assert found == sorted(found, reverse=True)
    for delta, epsilon in zip(sorted(deltas), found, strict=True):
        assert epsilon <= min(pure(event), renyi_epsilon(event, delta))


def test_more_releases_cost_more() -> None:
    found = [epsilon_at(heavy(times), 1e-5) for times in (1, 2, 3, 10)]
    assert found == sorted(found)
    assert found[-1] < 10 * found[0]


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_what_the_proof_page_says_of_discrete_laplace_noise(delta: float) -> None:
    """A smaller move, more noise and a finer grid cost less; a bit with the same pure epsilon
    costs most.
    """

    def epsilon(steps: int, scale: float) -> float:
        return epsilon_at(Repeated(DiscreteLaplaceRelease(steps / scale, scale), 60), delta)

    rising = [epsilon(4, 20.0), epsilon(5, 20.0), epsilon(5, 19.0)]
    assert rising == sorted(rising)
    pure_alike = [(steps, 3.2 * steps) for steps in (320, 20, 5, 1)]
    finer = [epsilon(steps, scale) for steps, scale in pure_alike]
    assert finer == sorted(finer)
    assert finer[0] < 0.99 * finer[-1]
    as_bits = epsilon_at(Repeated(DiscreteLaplaceRelease(1 / 3.2), 60), delta)
    assert finer[-1] == pytest.approx(as_bits, rel=1e-6)


def test_half_of_the_noise_is_noticed() -> None:
    """The comparison above can fail: the epsilon of twice the noise is no bound."""
    wrong = composed({DiscreteLaplaceRelease(3 / 16, 16.0): 3}).epsilon(1e-3)
    assert exact_delta([discrete_laplace(3, 8.0)] * 3, wrong) > 10 * 1e-3


@pytest.mark.parametrize(
    ("method", "neighbours", "n", "weight"),
    [
        ("hdp-sum", "value", 106, 0.364),
        ("hdp-sum", "presence", 106, 0.364),
        ("hdp-bit", "value", 106, 0.364),
        ("hdp-sum", "value", 166, 0.353),
        ("hdp-sum", "presence", 158, 0.352),
    ],
)
def test_a_person_pays_what_dp_accounting_says(
    method: str, neighbours: str, n: int, weight: float
) -> None:
    """The average person of three data sets: between Google's lower and upper estimate."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    found = cost(
        method,
        "messages" if method == "hdp-bit" else "sums",
        unit="user",
        neighbours=neighbours,
        weight=[weight] * n,
    )
    lower, upper = (
        _by_dp_accounting(pld, _counted(found.event), pessimistic) for pessimistic in (False, True)
    )
    assert lower * (1 - 1e-9) <= found.epsilon_at_delta <= upper * (1 + 1e-3)


def _by_dp_accounting(pld: object, counts: Mapping[Event, int], pessimistic: bool) -> float:
    options = {"value_discretization_interval": 5e-4, "pessimistic_estimate": pessimistic}
    total = None
    for event, times in counts.items():
        if isinstance(event, RandomizedBit):
            noise = 2 / (1 + math.exp(event.budget))
            one = pld.from_randomized_response(noise, 2, **options)  # type: ignore[attr-defined]
        else:
            assert isinstance(event, DiscreteLaplaceRelease)
            assert event.scale is not None
            one = pld.from_discrete_laplace_mechanism(  # type: ignore[attr-defined]
                1 / event.scale, sensitivity=round(event.shift * event.scale), **options
            )
        many = one.self_compose(times)
        total = many if total is None else total.compose(many)
    assert total is not None
    return float(total.get_epsilon_for_delta(1e-5))


def test_what_has_no_loss_distribution_is_left_to_other_accountants() -> None:
    for event in (GaussianGivenH(1.0), LaplaceSum(0.1, 3), DiscreteLaplaceRelease(0.3)):
        with pytest.raises(UnsupportedEventError, match=type(event).__name__):
            compose({event: 1})
    assert compose({}) is None
    assert compose({RandomizedBit(0.0): 4}) is None
    assert epsilon_at(Composed((NothingSent(), RandomizedBit(0.0))), 1e-5) == 0
    mixed = Composed((GaussianGivenH(1.0), Repeated(RandomizedBit(0.2), 50)))
    assert epsilon_at(mixed, 1e-5) == renyi_epsilon(mixed, 1e-5)
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyError, match="scale"):
            DiscreteLaplaceRelease(0.3, scale)


def test_a_release_without_a_law_is_counted_as_a_bit() -> None:
    """As several numbers that move together, of which only the sum of moves is known."""
    for delta, times in itertools.product((1e-2, 1e-6), (1, 80)):
        unknown = epsilon_at(Repeated(DiscreteLaplaceRelease(0.3), times), delta)
        assert unknown == epsilon_at(Repeated(RandomizedBit(0.3), times), delta)


def test_large_people_and_large_budgets_do_not_overflow() -> None:
    for budget, times in ((6.0, 3000), (0.4, 20_000), (300.0, 2), (1e-7, 5)):
        event = Repeated(RandomizedBit(budget), times)
        found = epsilon_at(event, 1e-5)
        assert 0 <= found <= pure(event)
        assert math.isfinite(composed(_counted(event)).epsilon(1e-5))


CURVES: dict[str, tuple[dict[Event, int], tuple[float, ...]]] = {
    "one bit": (
        {RandomizedBit(0.5): 1},
        (4096, -0.258858034, 0.507055007, 2525.49759817, 1769.67535671, 3.16893994e-6, 2.21779e-11),
    ),
    "few and many bits": (
        {RandomizedBit(0.1): 400, RandomizedBit(1.0): 3},
        (8192, -0.356306257, 26.9194372, 1149.62760038, 253.07300838, 4.99428798, 7.68328e-15),
    ),
    "Laplace": (
        {LaplaceSum(0.25): 40},
        (4096, -0.174321667, 10.3234317, 579.97182778, 230.63893178, 5.33092067e-3, 7.64696e-13),
    ),
    "whole numbers": (
        {DiscreteLaplaceRelease(0.5, 24.0): 60, RandomizedBit(0.02): 7},
        (4096, 0.0, 31.0916511, 849.77643923, 121.75347256, 1.90179353, 2.49284e-12),
    ),
    "far out": (
        {LaplaceSum(3.0): 200, DiscreteLaplaceRelease(2.0, 3.0): 5},
        (8192, 351.841497, 606.271947, 2057.49830027, 31.61061724, 16367.6345, 3.44570e-12),
    ),
    "next to nothing": (
        {RandomizedBit(1e-4): 3},
        (
            4096,
            -3.11820224e-4,
            3.11972554e-4,
            2047.09847029,
            2046.68072932,
            1.56105864e-9,
            3.8123e-13,
        ),
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_windows_masses_and_errors_of_curves_are_what_they_were(name: str) -> None:
    """Another window or allowance is another bound, also where no epsilon shows it: decide it."""
    parts, known = CURVES[name]
    found = compose(parts)
    assert found is not None
    masses = [float(each.sum()) for each in (found.above, found.above_other, found.errors)]
    middle = float(found.errors[len(found.errors) // 2])
    ends = float(found.epsilons[0]), float(found.epsilons[-1])
    assert (len(found.epsilons), *ends, *masses) == pytest.approx(known[:-1], rel=1e-7, abs=1e-13)
    assert middle == pytest.approx(known[-1], rel=1e-3)
