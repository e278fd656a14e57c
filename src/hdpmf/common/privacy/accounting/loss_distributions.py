"""Privacy loss distributions: a proved upper bound on the delta of many releases together.

For neighbours with outcome probabilities P and Q, the loss of an outcome is ln(P/Q), and delta at
epsilon is the sum of P (1 - exp(epsilon - loss)) over outcomes with a larger loss. Losses of
independent releases add up, so their distributions are convolved. Every step errs upwards
(``proofs/composition.md``):

- *Grid.* A loss between two grid points is split between them so that its masses under P and under
  Q are kept (connect-the-dots: Doroshenko et al. 2022). Merging the two again gives the release
  itself, so the release is post-processing of what is counted.
- *Window.* The convolution is circular, on a window of the grid. Mass that wraps around is counted
  twice at worst: where it lands, and by a Chernoff bound for what lay above the window.
- *Arithmetic.* The error of the transforms is bounded (Higham 2002, theorem 24.2) and added.

Distributions are tilted by exp(tilt * loss) before they are transformed, so that these errors are
small relative to the delta that is looked for, not to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hdpmf.common.privacy.accounting.events import (
    DiscreteLaplaceRelease,
    Event,
    LaplaceSum,
    RandomizedBit,
)
from hdpmf.errors import UnsupportedEventError

_FINENESS = 2e-4  # how much of epsilon the grid may cost, about
_FEWEST_POINTS, _MOST_POINTS = 2**12, 2**20
_TILT_FOR = math.log(1e5)  # the tilt is the best one for a delta of 1e-5,
_LARGEST_TILT = 16.0  # where it is no larger
_DEVIATIONS = 7.0  # half of the window, in standard deviations of the tilted distribution
_RANGE = 500.0  # of exponents: beyond it exp() would leave the floating-point numbers
_ROUGH_CELLS = 8
_UNIT = 2.0**-53
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class _Losses:
    """A loss distribution on the grid points ``first``, ``first + 1``, ... times ``width``."""

    first: int
    masses: np.ndarray
    width: float

    @property
    def losses(self) -> np.ndarray:
        return (self.first + np.arange(len(self.masses))) * self.width

    @property
    def last(self) -> int:
        return self.first + len(self.masses) - 1


@dataclass(frozen=True, slots=True, repr=False)
class DeltaCurve:
    """Upper bounds on delta at every epsilon of a grid; what is between is solved for.

    Attributes:
        epsilons: Grid points, rising.
        above: At each, the P mass of larger losses.
        above_other: At each, the Q mass of larger losses times exp(epsilon).
        errors: At each, what truncation and arithmetic may hide.
    """

    epsilons: np.ndarray
    above: np.ndarray
    above_other: np.ndarray
    errors: np.ndarray

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with a proved delta of at most this; infinite if none."""
        deltas = self.above - self.above_other + self.errors
        small = np.flatnonzero(deltas <= delta)
        if not len(small):
            return math.inf
        end = int(small[0])
        found = float(self.epsilons[end])
        if end > 0:
            # From a grid point to the next it is above - exp(epsilon - start) above_other + error.
            start = float(self.epsilons[end - 1])
            other = float(self.above_other[end - 1])
            missing = float(self.above[end - 1] + self.errors[end - 1]) - delta
            if other > 0:
                found = min(found, start + math.log(missing / other))
        # Rounded up, so that the last digits of a processor's arithmetic are nobody's claim.
        return math.ceil(max(0.0, found) * (1 + _SLACK) * 1e8 + 1) / 1e8


def compose(counts: Mapping[Event, int]) -> DeltaCurve | None:
    """Return the bounds for independent releases, each so many times; None if nothing is lost.

    Raises:
        UnsupportedEventError: A release whose loss distribution is not known here.
    """
    sizes = {event: _largest_loss(event) for event in counts}
    parts = [(event, times) for event, times in counts.items() if sizes[event] > 0]
    if not parts:
        return None
    times = np.array([often for _, often in parts], np.float64)
    rough = _Cumulants((_on_grid(event, sizes[event] / _ROUGH_CELLS) for event, _ in parts), times)
    tilt = _best_tilt(rough)
    centre, deviation = rough.mean(tilt), math.sqrt(rough.variance(tilt))
    total = float(times.sum())
    # Splitting moves ln E exp(tilt * loss) by at most tilt (1 + tilt) width^2 / 8 per release.
    width = math.sqrt(8 * _FINENESS * max(centre, _SLACK) / (total * (1 + tilt)))
    most = math.fsum(sizes[event] * often for event, often in parts) + total * width
    reach = _reach(rough, tilt, centre, deviation, most)
    high = min(centre + reach, most)
    # Large deltas are found around the mean of the untilted distribution.
    untilted = max(rough.mean(0.0) - 3 * math.sqrt(rough.variance(0.0)), 0.0)
    low = max(min(centre - reach, untilted), -most)
    points = 2 ** math.ceil(math.log2((high - low) / width + 2))
    points = min(max(points, _FEWEST_POINTS), _MOST_POINTS)
    width = (high - low) / (points - 2)
    grids = [_on_grid(event, width) for event, _ in parts]
    return _curve(grids, [often for _, often in parts], tilt, math.floor(low / width), points)


