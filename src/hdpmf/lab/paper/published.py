"""The paper's published numbers, its Table II, and how our numbers compare."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from hdpmf.common.privacy import PrivacySpec

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


class PublishedDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of Table I, with its errors."""

    dataset: str
    users: int
    items: int
    ratings: int
    density: float
    slips: tuple[str, ...] = ()


@cache
def _table(name: str) -> Any:
    text = files("hdpmf.lab.paper").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[name]


@cache
def table1() -> tuple[PublishedDataset, ...]:
    """Return the statistics of the data sets, as printed."""
    return msgspec.convert(_table("table1")["rows"], tuple[PublishedDataset, ...])


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


def privacy_groups(spec: PrivacySpec | None = None) -> list[GroupRow]:
    """Return the rows of Table II, users before items."""
    spec = PrivacySpec() if spec is None else spec
    rows = []
    for side, letter, groups in (("user", "u", spec.user_groups), ("item", "i", spec.item_groups)):
        ratio_names = (f"f_{letter}c", f"f_{letter}m", f"1 - f_{letter}c - f_{letter}m")
        low, middle, high = (f"epsilon_{letter}{level}" for level in "cml")
        weight_names = (f"[{low}, {middle})", f"[{middle}, {high})", high)
        for group, ratio_name, weight_name in zip(groups, ratio_names, weight_names, strict=True):
            rows.append(
                GroupRow(
                    side,
                    group.name,
                    ratio_name,
                    round(group.ratio, 10),
                    weight_name,
                    group.low,
                    group.high,
                )
            )
    return rows
