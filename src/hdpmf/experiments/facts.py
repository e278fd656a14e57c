"""What is written down about a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdpmf.experiments.execute import load_data
from hdpmf.experiments.expand import data_of
from hdpmf.experiments.spec import Experiment
from hdpmf.experiments.summary import dataset_title
from hdpmf.privacy import PrivacySpec


def dataset_facts(experiment: Experiment, name: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """Its counts, and what the default privacy wishes come to on this data set (seed 0).

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