def _curve(
    grids: list[_Losses], times: list[int], tilt: float, start: int, points: int
) -> DeltaCurve:
    """Convolve on the window of ``points`` grid points from ``start``, and bound what is left."""
    width = grids[0].width
    cumulants = _Cumulants(grids, np.array(times, np.float64))
    convolved = _convolve(grids, times, tilt, start, points)
    losses = (start + np.arange(points)) * width
    centre = min(max(cumulants.mean(tilt), float(losses[0])), float(losses[-1]))

    releases = sum(times)
    arithmetic = math.sqrt(points) * 16 * _UNIT * math.log2(points) * (releases + 2)
    beyond = 0.0
    if sum(grid.last * often for grid, often in zip(grids, times, strict=True)) >= start + points:
        beyond = cumulants.tail(tilt, float(losses[-1]))
    # (1 - exp(-y)) exp(-tilt y) is at most this: no outcome counts for more.
    heaviest = (tilt / (1 + tilt)) ** tilt / (1 + tilt)

    apart = losses - centre
    with np.errstate(under="ignore", over="ignore"):
        own = convolved * np.exp(-tilt * np.maximum(apart, -_RANGE / (1 + tilt)))
        other = own * np.exp(-np.maximum(apart, -_RANGE / (1 + tilt)))
    inside = (apart >= -_RANGE / (1 + tilt)) & (apart <= _RANGE)
    above = _sums_above(own)[inside]
    above_other = _sums_above(other)[inside] * np.exp(apart[inside])
    errors = (arithmetic + beyond) * heaviest * np.exp(-tilt * apart[inside])
    # Sums of so many numbers of one sign are right to their own small part.
    factor = math.exp(cumulants.value(tilt) - tilt * centre)
    errors = factor * (errors + points * _UNIT * above)
    return DeltaCurve(losses[inside], factor * above, factor * above_other, errors)


def _sums_above(masses: np.ndarray) -> np.ndarray:
    """For each place, the sum of all later ones; smallest first, as they are at the end."""
    return np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)


def _convolve(
    grids: list[_Losses], times: list[int], tilt: float, start: int, points: int
) -> np.ndarray:
    """The tilted distribution of the sum of all losses, on a circle of grid points."""
    transform: np.ndarray | None = None
    origin = 0
    for grid, often in zip(grids, times, strict=True):
        tilted = grid.masses * np.exp(tilt * (grid.losses - grid.last * grid.width))
        tilted /= tilted.sum()
        # Around its own mean a transform turns slowest, and powers of it lose least.
        middle = round(float(tilted @ np.arange(len(tilted))))
        places = (np.arange(len(tilted)) - middle) % points
        circle = np.bincount(places, tilted, points)
        power = _power(np.fft.rfft(circle), often)
        transform = power if transform is None else transform * power
        origin += (grid.first + middle) * often
    if transform is None:
        raise ValueError("nothing to convolve")
    found = np.fft.irfft(transform, points)
    return np.maximum(np.roll(found, origin - start), 0.0)


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """By squaring: complex ``**`` takes a logarithm of every number."""
    found = None
    while exponent:
        if exponent & 1:
            found = base if found is None else found * base
        exponent >>= 1
        if exponent:
            base = base * base
    return np.ones_like(base) if found is None else found


class _Cumulants:
    """ln E exp(tilt * loss) of a sum of independent losses under P, and its derivatives."""

    def __init__(self, grids: Iterable[_Losses], times: np.ndarray) -> None:
        parts = list(grids)
        self._times = times
        self._losses = np.concatenate([part.losses for part in parts])
        self._largest = np.array([part.last * part.width for part in parts])
        lengths = np.array([len(part.masses) for part in parts])
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self._below = self._losses - np.repeat(self._largest, lengths)
        self._masses = np.concatenate([part.masses for part in parts])

    def _moment(self, tilt: float, values: np.ndarray | float = 1.0) -> np.ndarray:
        weights = self._masses * np.exp(tilt * self._below) * values
        return np.asarray(np.add.reduceat(weights, self._starts))

    def value(self, tilt: float) -> float:
        logs = tilt * self._largest + np.log(self._moment(tilt))
        return float(self._times @ logs)

    def mean(self, tilt: float) -> float:
        return float(self._times @ (self._moment(tilt, self._losses) / self._moment(tilt)))

    def variance(self, tilt: float) -> float:
        norm = self._moment(tilt)
        mean = self._moment(tilt, self._losses) / norm
        square = self._moment(tilt, self._losses**2) / norm
        return float(self._times @ np.maximum(square - mean**2, 0.0))

    def tail(self, tilt: float, end: float) -> float:
        """Bound the tilted mass above ``end`` (Chernoff); above its mean, or it bounds nothing."""
        apart = end - self.mean(tilt)
        if apart <= 0:
            return 1.0
        rate = apart / max(self.variance(tilt), _SLACK)
        rates = rate * np.array([0.25, 0.5, 1.0, 2.0])
        here = self.value(tilt)
        exponent = min(self.value(tilt + float(more)) - here - float(more) * end for more in rates)
        return math.exp(min(exponent, 0.0))


