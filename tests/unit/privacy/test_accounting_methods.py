"""What each method costs, view by view: the project's table, in numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import VIEWS, Setting, cost
from hdpmf.common.privacy.accounting.rules import inverse_sum_median
from hdpmf.common.privacy.mechanisms import laplace_scale, noise_share
from hdpmf.models import make_model

PAPER = ("hdpmf", "hdpmf-w", "hdpmf-r", "pdpmf", "dpmf")


def test_every_method_is_accounted_for() -> None:
    for name in METHODS:
        setting = Setting.from_params(
            name, make_model(name, **METHODS[name].own(epochs=7, epsilon=2.0)).get_params()
        )
        found = cost(setting, "sums")
        assert (
            found.status
            == {"proved": "proved", "nominal": "nominal", "none": "no guarantee"}[
                make_model(name).privacy.status
            ]
        )
    simulated = make_model("hdpmf", solver="sequential", epochs=7).get_params()
    assert Setting.from_params("hdpmf", simulated) == Setting("hdpmf", rounds=7, h="shared")


@pytest.mark.parametrize(("raters", "about"), [(20, 540), (100, 2_300), (500, 10_800)])
def test_the_default_numbers_with_messages_visible(raters: int, about: float) -> None:
    found = cost("hdpmf", "messages", n_raters=raters)
    assert math.isinf(found.pure)
    assert found.status == "nominal"
    assert found.covers == "direct channel"
    assert found.epsilon_at_delta == pytest.approx(about, rel=0.03)
    assert found.guess == pytest.approx(1.0, abs=1e-9)


def test_the_default_numbers_of_sums() -> None:
    known = cost("hdpmf", "sums-h-known")
    assert math.isinf(known.pure)
    assert known.epsilon_at_delta == pytest.approx(47, rel=0.02)
    hidden = cost("hdpmf", "sums-h-hidden")
    assert hidden.pure == pytest.approx(100)
    assert hidden.zcdp == pytest.approx(5)
    assert hidden.epsilon_at_delta == pytest.approx(18.6, abs=0.05)
    assert cost("hdpmf", "sums") == known
    final = cost("hdpmf", "final")
    assert (final.pure, final.zcdp) == (hidden.pure, hidden.zcdp)
    assert "At most" in final.reason


def test_the_formula_of_typical_draws() -> None:
    asked = {"weight": 0.3, "n_raters": 7, "epsilon": 2.0, "factors": 4, "rounds": 6}
    found = cost("hdpmf", "messages", **asked)
    assert found.zcdp == pytest.approx(
        7 * 0.3**2 * 2.0**2 / (4 * 4) * inverse_sum_median(6 * 4) / 4
    )
    assert cost("hdpmf", "sums", **asked).zcdp == pytest.approx(found.zcdp / 7)


def test_the_formula_is_what_the_code_sends() -> None:
    """Move one rating by the whole scale, and divide by the deviation of the noise share that
    the shard adds.
    """
    n_factors, width, epsilon, weight, raters = 5, 4.0, 1.5, 0.6, 9
    rng = np.random.default_rng(1)
    u = rng.normal(size=n_factors)
    u /= np.linalg.norm(u)
    h = rng.standard_exponential(n_factors)
    moved = 2 * weight * width * u
    scale = laplace_scale(n_factors, width, epsilon)
    deviation = noise_share(h, np.full(n_factors, 1 / math.sqrt(raters)), scale)
    rho = ((moved / deviation) ** 2).sum() / 2
    formula = raters * weight**2 * epsilon**2 / (4 * n_factors) * (u**2 / h).sum()
    assert rho == pytest.approx(formula)
    # With h hidden each coordinate is Laplace(scale); the worst direction of u reaches W eps.
    assert np.abs(moved / scale).sum() <= weight * epsilon * (1 + 1e-12)
    even = np.full(n_factors, 1 / math.sqrt(n_factors))
    assert np.abs(2 * weight * width * even / scale).sum() == pytest.approx(weight * epsilon)


def test_wider_views_never_cost_less() -> None:
    for method in METHODS:
        if method == "hdp-sum":
            continue  # has no h: its sums cost the same either way
        rhos = [
            cost(method, view).zcdp
            for view in ("messages", "sums-h-known", "sums-h-hidden", "final")
        ]
        assert rhos == sorted(rhos, reverse=True)


ONE_SIDE = [view for view in VIEWS if view != "two-servers"]


@pytest.mark.parametrize("view", ONE_SIDE)
def test_methods_without_noise_and_without_messages(view: str) -> None:
    for method in ("mf", "global-mean"):
        assert cost(method, view).status == "no guarantee"
        assert math.isinf(cost(method, view).epsilon_at_delta)
    nothing = cost("user-mean", view, unit="user", weight=[1.0] * 9, neighbours="presence")
    assert (nothing.pure, nothing.zcdp, nothing.epsilon_at_delta, nothing.status) == (
        0,
        0,
        0,
        "proved",
    )


@pytest.mark.parametrize("method", PAPER)
@pytest.mark.parametrize("view", ONE_SIDE)
def test_the_papers_methods_are_never_proved(method: str, view: str) -> None:
    assert cost(method, view).status == "nominal"
    assert cost(method, view, neighbours="presence").status == "no guarantee"
    fixed = cost(method, view, noise="once")
    assert fixed.status == "no guarantee"
    assert math.isinf(fixed.epsilon_at_delta)


def test_noise_for_all_alike() -> None:
    for method in ("dpmf", "pdpmf"):
        small = cost(method, "sums-h-hidden", noise_budget=0.01)
        assert small.pure == pytest.approx(100 * 0.01)
        assert cost(method, "sums-h-hidden", noise_budget=0.01, weight=0.1).pure == small.pure


def test_a_shared_h_is_not_hidden() -> None:
    shared = cost(Setting("hdpmf", h="shared"), "sums-h-hidden")
    assert math.isinf(shared.pure)
    assert shared.zcdp == cost("hdpmf", "sums-h-known").zcdp


@pytest.mark.parametrize("view", ["sums", "sums-h-hidden", "two-servers", "final"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_secure_sums_cost_what_they_say(view: str, epsilon: float) -> None:
    value = cost("hdp-sum", view, epsilon=epsilon, weight=0.5)
    presence = cost("hdp-sum", view, epsilon=epsilon, weight=0.5, neighbours="presence")
    assert value.status == presence.status == "proved"
    assert value.pure == pytest.approx(0.5 * epsilon)
    assert presence.pure == pytest.approx(0.75 * 0.5 * epsilon)
    assert cost("hdp-sum", "messages").status == "no guarantee"


def test_one_bit_per_rating() -> None:
    for view in ONE_SIDE:
        assert cost("hdp-bit", view, weight=0.25, epsilon=2.0).pure == pytest.approx(0.5)
    assert cost("hdp-bit", neighbours="presence").status == "no guarantee"


def test_weights_below_the_grid_send_nothing() -> None:
    for method in ("hdp-sum", "hdp-bit"):
        assert cost(method, "sums", weight=0.015).pure == 0.0
        assert cost(method, "sums", weight=0.3).pure == pytest.approx(19 / 64)


def test_groups_of_ratings() -> None:
    weights = [0.25, 0.5, 1.0]
    for method, view in (("hdp-sum", "sums"), ("hdp-bit", "messages"), ("hdpmf", "sums-h-hidden")):
        rounds = 100 if method == "hdpmf" else 1
        found = cost(method, view, unit="user", weight=weights)
        assert found.pure == pytest.approx(1.75 * rounds)
    many = cost("hdp-sum", "sums", unit="user", weight=[0.5] * 100)
    assert many.epsilon_at_delta < many.pure / 1.5


def test_costs_in_words_and_as_json() -> None:
    assert (
        str(cost("hdpmf", "messages", n_raters=20))
        == "no finite pure epsilon; (526, 1e-05) (nominal)"
    )
    assert str(cost("hdp-sum", "sums")) == "epsilon 1 (proved)"
    assert str(cost("hdpmf", "sums-h-hidden")) == "epsilon 100, or (18.6, 1e-05) (nominal)"
    assert str(cost("mf")) == "no finite epsilon (no guarantee)"
    fields = cost("mf").fields()
    assert fields["pure_epsilon"] is fields["epsilon_at_delta"] is fields["zcdp_rho"] is None
