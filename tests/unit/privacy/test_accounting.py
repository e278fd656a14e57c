"""Events, accountants and costs, with dp-accounting as an independent judge."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.privacy import accounting
from hdpmf.common.privacy.accounting import accountants, cost
from hdpmf.common.privacy.accounting.accountants import (
    _counted,
    _renyi_curve,
    normal_delta,
    normal_epsilon,
)
from hdpmf.common.privacy.accounting.rules import inverse_sum_median
from hdpmf.errors import ConfigError, HdpmfError, PrivacyError

DELTA = 1e-5


def renyi(event: accountants.Event, order: float) -> float:
    return float(_renyi_curve(_counted(event), np.array([order]))[0])


def pld_epsilon(event: Any, delta: float = DELTA, interval: float = 1e-3) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=interval)
    assert isinstance(event, dp_accounting.DpEvent)
    accountant.compose(event)
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("distance", [0.3, 1.0, 3.0, 8.0])
def test_gaussians_cost_what_dp_accounting_says(distance: float) -> None:
    import dp_accounting

    theirs = pld_epsilon(dp_accounting.GaussianDpEvent(1 / distance))
    ours = accounting.epsilon_at(accountants.GaussianGivenH(distance), DELTA)
    assert ours == pytest.approx(theirs, rel=2e-3)


def test_composed_gaussians_too() -> None:
    import dp_accounting

    parts = (0.2, 0.7, 1.1)
    theirs = pld_epsilon(
        dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1 / one) for one in parts])
    )
    ours = accounting.epsilon_at(
        accountants.Composed(tuple(map(accountants.GaussianGivenH, parts))), DELTA
    )
    assert ours == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize(("shift", "times"), [(1.0, 1), (0.1, 1000), (0.5, 40), (2.0, 5)])
def test_laplace_is_never_undercharged(shift: float, times: int) -> None:
    import dp_accounting

    theirs = pld_epsilon(
        dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(1 / shift), times)
    )
    ours = accounting.epsilon_at(accountants.LaplaceSum(shift, times), DELTA)
    assert theirs <= ours * (1 + 1e-6)
    assert ours <= min(1.25 * theirs, shift * times)  # and not much overcharged either


@given(st.floats(0.01, 200), st.floats(1e-12, 0.3))
def test_the_gaussian_epsilon_inverts_its_delta(distance: float, delta: float) -> None:
    epsilon = normal_epsilon(distance, delta)
    assert epsilon == 0 or normal_delta(distance, epsilon) == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 0.01])
def test_the_gaussian_epsilon_is_never_too_small_and_right_to_ten_digits(
    distance: float, delta: float
) -> None:
    epsilon = normal_epsilon(distance, delta)
    less = epsilon - 1e-10 * max(1.0, epsilon)
    assert normal_delta(distance, epsilon) <= delta < normal_delta(distance, less)


@given(st.floats(1.05, 60), st.floats(1e-3, 20))
def test_renyi_curves_stay_between_zero_and_their_bounds(order: float, budget: float) -> None:
    for event in (
        accountants.LaplaceSum(budget),
        accountants.PureRelease(budget),
    ):
        divergence = renyi(event, order)
        assert -1e-12 <= divergence <= min(budget, order * budget**2 / 2) * (1 + 1e-9)


@given(st.floats(1.05, 60), st.floats(1e-3, 5), st.floats(1e-3, 5))
def test_spreading_a_move_evenly_is_the_worst(order: float, a: float, b: float) -> None:
    even = math.sqrt((a**2 + b**2) / 2)
    uneven = renyi(
        accountants.Composed((accountants.LaplaceSum(a), accountants.LaplaceSum(b))), order
    )
    assert renyi(accountants.LaplaceSum(even, 2), order) >= uneven * (1 - 1e-9)


@pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
def test_renyi_divergences_are_those_of_the_laws(order: float) -> None:
    gaussian = accountants.GaussianGivenH(1.7)
    once = order * 1.7**2 / 2
    assert renyi(gaussian, order) == pytest.approx(once)
    assert renyi(accountants.Repeated(gaussian, 3), order) == pytest.approx(3 * once)
    likely = math.exp(0.8) / (1 + math.exp(0.8))
    rare = 1 - likely
    bit = math.log(likely**order * rare ** (1 - order) + rare**order * likely ** (1 - order))
    bit /= order - 1
    assert renyi(accountants.PureRelease(0.8), order) == pytest.approx(bit)
    together = accountants.Composed(
        (gaussian, accountants.PureRelease(0.8), accountants.NothingSent())
    )
    assert renyi(together, order) == pytest.approx(once + bit)
    assert renyi(accountants.Unprotected("all"), order) == math.inf


def test_guessing() -> None:
    assert accounting.guess(accountants.NothingSent()) == 0.5
    assert accounting.guess(accountants.Unprotected("all")) == 1.0
    assert accounting.guess(accountants.PureRelease(1.0)) == pytest.approx(math.e / (1 + math.e))
    assert accounting.guess(accountants.GaussianGivenH(2.0)) == pytest.approx(0.8413447, rel=1e-6)


@pytest.mark.parametrize(
    ("event", "exact"),
    [
        (accountants.GaussianGivenH(2.0), True),
        (accountants.Repeated(accountants.GaussianGivenH(2.0), 3), True),
        (accountants.LaplaceSum(1.0), False),
        (
            accountants.Composed((accountants.GaussianGivenH(2.0), accountants.PureRelease(1.0))),
            False,
        ),
    ],
)
def test_only_of_gaussians_a_guess_is_said_to_be_exact(
    event: accountants.Event, exact: bool
) -> None:
    assert accountants.is_exact_guess(event) is exact


@given(st.floats(0.01, 3), st.integers(1, 50))
def test_guessing_is_bounded_from_the_true_total_variation(shift: float, times: int) -> None:
    """The best guess against bits is known exactly: the majority."""
    p = 1 / (1 + math.exp(-shift))
    counts = np.arange(times + 1)
    log_choose = np.array(
        [math.lgamma(times + 1) - math.lgamma(k + 1) - math.lgamma(times - k + 1) for k in counts]
    )
    here = np.exp(log_choose + counts * math.log(p) + (times - counts) * math.log1p(-p))
    best = (1 + np.abs(here - here[::-1]).sum() / 2) / 2
    assert accounting.guess(accountants.Repeated(accountants.PureRelease(shift), times)) >= best * (
        1 - 1e-9
    )


def test_events_are_immutable_and_checked() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        accountants.PureRelease(1.0).budget = 2.0  # type: ignore[misc]
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(PrivacyError):
            accountants.LaplaceSum(bad)
    with pytest.raises(PrivacyError):
        accountants.Repeated(accountants.NothingSent(), 0)


def test_what_an_accountant_cannot_handle_it_refuses() -> None:
    class Rumour(accountants.Event):
        """Not an event that anybody accounts for."""

    for accountant in (accountants.pure, accountants.zcdp):
        with pytest.raises(PrivacyError, match="Rumour"):
            accountant(accountants.Composed((accountants.NothingSent(), Rumour())))
    with pytest.raises(PrivacyError, match="delta"):
        accounting.epsilon_at(accountants.NothingSent(), 0.0)


@pytest.mark.parametrize("n", [1, 30, 1000])
def test_the_median_of_the_draws(n: int) -> None:
    drawn = (1 / np.random.default_rng(0).standard_exponential((4000, n))).sum(1)
    assert float((drawn < inverse_sum_median(n)).mean()) == pytest.approx(0.5, abs=0.025)
    if n == 1:
        assert inverse_sum_median(1) == pytest.approx(1 / math.log(2), rel=1e-4)


def test_bad_questions() -> None:
    questions: list[tuple[dict[str, Any], type[HdpmfError]]] = [
        ({"method": "magic"}, ConfigError),
        ({"view": "magic"}, ConfigError),
        ({"unit": "magic"}, ConfigError),
        ({"neighbours": "magic"}, ConfigError),
        ({"noise": "magic"}, ConfigError),
        ({"rounds": 0}, ConfigError),
        ({"n_raters": 0}, ConfigError),
        ({"weight": [0.5, 0.5]}, ConfigError),
        ({"h": "magic"}, ConfigError),
        ({"weight": 0.0}, PrivacyError),
        ({"weight": math.nan}, PrivacyError),
        ({"epsilon": math.inf}, PrivacyError),
        ({"noise_budget": -1.0}, PrivacyError),
    ]
    for question, error in questions:
        with pytest.raises(error):
            cost(**{"method": "hdpmf", **question})
