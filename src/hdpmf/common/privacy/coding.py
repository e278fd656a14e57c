"""Coding of ratings as whole numbers before they are sent, and the privacy cost of those.

The one-round designs send integers only: a weight ``a = floor(64 W)`` and a *coded* rating, a
public curve of the rating's place on its public scale. How far one rating can move an entry follows
from the two tables below, so the noise, the guarantee and the tests all read it from here. The
proof is in ``proofs/coding.md``.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.errors import ConfigError, PrivacyError, RatingsError

WEIGHT_UNITS = 64
"""A weight is sent as a whole number of 1/64ths, rounded down; below 1/64 nothing is sent."""

MEAN_SHARE = Fraction(1, 50)
"""The part of epsilon that is spent on the mean of all ratings."""

WEIGHT_SCALE = 4
"""Scale of the noise on a sum of weights, over epsilon: presence costs W epsilon / 4 there."""

PRESENCE_SHARE = 0.75
"""What presence costs of W epsilon in one round of sums; of choices it all goes into weights."""

UNSTATED_LEVELS = 1000
"""Steps of a scale that states none."""

LINEAR_FROM = 4.0
"""From this epsilon on, ``auto`` is linear; below, a soft threshold tells items apart better."""

_SPREAD = 1.1
"""How far ratings of one mean lie apart, in stars (ML-100K 1.13, ML-1M 1.12, Douban .93, Yelp 1.17
on training parts)."""

_KNOTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """A public curve from the place on the scale (0 to 1) to [0, 1], linear between five places.

    Attributes:
        heights: Its values at 0, 1/4, 1/2, 3/4 and 1: for one to five stars, one per star.
        slope: How much an item's mean of the curve moves per star of its mean rating.
        within: Variance of the curve among the ratings of one item.
        jumps: Whether it is a step (at the fourth place) instead of linear in between.
    """

    heights: tuple[float, float, float, float, float]
    slope: float
    within: float
    jumps: bool = False

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The curve at some places."""
        if self.jumps:
            return np.asarray(positions >= _KNOTS[3] - 1e-9, np.float64)
        return np.asarray(np.interp(positions, _KNOTS, self.heights))


CURVES = {
    "soft": Curve((0.0, 0.0, 0.3, 0.8, 1.0), 0.326, 0.107),
    "threshold": Curve((0.0, 0.0, 0.0, 1.0, 1.0), 0.399, 0.211, jumps=True),
    "linear": Curve((0.0, 0.25, 0.5, 0.75, 1.0), 0.25, 0.061),
}
"""Slopes and variances are constants of star ratings in general, not of the data at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Coding:
    """A curve on one scale, as whole numbers.

    Attributes:
        name: Of the curve.
        entries: The centred whole number for each level of the scale, from low to high.
        unit: What 1 stands for, on the curve's own range of 1.
    """

    name: str
    scale: RatingScale
    entries: np.ndarray
    unit: float

    @property
    def curve(self) -> Curve:
        """The curve itself."""
        return CURVES[self.name]

    @property
    def value_step(self) -> int:
        """The most that one weight unit can move a sum of entries by another value."""
        return int(self.entries.max() - self.entries.min())

    @property
    def presence_step(self) -> int:
        """The most that it can move the sum by being there or not."""
        return int(np.abs(self.entries).max())

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The entry of each rating."""
        return np.asarray(self.entries[levels_of(values, self.scale)])


def n_levels(scale: RatingScale) -> int:
    """Into how many steps the scale is cut."""
    if scale.step is None:
        return UNSTATED_LEVELS
    levels = round(scale.width / scale.step)
    if not math.isclose(levels * scale.step, scale.width, rel_tol=1e-6):
        raise ConfigError(
            f"steps of {scale.step:g} do not fit the scale {scale}; give a step that divides it"
        )
    return levels


def levels_of(values: np.ndarray, scale: RatingScale) -> np.ndarray:
    """The level of each rating, from 0; refuse ratings off the scale."""
    levels = n_levels(scale)
    positions = (values - np.float32(scale.low)) * np.float32(levels / scale.width)
    if not bool(((positions >= -1e-3) & (positions <= levels * (1 + 1e-6) + 1e-3)).all()):
        raise RatingsError(
            f"a rating is off the public scale {scale}; nothing was sent. Correct the rating"
        )
    return np.asarray(np.clip(np.rint(positions), 0, levels), np.intp)


# Devices and audits of thousands of runs ask for the same few again and again.
@lru_cache(maxsize=32)
def make_coding(name: str, scale: RatingScale, epsilon: float) -> Coding:
    """The coding of that name (``auto``: by epsilon) on a scale."""
    if name == "auto":
        name = "linear" if epsilon >= LINEAR_FROM else "soft"
    if name not in CURVES:
        raise ConfigError(f"coding must be auto, {', '.join(CURVES)}, not {name!r}")
    levels = n_levels(scale)
    heights = CURVES[name].at(np.arange(levels + 1) / levels)
    steps = levels if name == "linear" else _units(heights, scale)
    return Coding(name, scale, *_centred(heights, steps))


