"""Finding user, item, rating and timestamp in a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError, RatingsError

COLUMNS = ("user", "item", "rating", "timestamp")
# Spellings of the same thing, lower case and without underscores, that need no `columns=`.
_SPELLINGS = {
    "user": ("user", "userid"),
    "item": ("item", "itemid", "movieid"),
    "rating": ("rating",),
    "timestamp": ("timestamp",),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table as they were found, not yet validated."""

    user: Any
    item: Any
    rating: Any
    timestamp: Any = None


def match_columns(names: Sequence[str], wanted: Mapping[str, str] | None, origin: str) -> dict[str, str]:
    """Find which column is which.

    Args:
        names: The columns there are.
        wanted: Names given by the caller, by our names.
        origin: What the columns are from, for messages.

    Returns:
        Their names by ours; ``timestamp`` only if there is one.
    """
    wanted = dict(wanted or {})
    strange = set(wanted) - set(COLUMNS)
    if strange:
        raise ConfigError(f"columns= maps {', '.join(COLUMNS)} to names; unknown: {', '.join(sorted(strange))}")
    found: dict[str, str] = {}
    for ours in COLUMNS:
        if ours in wanted:
            candidates = [name for name in names if name == wanted[ours]]
        elif ours in names:
            candidates = [ours]
        else:
            candidates = [name for name in names if name.lower().replace("_", "") in _SPELLINGS[ours]]
        if len(candidates) == 1:
            found[ours] = candidates[0]
        elif len(candidates) > 1:
            raise RatingsError(f"{origin}: more than one column could be '{ours}'; say which with columns=")
        elif ours != "timestamp" or ours in wanted:
            raise RatingsError(
                f"{origin}: no column '{wanted.get(ours, ours)}' among {_listed(names)}; "
                f'say which one it is with columns={{"{ours}": ...}}'
            )
    return found


def columns_of_frame(frame: Any, wanted: Mapping[str, str] | None, origin: str) -> Columns:
    """Take the columns out of any data frame that Narwhals understands."""
    import narwhals as nw

    try:
        wrapped = nw.from_native(frame)
    except TypeError as error:
        raise RatingsError(
            f"{origin}: {type(frame).__name__} is no data frame that Narwhals understands (pandas, polars, "
            "PyArrow, ...); use Ratings.from_arrays for arrays or Ratings.read for a file"
        ) from error
    table = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    found = match_columns(table.columns, wanted, origin)
    times = found.get("timestamp")
    return Columns(
        user=_ids(table[found["user"]], "user", origin),
        item=_ids(table[found["item"]], "item", origin),
        rating=_numbers(table[found["rating"]], "rating", origin),
        timestamp=None if times is None else _numbers(table[times], "timestamp", origin),
    )


def _ids(series: Any, what: str, origin: str) -> Any:
    """Hand ids on as integers in an array or text in a polars series, the two that are fast."""
    import narwhals as nw

    _refuse_missing(series, what, origin)
    if series.dtype.is_integer():
        return series.to_numpy()
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        import polars as pl

        text = series.cast(nw.String)
        return pl.Series(text.to_list(), dtype=pl.String) if text.implementation.is_pandas_like() else _polars(text)
    return np.array([*series.to_list(), None], dtype=object)[:-1]


def _polars(series: Any) -> Any:
    import polars as pl

    return pl.Series(series.to_arrow() if not series.implementation.is_polars() else series.to_native())


def _numbers(series: Any, what: str, origin: str) -> Any:
    import narwhals as nw

    _refuse_missing(series, what, origin)
    if series.dtype in (nw.Datetime, nw.Date):
        moments = series.cast(nw.Datetime("us")) if series.dtype == nw.Date else series
        return moments.dt.timestamp("us").to_numpy() // 1_000_000
    if series.dtype.is_numeric():
        return series.to_numpy()
    if series.dtype == nw.Object:  # pandas columns that lost their type
        listed = series.to_list()
        for row, value in enumerate(listed, start=1):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise RatingsError(f"{origin}: column '{what}', row {row:,}: not a number")
        return listed
    raise RatingsError(f"{origin}: column '{what}' must hold numbers, not {series.dtype}")


def _refuse_missing(series: Any, what: str, origin: str) -> None:
    if series.null_count():
        row = int(np.argmax(series.is_null().to_numpy())) + 1
        raise RatingsError(f"{origin}: column '{what}', row {row:,}: missing; remove the row or fill it in")


def _listed(names: Sequence[str]) -> str:
    """List column names, leaving out what looks like data taken for a header."""
    shown = [name for name in names if name[:1].isalpha() and len(name) <= 40][:12]
    return ("columns " + ", ".join(shown)) if shown else f"{len(names)} columns without names"
