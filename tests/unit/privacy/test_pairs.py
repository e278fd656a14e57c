"""Sums of pairs: how far one rating moves them, in every regime and with rounding; what that
costs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hdpmf.common.privacy import pairs
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.accounting.accountants import epsilon_from_zcdp
from hdpmf.common.privacy.pairs import (
    LARGEST_BOUND,
    PAIR_DELTA,
    ROW_UNITS,
    moved_at_most,
    pair_rho,
    pair_sigma,
    pair_sums,
    scaled_rows,
)
from hdpmf.errors import PrivacyError

ROWS = st.lists(st.integers(0, 64), min_size=2, max_size=120)


def _moved(row: list[int], place: int, unit: int, bound: int) -> float:
    """How far a rating of so many 64ths at this place moves the sums, in products of weights."""
    without, with_it = np.array([row]), np.array([row])
    without[0, place], with_it[0, place] = 0, unit
    apart = (pair_sums(with_it, bound) - pair_sums(without, bound)).astype(np.float64)
    return float(np.sqrt(apart @ apart)) / ROW_UNITS**2


@given(ROWS, st.data())
@example([64] * 65, None)  # from just as long as the bound to longer
@example([64] * 120, None)  # longer before and after
@example([1] * 120, None)
def test_a_rating_moves_the_sums_by_at_most_its_weight_times_the_bound(row, data):
    bounds = (
        range(1, LARGEST_BOUND + 1) if data is None else (data.draw(st.integers(1, LARGEST_BOUND)),)
    )
    place = 0 if data is None else data.draw(st.integers(0, len(row) - 1))
    units = (1, 13, 64) if data is None else (data.draw(st.integers(1, 64)),)
    for bound in bounds:
        for unit in units:
            assert _moved(row, place, unit, bound) <= moved_at_most(bound, len(row)) * unit / 64


def test_the_bound_is_nearly_reached_so_that_no_noise_is_wasted():
    row = [64] * 65  # without the rating just as long as the bound
    assert _moved(row, 0, 64, 8) > 0.98 * moved_at_most(8, 65)
    assert _moved(row, 0, 1, 8) > 0.97 * moved_at_most(8, 65) / 64


def test_rows_that_are_not_scaled_would_be_noticed(monkeypatch):
    monkeypatch.setattr(pairs, "scaled_rows", lambda units, bound: units * (ROW_UNITS // 64))
    assert _moved([64] * 120, 0, 64, 8) > 1.3 * moved_at_most(8, 120)


@given(ROWS, st.integers(1, LARGEST_BOUND))
def test_no_row_is_longer_than_the_bound_and_short_ones_are_exact(row, bound):
    units = np.array([row])
    scaled = scaled_rows(units, bound)
    length = math.sqrt(sum(value * value for value in scaled[0].tolist())) / ROW_UNITS
    exact = math.sqrt(sum(value * value for value in row)) / 64
    assert length <= bound
    if exact <= bound:
        assert (scaled == units * (ROW_UNITS // 64)).all()
    else:
        assert length == pytest.approx(bound, rel=1e-4)
    # All ratings of one user together.
    sums = pair_sums(units, bound).astype(np.float64)
    assert math.sqrt(sums @ sums) / ROW_UNITS**2 <= bound**2 / math.sqrt(2)


def test_sums_are_exact_whatever_the_blocks(monkeypatch):
    units = np.random.default_rng(0).integers(0, 65, (37, 9))
    rows = scaled_rows(units, 2).astype(object)
    whole = rows.T @ rows
    expected = [whole[low, high] for low in range(9) for high in range(low + 1, 9)]
    assert pair_sums(units, 2).tolist() == expected
    monkeypatch.setattr(pairs, "_BLOCK", 5)
    assert pair_sums(units, 2).tolist() == expected


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_noise_is_that_of_the_stated_epsilon_and_delta(epsilon):
    rho = pair_rho(epsilon)
    assert epsilon_from_zcdp(rho, PAIR_DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_from_zcdp(rho, PAIR_DELTA) <= epsilon
    sigma = pair_sigma(epsilon, 8, 300) / ROW_UNITS**2
    assert (moved_at_most(8, 300) / sigma) ** 2 / 2 <= rho
    assert (moved_at_most(8, 300) / sigma) ** 2 / 2 == pytest.approx(rho, rel=1e-9)
    for weight in (0.9, 0.5, 0.1, 1 / 64):
        assert epsilon_from_zcdp(weight**2 * rho, PAIR_DELTA) <= weight * epsilon


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.03])
def test_the_accountant_never_says_more_than_the_claim(weight):
    presence = cost("hdp-sum-pairs", "sums", weight=weight, neighbours="presence", delta=PAIR_DELTA)
    assert presence.status == "proved"
    assert math.isinf(presence.pure)
    unit = math.floor(64 * weight) / 64
    alone = epsilon_from_zcdp(unit**2 * pair_rho(1.0), PAIR_DELTA)
    assert (
        0.75 * unit
        < presence.epsilon_at_delta
        <= 0.75 * unit + alone + 1e-9
        <= 1.75 * weight + 1e-9
    )
    assert (
        cost("hdp-sum-pairs", "sums", weight=weight).pure
        == cost("hdp-sum", "sums", weight=weight).pure
    )


def test_a_persons_pairs_are_bounded_by_a_row():
    def rho(method: str, n: int) -> float:
        return cost(method, "sums", unit="user", weight=[1.0] * n, neighbours="presence").zcdp

    few = rho("hdp-sum-pairs", 3) - rho("hdp-sum", 3)
    many = rho("hdp-sum-pairs", 500) - rho("hdp-sum", 500)
    assert few == pytest.approx(9 * pair_rho(1.0))
    assert many == pytest.approx(LARGEST_BOUND**2 / 2 * pair_rho(1.0))


@pytest.mark.parametrize(
    ("epsilon", "bound", "heads"), [(0.0, 8, 300), (math.inf, 8, 300), (1.0, 9, 9), (1.0, 8, 1)]
)
def test_what_has_no_noise_is_refused(epsilon, bound, heads):
    with pytest.raises(PrivacyError):
        pair_sigma(epsilon, bound, heads)
