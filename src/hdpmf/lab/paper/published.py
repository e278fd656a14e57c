"""The paper's published numbers, the order of methods that it states, and how ours compare."""

import itertools
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from hdpmf.common.privacy import PrivacySpec
from hdpmf.lab.experiments import Cell, compare
from hdpmf.lab.experiments.summary import paired_test
from hdpmf.lab.report.content import METRIC_LABELS, Content
from hdpmf.models.result_tables import PairTest

Verdict = Literal["reproduced", "close", "different", "not comparable"]

REPRODUCED = 0.05

CLOSE = 0.10
"""Relative differences up to which a number counts as reproduced, or as close."""


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of Table III.

    Attributes:
        mean: Mean over the paper's five evaluations.
        stars: Confidence that HDPMF beats PDPMF: 3 for 99 %, 2 for 95 %, 1 for 90 %.
        comparable: False if ours is measured on other data (the Yelp sample).
    """

    mean: float
    std: float
    stars: int = 0
    reference: str = ""
    comparable: bool = True


@cache
def _table(name: str) -> Any:
    text = files("hdpmf.lab.paper").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[name]


def table1() -> dict[str, dict[str, Any]]:
    """Return the statistics of the data sets, as printed, and their ``slips``, by data set."""
    return {row["dataset"]: {"slips": ()} | row for row in _table("table1")["rows"]}


def table2() -> dict[str, float]:
    """Return the default privacy specification, as printed, by the paper's names."""
    return msgspec.convert(_table("table2")["values"], dict[str, float])


@cache
def table3(dataset: str, method: str, factors: int, metric: str) -> Published | None:
    """Return a number of Table III; None if the paper has none.

    ``yelp-sample`` gives the paper's Yelp, marked as not comparable.
    """
    table = _table("table3")
    wanted = "yelp" if dataset == "yelp-sample" else dataset
    for row in table["rows"]:
        if (row["dataset"], row["method"]) == (wanted, method) and f"{metric}_{factors}" in row:
            number = msgspec.convert(row[f"{metric}_{factors}"], Published)
            return msgspec.structs.replace(
                number, reference=table["reference"], comparable=dataset == wanted
            )
    return None


def verdict(ours: float, published: Published) -> Verdict:
    """Compare a mean of ours: reproduced within the paper's deviation or 5 %, close within 10 %."""
    if not published.comparable:
        return "not comparable"
    difference = abs(ours - published.mean)
    if math.isnan(difference):
        return "different"
    if difference <= published.std or difference <= REPRODUCED * published.mean:
        return "reproduced"
    return "close" if difference <= CLOSE * published.mean else "different"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of Table II.

    Attributes:
        side: ``user`` or ``item``.
        group: ``conservative``, ``moderate`` or ``liberal``.
        ratio_name: The paper's name for the share.
        weight_name: The paper's name for the range of weights.
        high: Weights are below this, or all equal to ``low``.
    """

    side: str
    group: str
    ratio_name: str
    ratio: float
    weight_name: str
    low: float
    high: float


def privacy_groups() -> list[GroupRow]:
    """Return the rows of Table II, users before items."""
    spec = PrivacySpec()
    rows = []
    for side, letter, groups in (("user", "u", spec.user_groups), ("item", "i", spec.item_groups)):
        shares = (f"f_{letter}c", f"f_{letter}m", f"1 - f_{letter}c - f_{letter}m")
        low, middle, high = (f"epsilon_{letter}{level}" for level in "cml")
        weights = (f"[{low}, {middle})", f"[{middle}, {high})", high)
        for group, share, weight in zip(groups, shares, weights, strict=True):
            ratio = round(group.ratio, 10)
            rows.append(GroupRow(side, group.name, share, ratio, weight, group.low, group.high))
    return rows


@dataclass(frozen=True, slots=True)
class Reversal:
    """Two methods that the paper has in one order and we have in the other.

    Attributes:
        better: The method with the smaller error here.
        worse: The method with the smaller error in the paper.
    """

    metric: str
    better: Cell
    worse: Cell
    test: PairTest


@dataclass(frozen=True, slots=True)
class Duel:
    """HDPMF against PDPMF in one place of Table III, theirs and ours.

    Attributes:
        gain: Relative error saved by HDPMF here; negative if PDPMF is better.
        paper_gain: The same in the paper; None if it has no number.
        comparable: True if the paper's number is for the same data.
    """

    metric: str
    first: Cell
    second: Cell
    gain: float
    paper_gain: float | None
    paper_stars: int
    comparable: bool
    test: PairTest


def paper_pairs(content: Content) -> Iterator[tuple[str, Cell, Cell]]:
    """Yield the pairs of Table III that the paper orders: measure, the better one, the other."""
    cells = [cell for cell in content.cells.get("table3", ()) if cell.status == "done"]
    cases = dict.fromkeys((cell.dataset, cell.factors) for cell in cells)
    for metric, (dataset, factors) in itertools.product(METRIC_LABELS, cases):
        here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, factors)]
        known = [
            (number.mean, cell)
            for cell in here
            if (number := table3(dataset, cell.method, factors, metric)) is not None
        ]
        known.sort(key=lambda pair: pair[0])
        for (_, ahead), (_, behind) in itertools.combinations(known, 2):
            yield metric, ahead, behind


def reversals(content: Content) -> list[Reversal]:
    """Return the pairs of Table III whose order is not the paper's."""
    turned = []
    for metric, ahead, behind in paper_pairs(content):
        if behind.metrics[metric].mean < ahead.metrics[metric].mean:
            test = paired_test(behind.metrics[metric].values, ahead.metrics[metric].values)
            turned.append(Reversal(metric, behind, ahead, test))
    return turned


def duels(cells: list[Cell]) -> dict[tuple[str, str, int], Duel]:
    """Compare HDPMF with PDPMF everywhere in a table, by measure, data set and K."""
    by_position = {(cell.method, cell.dataset, cell.factors): cell for cell in cells}
    tests = {}
    for metric in METRIC_LABELS:
        for (dataset, factors, _), test in compare(cells, "hdpmf", "pdpmf", metric).items():
            first = by_position["hdpmf", dataset, factors]
            second = by_position["pdpmf", dataset, factors]
            paper = table3(dataset, "hdpmf", factors, metric)
            rival = table3(dataset, "pdpmf", factors, metric)
            tests[metric, dataset, factors] = Duel(
                metric=metric,
                first=first,
                second=second,
                gain=1 - first.metrics[metric].mean / second.metrics[metric].mean,
                paper_gain=None if paper is None or rival is None else 1 - paper.mean / rival.mean,
                paper_stars=0 if paper is None else paper.stars,
                comparable=paper is not None and paper.comparable,
                test=test,
            )
    return tests
