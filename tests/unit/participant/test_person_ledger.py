"""The person's ledger: sums of squares, limits that hold, and the web app's vectors."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction

import pytest

from hdpmf.common.privacy.accounting.person import gaussian
from hdpmf.errors import PrivacyError
from hdpmf.private.device.ledger import (
    MONTH,
    UNIT,
    WHOLE,
    Cost,
    Limits,
    cost_of,
    matrix_price,
    vector_price,
)
from tests.unit.participant.ledger_cases import (
    FILE,
    PERSON,
    answered,
    drawn_case,
    expected,
    price_of,
    read_by_people,
)

CASES = json.loads(FILE.read_text())["cases"]


def test_the_vectors_of_the_specification_are_what_this_ledger_says() -> None:
    assert len(CASES) == 240
    for case in CASES:
        assert expected(answered(case)) == case["expected"]


def test_the_vectors_have_all_kinds_of_answers() -> None:
    rows = [row for case in CASES for row in case["expected"]["lines"]]
    zeros = [row for row in rows if row["zeros"]]
    assert 300 < len(zeros) < len(rows) - 300
    # The month's limit and the life's both say no to something that the other lets through.
    by_month = by_life = 0
    for case in CASES:
        for limits, count in (
            ({"month": case["limits"]["life"]}, "month"),
            ({"life": 9 * UNIT}, "life"),
        ):
            more = answered(case | {"limits": case["limits"] | limits})
            if [line.zeros for line in more] != [row["zeros"] for row in case["expected"]["lines"]]:
                by_month += count == "month"
                by_life += count == "life"
    assert by_month > 12
    assert by_life > 12


def test_the_vectors_of_persons_are_what_the_accounting_says() -> None:
    cases = json.loads(PERSON.read_text())["cases"]
    assert len(cases) > 150
    for case in cases:
        found = read_by_people(Cost(**case["cost"]))
        for name in ("none", "other"):
            assert found[name].pop("words") == case[name].pop("words")
            assert found[name] == pytest.approx(case[name], rel=1e-9)
    assert sum(case["none"]["epsilon"] == 0 for case in cases) > 10


def test_no_history_spends_more_than_the_limits_by_exact_arithmetic() -> None:
    draw = random.Random(7)
    for _ in range(300):
        case = drawn_case(draw)
        limits, spent = case["limits"], []
        for asked, line in zip(case["asked"], answered(case), strict=True):
            share = Fraction(asked["wish"], WHOLE) ** 2
            exact = price_of(asked).none * share * UNIT
            paid = Fraction(0) if line.zeros else exact
            assert line.cost.none >= paid  # rounded up
            assert line.cost.none - paid < 1
            spent.append((asked["at"], paid))
            assert sum(each for _, each in spent) <= limits["life"]
            if line.zeros:  # a clock that was put back brings old lines into the month again
                continue
            now = asked["at"]
            assert sum(each for at, each in spent if at > now - MONTH) <= limits["month"]


def test_rho_of_both_parts_is_half_the_square_of_mu() -> None:
    # rho = T^2 / (4 s^2) for pairs, T / (2 s^2) for a row: docs/privacy.md
    assert matrix_price(1000, 700, heads=2).none == 2 * Fraction(1000**2, 4 * 700**2)
    assert vector_price(1000, 30, signed=False, entries=9).none == 2 * Fraction(1000, 2 * 30**2)


def test_another_history_costs_twice_as_much_and_signed_rows_four_times() -> None:
    for price, times in (
        (matrix_price(64, 50, heads=3), 2),
        (vector_price(64, 5, signed=False, entries=3), 2),
        (vector_price(64, 5, signed=True, entries=3), 4),
    ):
        assert price.other == times * price.none


def test_the_grain_is_that_of_the_accounting() -> None:
    for deviation in (2, 3, 10, 1000):
        rows = vector_price(1, deviation, signed=False, entries=7)
        assert float(rows.grain) == pytest.approx(gaussian(0.0, [(deviation, 7)]).grain)
        # Noise on the diagonal is less coarse, which is not counted.
        pairs = [(deviation, 6), (deviation * math.sqrt(2), 4)]
        assert matrix_price(1, deviation, heads=4).grain >= gaussian(0.0, pairs).grain


def test_a_wish_counts_by_its_square() -> None:
    price = vector_price(1 << 20, 1 << 10, signed=False, entries=1)
    assert cost_of(price, 500).none == UNIT // 4
    assert cost_of(price, 0).none == 0
    with pytest.raises(PrivacyError, match="thousandths"):
        cost_of(price, WHOLE + 1)


def test_a_month_has_no_more_than_a_life() -> None:
    with pytest.raises(PrivacyError, match="life"):
        Limits(life=1, month=2)