def make_ruler(scale: RatingScale) -> Coding:
    """The rating itself as whole numbers, for sums that estimate means."""
    return make_coding("linear", scale, LINEAR_FROM)


def _units(heights: np.ndarray, scale: RatingScale) -> int:
    """The coarsest grid on which the curve is exact; tenths for a scale that states no step."""
    if scale.step is None:
        return 10
    exact = (
        units for units in (10, 20, 40) if np.allclose(heights * units, np.rint(heights * units))
    )
    return next(exact, 100)


def _centred(heights: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    whole = np.rint(heights * steps).astype(np.int64)
    # The middle of an odd number of steps is not whole: count in halves there.
    entries, unit = (
        (whole - steps // 2, 1 / steps) if steps % 2 == 0 else (2 * whole - steps, 1 / (2 * steps))
    )
    entries.flags.writeable = False
    return entries, unit


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of entry of the sums.

    Attributes:
        value_step: The most that a rating of one weight unit moves it by changing its value.
        presence_step: The most that it moves it by being there or not.
        scale: Of the discrete Laplace noise on the sum, in the entry's units.
    """

    value_step: int
    presence_step: int
    scale: Fraction

    @property
    def value_cost(self) -> Fraction:
        """Epsilon per unit of W for a change of value."""
        return WEIGHT_UNITS * self.value_step / self.scale

    @property
    def presence_cost(self) -> Fraction:
        """Epsilon per unit of W for being there or not."""
        return WEIGHT_UNITS * self.presence_step / self.scale


@dataclass(frozen=True, slots=True)
class Channels:
    """The releases of one round of sums, and their cost for a rating.

    Attributes:
        score: Per item, the weighted coded ratings.
        weight: Per item, the weights.
        total: Once, the weighted ratings themselves.
    """

    score: Channel
    weight: Channel
    total: Channel

    @property
    def value_cost(self) -> Fraction:
        """Epsilon per unit of W against a change of a rating's value; equals epsilon."""
        return self.score.value_cost + self.weight.value_cost + self.total.value_cost

    @property
    def presence_cost(self) -> Fraction:
        """Epsilon per unit of W against presence: 0.75 epsilon."""
        return self.score.presence_cost + self.weight.presence_cost + self.total.presence_cost


@lru_cache(maxsize=32)
def sum_channels(coding: Coding, epsilon: float) -> Channels:
    """The entries of the sums and their noise, in exact fractions."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError(f"epsilon must be a positive number, not {epsilon}")
    budget = Fraction(epsilon)
    mean_budget = budget * MEAN_SHARE
    return Channels(
        score=_channel(coding, budget - mean_budget),
        weight=Channel(0, 1, Fraction(WEIGHT_UNITS * WEIGHT_SCALE) / budget),
        total=_channel(make_ruler(coding.scale), mean_budget),
    )


def _channel(coding: Coding, budget: Fraction) -> Channel:
    return Channel(
        coding.value_step, coding.presence_step, WEIGHT_UNITS * coding.value_step / budget
    )


def weight_units(weights: np.ndarray) -> np.ndarray:
    """Weights in whole 64ths, rounded down: never more than the user allows."""
    return np.floor(np.asarray(weights, np.float64) * WEIGHT_UNITS).astype(np.int64)


def bit_probability(
    entries: np.ndarray, units: np.ndarray, coding: Coding, epsilon: float
) -> np.ndarray:
    """Design L: the probability of sending a plus, for ratings with these entries and weights.

    With e = epsilon a/64 it is 1/2 + f tanh(e/2) for the centred coded rating f in [-1/2, 1/2], so
    both answers have probabilities between 1/(1 + exp(e)) and exp(e)/(1 + exp(e)) whatever the
    rating.
    """
    centred = entries / coding.value_step
    return np.asarray(0.5 + centred * np.tanh(0.5 * epsilon * units / WEIGHT_UNITS))


RULER_SHARE = 0.25
"""The part of all bits that are about the rating itself, whatever the coding: they tell the mean of
any data, and how the coding's curve moves with it."""


def typical_curve(coding: Coding) -> tuple[np.ndarray, np.ndarray]:
    """Return means of ratings, in stars, and what the curve's centred mean is at each of them.

    Ratings of a mean are taken to spread around it by `_SPREAD` stars, rounded to levels.
    """
    from scipy.special import ndtr

    levels = n_levels(coding.scale)
    stars = 1.0 + 4.0 * np.arange(levels + 1) / levels
    centre = np.linspace(-1.0, 7.0, 161)[:, None]
    below = ndtr(((stars[:-1] + stars[1:]) / 2.0 - centre) / _SPREAD)
    shares = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return shares @ stars, shares @ (coding.entries / coding.value_step)


def bit_height(units: np.ndarray, epsilon: float) -> np.ndarray:
    """Design L: the B for which ±B is an unbiased estimate of the centred coded rating."""
    return np.asarray(0.5 / np.tanh(0.5 * epsilon * units / WEIGHT_UNITS))