def _best_tilt(cumulants: _Cumulants) -> float:
    """Find the tilt at which Chernoff's bound is the wanted delta.

    Smaller where the untilted distribution would be lost in errors: few releases have no small
    delta to tilt towards.
    """
    untilted = cumulants.mean(0.0)

    def too_far(tilt: float) -> bool:
        value = cumulants.value(tilt)
        chernoff = tilt * cumulants.mean(tilt) - value
        return max(chernoff, value - tilt * untilted) > _TILT_FOR

    low, high = 1e-4, _LARGEST_TILT
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if too_far(middle) else (middle, high)
    return low


def _reach(
    cumulants: _Cumulants, tilt: float, centre: float, deviation: float, most: float
) -> float:
    """Half of a window that has next to nothing above it."""
    reach = max(_DEVIATIONS * deviation, 12 / tilt)
    while centre + reach < most and cumulants.tail(tilt, centre + reach) > _SLACK:
        reach *= 1.5
    return reach


def _largest_loss(event: Event) -> float:
    match event:
        case RandomizedBit(budget):
            return budget
        case LaplaceSum(shift, 1):
            return shift
        case DiscreteLaplaceRelease(_, scale) if scale is not None:
            return _steps(event) / scale
        case _:
            raise UnsupportedEventError(
                f"the loss distribution of {type(event).__name__} is not known; use another "
                "accountant"
            )


def _steps(event: DiscreteLaplaceRelease) -> int:
    """Whole numbers that the release moves by; only arithmetic keeps ``shift`` from the grid."""
    return math.ceil(event.shift * (event.scale or 0.0) * (1 - _SLACK))


def _on_grid(event: Event, width: float) -> _Losses:
    """The loss distribution of one release, with every loss split between two grid points.

    A loss x in the cell from a to a + width leaves (1 - exp(a - x)) / (1 - exp(-width)) of its mass
    at the upper end.
    """
    size = _largest_loss(event)
    first = math.floor(-size / width)
    cells = math.floor(size / width) - first + 1
    edges = (first + np.arange(cells + 1)) * width
    mass, rise = np.zeros(cells), np.zeros(cells)  # of a cell: sums of p and of p (1 - exp(a - x))
    match event:
        case LaplaceSum(shift, _):
            likely = 0.5
            # A loss of shift - 2z, for noise z between 0 and the shift.
            z = np.clip((shift - edges) / 2, 0.0, shift)
            part = -np.expm1(z[1:] - z[:-1]) / 2
            mass += np.exp(-z[1:]) * part
            rise += mass - np.exp(edges[:-1] - shift + z[:-1]) * part
        case DiscreteLaplaceRelease(_, float(scale)):
            likely = 1 / (1 + math.exp(-1 / scale))
            # A loss of (steps - 2z) / scale, for noise z of 1, 2, ..., steps - 1.
            steps = _steps(event)
            z = np.clip(np.ceil((steps - edges * scale) / 2), 1, steps)
            part = -np.expm1((z[1:] - z[:-1]) / scale) * likely
            mass += np.exp(-z[1:] / scale) * part
            rise += mass - np.exp(edges[:-1] - (steps - z[:-1] + 1) / scale) * part
        case _:
            likely = 1 / (1 + math.exp(-size))
    for cell, loss, chance in ((-1, size, likely), (0, -size, likely * math.exp(-size))):
        mass[cell] += chance
        rise[cell] += chance * -math.expm1(min(float(edges[:-1][cell]) - loss, 0.0))
    # Towards the upper end by more than arithmetic can be off.
    upper = rise / -math.expm1(-width) + 16 * _UNIT * (1 + size) / width * mass
    upper = np.clip(upper, 0.0, mass)
    masses = np.zeros(cells + 1)
    masses[:-1] = mass - upper
    masses[1:] += upper
    return _Losses(first, masses, width)
