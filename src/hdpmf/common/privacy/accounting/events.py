"""Privacy events: immutable values that say what was released.

Every size is the change that one neighbour can make, in units of the noise: the events know nothing
about ratings, weights or epsilon. Two neighbours differ in what ``methods`` was asked about (a
rating's value, its presence, ...).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hdpmf.errors import PrivacyError


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that an observer gets to see, or that keeps it from seeing."""


@dataclass(frozen=True, slots=True)
class NothingSent(Event):
    """Nothing that depends on the ratings leaves the device."""


@dataclass(frozen=True, slots=True)
class Unprotected(Event):
    """Something goes out that a neighbour changes and no noise covers."""

    why: str


@dataclass(frozen=True, slots=True)
class LaplaceSum(Event):
    """Numbers with independent Laplace noise, each moved by the same amount.

    An equal move of every coordinate is the worst way to spread a given Euclidean distance
    (``proofs/theorem-2.md``).

    Attributes:
        shift: How far one number moves, in scales of its noise.
    """

    shift: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check("shift", self.shift)
        _check_count("coordinates", self.coordinates)


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceRelease(Event):
    """Whole numbers with discrete Laplace noise.

    Attributes:
        shift: How far they move together (in the sum of sizes), in scales of their noise.
        scale: Of the noise, where only one number moves, by ``shift * scale``; None where several
            may, or the scale is not known: then nothing but the pure epsilon is counted with.
    """

    shift: float
    scale: float | None = None

    def __post_init__(self) -> None:
        _check("shift", self.shift)
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale > 0):
            raise PrivacyError(f"an event's scale must be a positive number, not {self.scale}")


@dataclass(frozen=True, slots=True)
class GaussianGivenH(Event):
    """Vectors with Gaussian noise of known variance: the paper's noise to whoever knows h.

    Attributes:
        distance: How far they move together, in standard deviations.
    """

    distance: float

    def __post_init__(self) -> None:
        _check("distance", self.distance)


@dataclass(frozen=True, slots=True)
class RandomizedBit(Event):
    """One bit whose probabilities differ by at most a factor exp(budget)."""

    budget: float

    def __post_init__(self) -> None:
        _check("budget", self.budget)


@dataclass(frozen=True, slots=True)
class NoiseFixedOverRounds(Event):
    """The same noise in every round: the difference of two rounds has none."""

    event: Event
    rounds: int

    def __post_init__(self) -> None:
        _check_count("rounds", self.rounds)


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """A release repeated with fresh noise; later ones may depend on earlier ones."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_count("times", self.times)


@dataclass(frozen=True, slots=True)
class Composed(Event):
    """Several releases with independent noise; later ones may depend on earlier ones."""

    events: tuple[Event, ...]


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise PrivacyError(f"an event's {name} must be a finite number from 0, not {value}")


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise PrivacyError(f"an event's {name} must be at least 1, not {value}")
