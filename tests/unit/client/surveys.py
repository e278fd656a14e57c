"""A small world, and surveys of it."""

from __future__ import annotations

from typing import Any

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import Survey

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1500, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)


def survey_for(ratings: Ratings = WORLD, **changes: Any) -> Survey:
    """A survey of all users of these ratings by the design A."""
    scale = ratings.scale
    fields: dict[str, Any] = {
        "design": "A",
        "coding": "soft",
        "epsilon": 1.0,
        "n_items": ratings.n_items,
        "catalogue": "c",
        "contributors": ratings.n_users,
        "scale_low": scale.low,
        "scale_high": scale.high,
        "scale_step": scale.step,
    }
    return Survey(**(fields | changes))
