"""The public rating scale: what a rating may be, known before any rating is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import RatingsError


@dataclass(frozen=True, slots=True)
class RatingScale:
    """The range that ratings live in.

    The scale is a public fact of the service ("one to five stars"). It is never read off the
    ratings: their smallest and largest value would leak something about the people who gave them.

    Attributes:
        low: The smallest rating that can be given.
        high: The largest rating that can be given.
        step: The distance between neighbouring ratings, or None where any number in between will
            do.
    """

    low: float = 1.0
    high: float = 5.0
    step: float | None = None

    def __post_init__(self) -> None:
        try:
            low, high = float(self.low), float(self.high)
            step = None if self.step is None else float(self.step)
        except (TypeError, ValueError) as error:
            raise RatingsError(
                "a rating scale needs numbers: give it as scale=(low, high)"
            ) from error
        # float32 is how ratings are stored, so a scale it cannot tell apart is no scale.
        with np.errstate(over="ignore"):
            distinct = np.float32(low) < np.float32(high)
            finite = bool(np.isfinite(np.float32(low)) and np.isfinite(np.float32(high)))
        if not (finite and distinct):
            raise RatingsError(
                f"a rating scale must be finite and go from low to high; got ({low:g}, {high:g})"
            )
        if step is not None and not (math.isfinite(step) and 0 < step <= high - low):
            raise RatingsError(
                f"the step of a rating scale must be above 0 and fit the scale; got {step:g}"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "step", step)

    @classmethod
    def of(cls, value: ScaleLike | None) -> RatingScale:
        """A scale from ``(low, high)``, ``(low, high, step)``, a scale or None (1 to 5)."""
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        if isinstance(value, (tuple, list)) and len(value) in (2, 3):
            return cls(*value)
        raise RatingsError("a rating scale is given as scale=(low, high), for example scale=(1, 5)")

    @property
    def width(self) -> float:
        """The largest rating minus the smallest."""
        return self.high - self.low

    @property
    def middle(self) -> float:
        """The middle of the scale: the guess that needs no data."""
        return (self.low + self.high) / 2

    def clip(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Bring numbers into the scale."""
        clipped: NDArray[np.floating] = np.clip(values, self.low, self.high)
        return clipped

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


ScaleLike = RatingScale | tuple[float, float] | tuple[float, float, float]

IMPLICIT_SCALE = RatingScale(0.0, 1.0)
"""Of implicit feedback, where every value is 1: somebody chose something."""
