"""Taking user, item, rating and timestamp out of data frames and matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError, RatingsError
from hdpmf.ratings.column_names import Found, match_columns
from hdpmf.ratings.parsing import parsed_times


@dataclass(frozen=True)
class Columns:
    """The columns of a table as they were found, not yet validated; without ratings it is implicit feedback."""

    user: Any
    item: Any
    rating: Any = None
    timestamp: Any = None


def columns_of(data: Any, wanted: Mapping[str, str] | None, origin: str, implicit: bool | None = False) -> Columns:
    """Take the columns out of a SciPy sparse matrix, or of any data frame that Narwhals understands."""
    if hasattr(data, "tocoo"):
        return _columns_of_matrix(data, wanted, origin, implicit)
    import narwhals as nw

    try:
        wrapped = nw.from_native(data)
    except TypeError as error:
        raise RatingsError(
            f"{origin}: {type(data).__name__} is no data frame that Narwhals understands (pandas, polars, "
            "PyArrow, ...) and no SciPy sparse matrix; use Ratings.from_arrays for arrays or Ratings.read for a file"
        ) from error
    table = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    return taken(table, match_columns(table.columns, wanted, origin, implicit), origin)


def taken(frame: Any, found: Found, origin: str) -> Columns:
    """The columns that were found in a frame."""
    import narwhals as nw

    table = nw.from_native(frame, pass_through=False) if not isinstance(frame, nw.DataFrame) else frame
    rating, times = found.rating, found.timestamp
    return Columns(
        user=_ids(table[found.user], "user", origin),
        item=_ids(table[found.item], "item", origin),
        rating=None if rating is None else _numbers(table[rating], "rating", origin),
        timestamp=None if times is None else found.times(lambda: _times(table[times], origin), origin),
    )


def _columns_of_matrix(matrix: Any, wanted: Mapping[str, str] | None, origin: str, implicit: bool | None) -> Columns:
    """What a matrix of users by items holds; ids are the numbers of rows and columns."""
    if wanted:
        raise ConfigError(f"{origin}: a matrix has no names of columns; its rows are users, its columns items")
    if len(matrix.shape) != 2:
        raise RatingsError(
            f"{origin}: a matrix of ratings has two dimensions, users and items, not {len(matrix.shape)}"
        )
    entries = matrix.tocoo()
    if np.asarray(entries.data).dtype.kind not in "biuf":
        raise RatingsError(f"{origin}: a matrix of ratings must hold numbers, not {entries.data.dtype}")
    users, items = (np.asarray(codes, np.int64) for codes in entries.coords)
    return Columns(users, items, None if implicit else np.asarray(entries.data))


def _ids(series: Any, what: str, origin: str) -> Any:
    """Hand ids on as integers in an array or text in a polars series, the two that are fast."""
    import narwhals as nw

    _refuse_missing(series, what, origin)
    if series.dtype.is_integer():
        return series.to_numpy()
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        return _as_polars(series.cast(nw.String))
    return np.array([*series.to_list(), None], dtype=object)[:-1]


def _as_polars(text: Any) -> Any:
    import polars as pl

    if text.implementation.is_pandas_like():
        return pl.Series(text.to_list(), dtype=pl.String)
    return pl.Series(text.to_native() if text.implementation.is_polars() else text.to_arrow())


def _numbers(series: Any, what: str, origin: str) -> Any:
    import narwhals as nw

    _refuse_missing(series, what, origin)
    if series.dtype.is_numeric():
        return series.to_numpy()
    if series.dtype == nw.Object:  # pandas columns that lost their type
        listed = series.to_list()
        for row, value in enumerate(listed, start=1):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise RatingsError(f"{origin}: column '{what}', row {row:,}: not a number but {type(value).__name__}")
        return listed
    raise RatingsError(f"{origin}: column '{what}' must hold numbers, not {series.dtype}")


def _times(series: Any, origin: str) -> Any:
    import narwhals as nw

    _refuse_missing(series, "timestamp", origin)
    if series.dtype in (nw.Datetime, nw.Date):
        moments = series.cast(nw.Datetime("us")) if series.dtype == nw.Date else series
        return moments.dt.timestamp("us").to_numpy() // 1_000_000
    if series.dtype == nw.String:
        return parsed_times(_as_polars(series), origin).to_numpy()
    return _numbers(series, "timestamp", origin)


def _refuse_missing(series: Any, what: str, origin: str) -> None:
    if series.null_count():
        row = int(np.argmax(series.is_null().to_numpy())) + 1
        raise RatingsError(f"{origin}: column '{what}', row {row:,}: missing; remove the row or fill it in")
