"""The public rating scale, and checks of columns, duplicates and ``rng`` arguments.

Errors name rows and never show a rating.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.ids import Codes, IdIndex, factorise
from hdpmf.errors import ConfigError, RatingsError, hint


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


ScaleLike = RatingScale | tuple[float, ...]
"""A scale, or what `RatingScale.of` makes one of."""

IMPLICIT_SCALE = RatingScale(0.0, 1.0)
"""Of implicit feedback, where every value is 1: somebody chose something."""

THUMBS = RatingScale(0.0, 1.0, 1.0)
"""Down and up, as columns of booleans have them."""


RngLike: TypeAlias = int | np.random.Generator


def as_generator(rng: RngLike) -> np.random.Generator:
    """Return the generator given, or a new one from a seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise ConfigError("rng must be a seed (an integer of at least 0) or a numpy random Generator")


def is_count(value: object) -> bool:
    """Return whether something is a whole number of at least 1."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def check_length(n: object) -> None:
    """Refuse a number of items in a list that is none."""
    if not is_count(n):
        raise ConfigError(f"n must be a whole number of at least 1, not {n!r}")


def numbers(name: str, values: Any) -> NDArray[np.float32]:
    """Bring ratings into float32."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.array(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise RatingsError(f"{name}: column 'rating' has something that is not a number") from None
    if array.ndim != 1:
        raise RatingsError(f"{name}: column 'rating' must have one dimension, not {array.ndim}")
    return array


_FINER = 10**11


def times(name: str, timestamps: Any) -> NDArray[np.int64]:
    """Bring times into seconds since 1970."""
    array = np.asarray(timestamps)
    if array.dtype.kind == "O":  # date objects and the like
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            array = array.astype("datetime64[s]")
    if array.dtype.kind == "M":
        if bool(np.isnat(array).any()):
            row = int(np.flatnonzero(np.isnat(array))[0]) + 1
            raise RatingsError(f"{name}: column 'timestamp', row {row:,}: the time is missing")
        return array.astype("datetime64[s]").astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise RatingsError(
            f"{name}: column 'timestamp' must hold seconds since 1970 as numbers, or date-times"
        )
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.abs(array) < 2**62))
        if len(bad):
            raise RatingsError(
                f"{name}: column 'timestamp', row {bad[0] + 1:,}: the time is missing or absurd"
            )
    seconds = array.astype(np.int64)
    # Seconds reach this in the year 5138; milliseconds, micro- and nanoseconds did in 1973.
    while len(seconds) and int(seconds.min()) >= _FINER:
        seconds = seconds // 1000
    if bool((seconds >= _FINER).any()):
        row = int(np.argmax(seconds >= _FINER)) + 1
        raise RatingsError(
            f"{name}: column 'timestamp', row {row:,}: beyond the year 5138, as others are not; "
            "are seconds and milliseconds mixed?"
        )
    return seconds


def codes(
    name: str, what: str, values: Any, index: IdIndex | None, rows: int
) -> tuple[Codes, IdIndex]:
    """Find the code of each id, in the index given or in a new one."""
    if len(values) != rows:
        raise RatingsError(
            f"{name}: column '{what}' has {len(values):,} rows but column 'rating' has {rows:,}"
        )
    if index is None:
        try:
            index, codes = factorise(values, what)
        except RatingsError as error:
            raise RatingsError(f"{name}: {error}") from None
        return codes, index
    codes = index.find(values)
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        raise RatingsError(
            f"{name}: column '{what}', row {unknown[0] + 1:,}: this id is not in the index given "
            f"({len(unknown):,} such rows)"
        )
    return codes, index


def check_codes(name: str, what: str, codes: Codes, index: IdIndex) -> None:
    """Refuse codes that are no positions in their index."""
    if codes.dtype != np.int32 or codes.ndim != 1:
        raise RatingsError(f"{name}: codes of column '{what}' must be one dimension of int32")
    if int(codes.min()) < 0 or int(codes.max()) >= len(index):
        raise RatingsError(f"{name}: codes of column '{what}' must be positions in its index")


