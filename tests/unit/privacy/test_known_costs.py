"""Known answers of the accountants: numbers that pages and ledgers quote do not change unnoticed.

After a change that is meant: ``PYTHONPATH=src python tests/unit/privacy/test_known_costs.py``
writes them anew.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.accounting import Setting, cost
from hdpmf.common.privacy.accounting.accountants import (
    LaplaceSum,
    PureRelease,
    _counted,
    _renyi_curve,
)
from hdpmf.common.privacy.accounting.costs import example_people, honest_line, noise_budget, number
from hdpmf.common.privacy.accounting.rules import inverse_sum_median

FILE = Path(__file__).with_name("known_costs.json")
METHODS = (
    "mf",
    "dpmf",
    "pdpmf",
    "hdpmf",
    "hdpmf-w",
    "hdpmf-paid",
    "hdp-sum",
    "hdp-bit",
    "user-mean",
)
PAPER: tuple[dict[str, Any], ...] = (
    {"epsilon": 0.3, "factors": 4, "rounds": 7},
    {"noise": "once"},
    {"h": "shared", "noise_budget": 0.4},
)
ONE_ROUND: tuple[dict[str, Any], ...] = ({"max_ratings": 2},)
SUBJECTS: tuple[dict[str, Any], ...] = (
    {"weight": 0.37, "n_raters": 20},
    {"unit": "user", "weight": [0.9, 0.37, 0.25, 0.111], "n_raters": [3, 20, 9, 50]},
)


def _short(number: float | None, digits: int = 8) -> float | None:
    return None if number is None or not math.isfinite(number) else float(f"{number:.{digits}g}")


def _numbers() -> Iterator[tuple[str, list[Any]]]:
    for method, view in itertools.product(
        METHODS, ("messages", "sums-h-known", "sums-h-hidden", "final")
    ):
        more = {
            "hdp-sum": ONE_ROUND,
            "hdp-bit": ({"max_ratings": 2},),
            "mf": (),
            "user-mean": (),
        }.get(method, PAPER)
        asked = [({}, subject) for subject in SUBJECTS] + [
            (setting, SUBJECTS[len(setting) % 2]) for setting in more
        ]
        for (setting, subject), neighbours in itertools.product(asked, ("value", "presence")):
            found = cost(Setting(method, **setting), view, neighbours=neighbours, **subject)
            numbers = (found.pure, found.zcdp, found.epsilon_at_delta, found.guess)
            words = f"{method} {view} {neighbours} {subject.get('unit', 'rating')} {setting}"
            yield words, [_short(number) for number in numbers] + [found.status]
    for order, shift in itertools.product((1.01, 2.0, 30.0), (0.0, 0.1, 3.0)):
        curves = [
            _renyi_curve(_counted(event), np.array([order]))
            for event in (LaplaceSum(shift, 3), PureRelease(shift))
        ]
        yield f"renyi {order} {shift}", [_short(float(curve[0])) for curve in curves]
    yield "draws", [_short(inverse_sum_median(n), 5) for n in (1, 10, 1000)]
    spec = PrivacySpec()
    yield "people", [_short(person.weight) for person in example_people(spec)]
    yield (
        "budgets",
        [
            _short(noise_budget(method, spec, 0.7, threshold))
            for method in ("dpmf", "pdpmf", "hdpmf")
            for threshold in ("mean", "min", "max", 0.2)
        ],
    )


def test_the_accountants_say_what_they_said() -> None:
    known, found = json.loads(FILE.read_text()), dict(_numbers())
    assert found.keys() == known.keys()
    for name, numbers in found.items():
        for value, before in zip(numbers, known[name], strict=True):
            assert value == before or value == pytest.approx(before, rel=1e-7, abs=1e-12), name


def test_whom_an_honest_line_is_about() -> None:
    """The noise of DPMF and PDPMF is set by a budget that may not be known; that of the others
    by epsilon.
    """
    unknown = "noise set by a budget of 0.7 (less where it is set by less)"
    for method, budget, whose in (
        ("hdpmf", None, "a rating of weight 1"),
        ("hdpmf", 0.4, "a rating of weight 1"),
        ("dpmf", None, unknown),
        ("pdpmf", None, unknown),
        ("dpmf", 0.4, "a rating of weight 1"),
    ):
        assert f"; both for {whose}, and" in honest_line(
            Setting(method, epsilon=0.7, noise_budget=budget)
        )
    assert "an item with 20 raters" in honest_line(Setting("hdpmf"))
    assert honest_line(Setting("hdpmf", noise="once")).startswith("no guarantee: ")


def test_costs_in_words() -> None:
    def words(pure: float, at_delta: float) -> tuple[str, str]:
        found = replace(cost("hdp-sum", "sums"), pure=pure)
        vars(found)["epsilon_at_delta"] = at_delta
        return found.in_numbers(), found.briefly()

    assert words(math.inf, math.inf) == ("no finite epsilon", "unbounded")
    assert words(math.inf, 2.0) == ("no finite pure epsilon; (2, 1e-05)", "2*")
    assert words(10.0, 9.5) == ("epsilon 10", "10")
    assert words(10.0, 9.49) == ("epsilon 10, or (9.49, 1e-05)", "9.49*")
    assert str(cost("hdp-sum", "sums")).endswith("(proved)")
    assert [number(value) for value in (0.12345, 1.0, 99.94, 100.0, 12345.0, math.inf)] == [
        "0.124", "1", "100", "100", "12,345", "infinite",
    ]  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(
        "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in _numbers()) + "\n}\n"
    )
