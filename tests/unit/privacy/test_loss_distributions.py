"""Epsilons at a delta: never below the exact one, and hardly above it.

The accountant composes loss distributions by dp-accounting; the oracles here count anew: all
combinations of outcomes, and Fourier transforms of whole losses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.privacy.accounting import cost, epsilon_at, pure
from hdpmf.common.privacy.accounting.accountants import (
    Composed,
    Event,
    GaussianGivenH,
    NothingSent,
    PureRelease,
    Repeated,
    _counted,
    _from_renyi,
)
from hdpmf.errors import PrivacyError

DELTAS = (0.2, 1e-2, 1e-5, 1e-9)
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
    return hockey_stick(losses, masses, epsilon)


def hockey_stick(losses: np.ndarray, masses: np.ndarray, epsilon: float) -> float:
    return float(masses @ -np.expm1(-np.maximum(losses - epsilon, 0.0)))


def recounted(event: Event, delta: float, width: float) -> tuple[float, float]:
    """Return bounds on the exact epsilon: losses rounded to a grid, down and up, by Fourier."""
    bounds = []
    for rounded, nearly in ((np.floor, 1e-9), (np.ceil, -1e-9)):
        parts = []
        for release, times in _counted(event).items():
            if isinstance(release, PureRelease) and release.scale is not None:
                losses, masses = discrete_laplace(
                    round(release.budget * release.scale), release.scale
                )
            else:
                losses, masses = bit(pure(release))
            places = rounded(losses / width + nearly).astype(int)
            parts.append((places, masses, times))
        lowest = sum(int(places.min()) * times for places, _, times in parts)
        highest = sum(int(places.max()) * times for places, _, times in parts)
        points = 1 << (highest - lowest + 1).bit_length()
        transform = np.ones(points // 2 + 1, complex)
        for places, masses, times in parts:
            transform *= np.fft.rfft(np.bincount(places - places.min(), masses, points)) ** times
        law = np.maximum(np.fft.irfft(transform, points), 0.0)
        losses = (lowest + np.arange(points)) * width
        low, high = 0.0, highest * width
        while high - low > width / 100:
            middle = (low + high) / 2
            below = hockey_stick(losses, law, middle) <= delta
            low, high = (low, middle) if below else (middle, high)
        bounds.append(high)
    return bounds[0], bounds[1]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.5, 30)), min_size=1, max_size=3),
    st.lists(st.floats(0.01, 3), min_size=1, max_size=3),
    st.integers(1, 2),
)
def test_unlike_releases_cost_what_all_their_outcomes_say(
    moves: list[tuple[int, float]], budgets: list[float], times: int
) -> None:
    moved = [PureRelease(steps / scale, scale) for steps, scale in dict.fromkeys(moves)]
    bits = [PureRelease(budget) for budget in dict.fromkeys(budgets)]
    event = Composed((Repeated(Composed(tuple(moved)), times), *bits))
    parts = [discrete_laplace(*move) for move in dict.fromkeys(moves)] * times
    parts += [bit(budget) for budget in dict.fromkeys(budgets)]
    for delta in DELTAS[:-1]:
        found = epsilon_at(event, delta)
        assert exact_delta(parts, found) <= delta * (1 + 1e-6)
        less = found * (1 - 3e-3) - 3e-3
        assert less < 0 or exact_delta(parts, less) > delta


def heavy() -> Event:
    weights = np.random.default_rng(5).integers(1, 65, 400) / 64
    return Composed(tuple(map(PureRelease, weights.tolist())))


@pytest.mark.parametrize(
    ("method", "neighbours", "n", "weight", "quoted"),
    [
        ("hdp-sum", "value", 106, 0.364, "epsilon 38.1, or (19.7, 1e-05)"),
        ("hdp-sum", "presence", 106, 0.364, "epsilon 28.6, or (9.94, 1e-05)"),
        ("hdp-bit", "value", 106, 0.364, "epsilon 38.1, or (21.2, 1e-05)"),
        ("hdp-sum", "value", 166, 0.353, "epsilon 57.1, or (25.6, 1e-05)"),
        ("hdp-sum", "presence", 166, 0.353, "epsilon 42.8, or (12.6, 1e-05)"),
        ("hdp-bit", "value", 166, 0.353, "epsilon 57.1, or (27.2, 1e-05)"),
    ],
)
def test_a_person_pays_what_a_recount_says_and_the_front_page_quotes(
    method: str, neighbours: str, n: int, weight: float, quoted: str
) -> None:
    """The average person of two data sets."""
    view = "messages" if method == "hdp-bit" else "sums"
    found = cost(method, view, unit="user", neighbours=neighbours, weight=[weight] * n)
    low, high = recounted(found.event, found.delta, 2e-4)
    assert low <= found.epsilon_at_delta <= high * (1 + 1e-4)
    assert found.in_numbers() == quoted


@pytest.mark.slow
def test_releases_of_many_sizes_cost_what_a_recount_says() -> None:
    """All losses are whole 64ths, so that nothing is rounded."""
    for delta in DELTAS[:-1]:
        low, high = recounted(heavy(), delta, 1 / 64)
        assert low == high
        assert high * (1 - 1e-4) <= epsilon_at(heavy(), delta) <= high * (1 + 5e-4)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(0.01, 3), min_size=1, max_size=30),
    st.lists(st.floats(1e-12, 0.4), min_size=2, max_size=6),
)
def test_a_larger_delta_never_costs_more_and_other_bounds_never_less(
    sizes: list[float], deltas: list[float]
) -> None:
    event = Composed(
        tuple(kind for size in sizes for kind in (PureRelease(size), PureRelease(size / 2, 20.0)))
    )
    found = [epsilon_at(event, delta) for delta in sorted(deltas)]
    assert found == sorted(found, reverse=True)
    for delta, epsilon in zip(sorted(deltas), found, strict=True):
        assert epsilon <= min(pure(event), _from_renyi(_counted(event), delta))


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_what_the_proof_page_says_of_discrete_laplace_noise(delta: float) -> None:
    """A smaller move, more noise and a finer grid cost less; a bit with the same pure epsilon
    costs most.
    """

    def epsilon(steps: int, scale: float) -> float:
        return epsilon_at(Repeated(PureRelease(steps / scale, scale), 60), delta)

    rising = [epsilon(4, 20.0), epsilon(5, 20.0), epsilon(5, 19.0)]
    assert rising == sorted(rising)
    pure_alike = [(steps, 3.2 * steps) for steps in (320, 20, 5, 1)]
    finer = [epsilon(steps, scale) for steps, scale in pure_alike]
    assert finer == sorted(finer)
    assert finer[0] < 0.99 * finer[-1]
    as_bits = epsilon_at(Repeated(PureRelease(1 / 3.2), 60), delta)
    assert finer[-1] == pytest.approx(as_bits, rel=1e-6)


def test_half_of_the_noise_is_noticed() -> None:
    """The comparison above can fail: the epsilon of twice the noise is no bound."""
    wrong = epsilon_at(Repeated(PureRelease(3 / 16, 16.0), 3), 1e-3)
    assert exact_delta([discrete_laplace(3, 8.0)] * 3, wrong) > 10 * 1e-3


def test_what_has_no_loss_distribution_is_left_to_other_accountants() -> None:
    assert epsilon_at(Composed((NothingSent(), PureRelease(0.0))), 1e-5) == 0
    mixed = Composed((GaussianGivenH(1.0), Repeated(PureRelease(0.2), 50)))
    assert epsilon_at(mixed, 1e-5) == _from_renyi(_counted(mixed), 1e-5)
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyError, match="scale"):
            PureRelease(0.3, scale)


def test_a_release_without_a_law_is_counted_as_a_bit() -> None:
    """As several numbers that move together, of which only the sum of moves is known."""
    for delta, times in itertools.product((1e-2, 1e-6), (1, 80)):
        unknown = epsilon_at(Repeated(PureRelease(0.3), times), delta)
        assert unknown == epsilon_at(Repeated(PureRelease(0.3), times), delta)


def test_large_people_and_large_budgets_do_not_overflow() -> None:
    for budget, times in ((6.0, 3000), (0.4, 20_000), (300.0, 2), (1e-7, 5)):
        event = Repeated(PureRelease(budget), times)
        found = epsilon_at(event, 1e-5)
        assert 0 <= found <= pure(event)
