"""The paper's Table II, from the library's own defaults."""

from __future__ import annotations

from dataclasses import dataclass

from hdpmf.privacy import PrivacySpec


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of Table II.

    Attributes:
        side: ``user`` or ``item``.
        group: ``conservative``, ``moderate`` or ``liberal``.
        ratio_name: The paper's name for the share.
        ratio: The share.
        weight_name: The paper's name for the range of weights.
        low: Smallest weight.
        high: Weights are below this, or equal to ``low`` where both are the same.
    """

    side: str
    group: str
    ratio_name: str
    ratio: float
    weight_name: str
    low: float
    high: float


def table2(spec: PrivacySpec | None = None) -> list[GroupRow]:
    """The rows, users before items."""
    spec = PrivacySpec() if spec is None else spec
    rows = []
    for side, letter, groups in (("user", "u", spec.user_groups), ("item", "i", spec.item_groups)):
        ratio_names = (f"f_{letter}c", f"f_{letter}m", f"1 - f_{letter}c - f_{letter}m")
        low, middle, high = (f"epsilon_{letter}{level}" for level in "cml")
        weight_names = (f"[{low}, {middle})", f"[{middle}, {high})", high)
        for group, ratio_name, weight_name in zip(groups, ratio_names, weight_names, strict=True):
            rows.append(
                GroupRow(side, group.name, ratio_name, round(group.ratio, 10), weight_name, group.low, group.high)
            )
    return rows
