"""The question to an accountant: a method's setting, an observer, the difference to hide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import method_named
from hdpmf.errors import ConfigError, PrivacyError

View = Literal["messages", "sums-h-known", "sums-h-hidden", "two-servers", "final"]
"""What the observer sees: every message of every device; only their sums, as the recommender (which
draws h itself) or as somebody who does not know h; sums that two servers made, as the recommender
together with one of them; or nothing but the model at the end."""

Unit = Literal["rating", "user"]
"""The difference of two neighbours: a rating, or all ratings of a user."""

Neighbours = Literal["value", "presence", "exchange"]
"""How it differs: in the ratings' values; in whether the ratings are there at all; or a user has
another history, of the same weights."""

VIEWS: tuple[View, ...] = get_args(View)

STARS = RatingScale(1.0, 5.0, 1.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """A method as it is run. Everything here is public.

    Attributes:
        epsilon: The largest budget of a rating.
        noise: ``epoch`` (fresh in every round) or ``once``.
        h: The recommender's draws per ``item`` or ``shared`` by all items.
        noise_budget: The budget that sets the noise of ``dpmf`` and ``pdpmf``; None for the most it
            can be, epsilon.
        max_ratings: Of ``hdp-bit``: most ratings of a person that are sent; of ``hdp-sum``: as much
            weight as so many ratings of weight 1 have; None for all.
        coding: Of ``hdp-sum`` and ``hdp-bit``.
        implicit: Whether it is run on choices without ratings.
        person_delta: Of ``hdp-pairs``, whose epsilon is a whole person's at this delta.
        cap: Of ``hdp-pairs``: the largest share of one rating in a row; ``auto`` for the usual one.
    """

    method: str
    epsilon: float = 1.0
    factors: int = 10
    rounds: int = 100
    noise: str = "epoch"
    h: str = "item"
    noise_budget: float | None = None
    coding: str = "auto"
    scale: RatingScale = STARS
    max_ratings: int | None = None
    implicit: bool = False
    person_delta: float = 1e-5
    cap: float | str = "auto"

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise_budget"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise PrivacyError(f"{name} must be a positive number, not {value}")
        for name in ("factors", "rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name, allowed in (("noise", ("epoch", "once")), ("h", ("item", "shared"))):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
                )
        if self.max_ratings is not None:
            if "max_ratings" not in method_named(self.method).options:
                raise ConfigError(
                    f"{self.method} sends all ratings; max_ratings is for the one-round designs"
                )
            if self.max_ratings < 1:
                raise ConfigError(f"max_ratings must be at least 1, not {self.max_ratings}")

    def about(self, view: str) -> Neighbours:
        """Return what epsilon is about: presence, where there are no values or none is sent."""
        return "presence" if self.implicit else method_named(self.method).claim(view).about

    @classmethod
    def from_params(cls, method: str, params: Mapping[str, Any]) -> Setting:
        """Make the setting of ``model.get_params()``; parameters without a cost are left out."""
        names = {"epsilon": "epsilon", "n_factors": "factors", "epochs": "rounds", "noise": "noise"}
        names |= {name: name for name in ("coding", "max_ratings", "cap")} | {
            "delta": "person_delta"
        }
        chosen = {ours: params[theirs] for theirs, ours in names.items() if theirs in params}
        h = params.get("h", "auto")
        # Without a choice each solver does what its source does: the published numbers share one h.
        shared = h == "shared" or (h == "auto" and params.get("solver") == "sequential")
        return cls(method, h="shared" if shared else "item", **chosen)


@dataclass(frozen=True, slots=True, repr=False)
class Subject:
    """The ratings in which two neighbours differ.

    Attributes:
        unit: One rating, or a user's.
        neighbours: Whether values differ, presence, or everything.
        raters: How many ratings each one's item has.
    """

    unit: Unit
    neighbours: Neighbours
    weights: tuple[float, ...]
    raters: tuple[int, ...]

    @classmethod
    def of(
        cls,
        unit: str,
        neighbours: str,
        weight: object,
        n_raters: object,
    ) -> Subject:
        """Checked, with one number of raters spread over all ratings."""
        for name, given, allowed in (("unit", unit, Unit), ("neighbours", neighbours, Neighbours)):
            if given not in get_args(allowed):
                raise ConfigError(
                    f"{name} must be one of {', '.join(get_args(allowed))}, not {given!r}"
                )
        weights = np.atleast_1d(np.asarray(weight, np.float64))
        raters = np.broadcast_to(np.asarray(n_raters), weights.shape)
        if weights.ndim != 1 or not len(weights) or not ((weights > 0) & (weights <= 1)).all():
            raise PrivacyError("privacy weights must be numbers in (0, 1]")
        if unit == "rating" and len(weights) != 1:
            raise ConfigError(
                f"one rating has one weight, not {len(weights)}; for more say unit='user'"
            )
        if neighbours == "exchange" and unit != "user":
            raise ConfigError("a whole history is exchanged, of unit='user', not one rating")
        if bool((raters < 1).any()):
            raise ConfigError("an item whose rating is to be hidden has at least 1 rater")
        return cls(
            cast(Unit, unit),
            cast(Neighbours, neighbours),
            tuple(weights.tolist()),
            tuple(raters.astype(int).tolist()),
        )


def view_of(name: str) -> View:
    """A view by its name or by the short name that the audit uses."""
    full = "sums-h-known" if name == "sums" else name
    if full not in VIEWS:
        raise ConfigError(f"view must be one of {', '.join(VIEWS)}, not {name!r}")
    return full
