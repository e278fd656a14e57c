"""From text to ids, numbers and times, and saying in which row that fails; no message ever shows a rating."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdpmf.errors import RatingsError

if TYPE_CHECKING:
    import polars as pl

_DATES = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def parsed_ids(series: pl.Series) -> pl.Series:
    """Make ids integers if all of them come back as they were written: ``007`` stays text, and so does ``7`` beside it.

    Blanks around an id are no part of it.
    """
    import polars as pl

    if series.dtype != pl.String:
        return series
    integers = _as_written(series)
    if integers is not None:
        return integers
    # There are far fewer ids than rows, so they are looked at instead.
    distinct = series.unique(maintain_order=True)
    stripped = distinct.str.strip_chars()
    if stripped.equals(distinct, null_equal=True):
        return series
    series = series.str.strip_chars()
    integers = _as_written(series)
    return series if integers is None else integers


def _as_written(text: pl.Series) -> pl.Series | None:
    """The integers that are written there, or None where some text is not how its integer is written."""
    integers = text.str.to_integer(strict=False)
    if integers.null_count():
        return None
    # Any other spelling of an integer (leading zeros, a plus, minus zero) is longer than the usual one.
    sizes = integers.to_numpy()
    length = len(sizes)
    if length and sizes.min() < 0:
        length += int(np.count_nonzero(sizes < 0))
        sizes = np.abs(sizes).astype(np.uint64)  # the smallest integer of 64 bits has no other absolute value
    for digits in range(1, len(str(sizes.max(initial=0)))):
        length += int(np.count_nonzero(sizes >= sizes.dtype.type(10**digits)))
    return integers if int(text.str.len_bytes().sum()) == length else None


def parsed_numbers(series: pl.Series, what: str, origin: str) -> pl.Series:
    """Numbers from text; the first row that has none is named."""
    import polars as pl

    numbers = series
    if series.dtype == pl.String:
        numbers = series.str.strip_chars().cast(pl.Float64, strict=False)
    if numbers.null_count():
        row = int(numbers.is_null().arg_true()[0])
        missing = series[row] is None or not str(series[row]).strip()
        raise RatingsError(
            f"{origin}: column '{what}', row {row + 1:,}: {'missing' if missing else 'text, not a number'}; correct "
            "or remove the row (or check the separator)"
        )
    return numbers


def parsed_times(series: pl.Series, origin: str) -> pl.Series:
    """Read seconds since 1970, or dates as ISO 8601 writes them."""
    import polars as pl

    if series.dtype == pl.String:
        text = series.str.strip_chars().str.replace("T", " ", literal=True).str.strip_suffix("Z")
        if not text.cast(pl.Float64, strict=False).is_not_null().any():
            for form in _DATES:
                dates = text.str.strptime(pl.Datetime("us"), form, strict=False)
                if not dates.null_count():
                    return dates.dt.epoch("s")
    return parsed_numbers(series, "timestamp", origin)
