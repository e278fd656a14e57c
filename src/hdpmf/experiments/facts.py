"""The paper's Tables I and II, computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdpmf.experiments.execute import load_data
from hdpmf.experiments.expand import data_of
from hdpmf.experiments.spec import Experiment
from hdpmf.experiments.summary import dataset_title
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


def dataset_facts(experiment: Experiment, name: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """A row of Table I, and what the default privacy wishes come to on this data set (seed 0).

    Only counts and aggregates of simulated wishes; no rating, no weight of anybody.
    """
    data = data_of(experiment, name)
    path = files.get(data.sha256 or "")
    ratings = load_data(data, None if path is None else str(path))
    weights = PrivacySpec().draw(ratings, rng=0).for_ratings(ratings)
    return {
        "name": name,
        "title": dataset_title(name),
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "density": ratings.density,
        "scale": [ratings.scale.low, ratings.scale.high],
        "mean_weight": float(weights.mean()),
        "min_weight": float(weights.min()),
    }


def table2(spec: PrivacySpec | None = None) -> list[GroupRow]:
    """The paper's Table II from the library's own defaults."""
    spec = PrivacySpec() if spec is None else spec
    rows = []
    for side, letter, groups in (("user", "u", spec.user_groups), ("item", "i", spec.item_groups)):
        ratio_names = (f"f_{letter}c", f"f_{letter}m", f"1 - f_{letter}c - f_{letter}m")
        low, middle, high = (f"epsilon_{letter}{one}" for one in "cml")
        weight_names = (f"[{low}, {middle})", f"[{middle}, {high})", high)
        for group, ratio_name, weight_name in zip(groups, ratio_names, weight_names, strict=True):
            rows.append(
                GroupRow(side, group.name, ratio_name, round(group.ratio, 10), weight_name, group.low, group.high)
            )
    return rows