def check_values(name: str, values: NDArray[np.float32], scale: RatingScale) -> None:
    """Refuse ratings that are not finite or off their scale."""
    if values.dtype != np.float32 or values.ndim != 1:
        raise RatingsError(f"{name}: ratings must be one dimension of float32")
    bad = ~np.isfinite(values)
    if bool(bad.any()):
        raise RatingsError(
            f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: not a finite number "
            f"({np.count_nonzero(bad):,} such rows); remove them"
        )
    # Compared as float32 on both sides: 0.7 rounded down is still on a scale that starts at 0.7.
    bad = (values < np.float32(scale.low)) | (values > np.float32(scale.high))
    if bool(bad.any()):
        raise RatingsError(
            f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: off the scale {scale} "
            f"({np.count_nonzero(bad):,} such rows); if the scale is another one, say so: "
            f"{hint('scale')}"
        )
    if scale.step is not None:
        steps = (values - np.float32(scale.low)) / np.float32(scale.step)
        bad = np.abs(steps - np.rint(steps)) > 1e-3
        if bool(bad.any()):
            raise RatingsError(
                f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: between the steps of "
                f"{scale.step:g} that the scale {scale} has ({np.count_nonzero(bad):,} such rows); "
                f"say {hint('step')}"
            )


def shrink(index: IdIndex, codes: Codes) -> tuple[IdIndex, Codes]:
    """Drop the ids that no code points to."""
    used = np.zeros(len(index), dtype=bool)
    used[codes] = True
    if bool(used.all()) and not index.stated:  # what is left of a stated list is what is used
        return index, codes
    renumbered = (np.cumsum(used) - 1).astype(np.int32)
    return IdIndex(index.ids[used], as_given=True), renumbered[codes]


Duplicates = Literal["error", "last", "last-row", "mean"]
"""The rule for duplicates. ``last`` goes by time, and within a second by row; without times the
order of rows has to be asked for."""

_CELLS_PER_ROW = 64

DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)


def pair_keys(user_codes: Codes, item_codes: Codes, n_items: int) -> NDArray[np.int64]:
    """One number per pair of user and item."""
    keys = user_codes.astype(np.int64)
    keys *= n_items
    keys += item_codes
    return keys


def check_duplicates(name: str, user_codes: Codes, item_codes: Codes, n_items: int) -> None:
    """Refuse a second rating of the same item by the same user."""
    again = _repetition(name, pair_keys(user_codes, item_codes, n_items))
    if again:
        raise RatingsError(
            f"{again}; keep one rating per user and item, or say which counts: {hint('duplicates')}"
        )


def _repetition(name: str, keys: NDArray[np.int64]) -> str:
    """Return which row repeats a pair, in words; empty if none does."""
    repeated = len(keys) - _distinct(keys)
    if not repeated:
        return ""
    _, first_rows = np.unique(keys, return_index=True)
    again = np.ones(len(keys), dtype=bool)
    again[first_rows] = False
    return (
        f"{name}: row {np.argmax(again) + 1:,} rates an item that the same user has rated before "
        f"({repeated:,} such rows)"
    )


def _distinct(keys: NDArray[np.int64]) -> int:
    highest = int(keys.max(initial=-1))
    if highest < _CELLS_PER_ROW * len(keys):  # dense tables: marking cells beats a sort by far
        marked = np.zeros(highest + 1, dtype=bool)
        marked[keys] = True
        return int(np.count_nonzero(marked))
    ordered = np.sort(keys)
    return min(len(keys), 1) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def merge_duplicates(
    name: str,
    keys: NDArray[np.int64],
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    how: Duplicates,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows that stay, one for each pair in their order, and their ratings.

    Args:
        name: What to call the ratings in messages.
        keys: The pair of each row.
        values: The rating of each row.
        timestamps: The time of each row, where known.
        how: Which of several counts; ``mean`` has the time of the last one.

    Raises:
        ConfigError: There is no such rule.
        RatingsError: By the rule some are last of which no time is known.
    """
    if how not in DUPLICATES:
        raise ConfigError(f"duplicates are treated as {', '.join(DUPLICATES)}, not {how!r}")
    if timestamps is None and how == "last":
        again = _repetition(name, keys)
        if again:
            raise RatingsError(
                f"{again}, and there are no times to tell which is the last; say which column has "
                f"them with {hint('columns', 'timestamp')}, or that the order of rows counts with "
                f"{hint('rows')}"
            )
    by_row = timestamps is None or how == "last-row"
    order = np.argsort(keys, kind="stable") if by_row else np.lexsort((timestamps, keys))  # type: ignore[arg-type]
    grouped = keys[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))
    ends = np.append(starts[1:], len(order)) - 1
    chosen = order[ends]
    combined = values[chosen]
    if how == "mean":
        totals = np.add.reduceat(values[order], starts, dtype=np.float64)
        combined = (totals / (ends - starts + 1)).astype(np.float32)
    in_order = np.argsort(chosen)
    return chosen[in_order], combined[in_order]
