"""Ratings and facts about items in memory, whoever's frame, matrix or rows, as a Polars frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.columns import COLUMNS, Layout
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    import polars as pl


def ratings_frame(data: Any, layout: Layout, origin: str) -> pl.DataFrame:
    """Return a SciPy matrix, rows, or a frame that Narwhals understands as one of Polars."""
    if hasattr(data, "tocoo"):
        return _frame_of_matrix(data, layout, origin)
    if isinstance(data, (np.ndarray, list, tuple)):
        return _frame_of_rows(data, layout, origin)
    others = "no SciPy sparse matrix and no list of rows; use Ratings.from_arrays for columns"
    return polars_frame(data, origin, f"{others} or Ratings.read for a file")


def polars_frame(data: Any, origin: str, otherwise: str) -> pl.DataFrame:
    """Return a data frame of any kind as one of polars.

    Raises:
        RatingsError: It is none; the message ends in ``otherwise``.
    """
    import narwhals as nw
    import polars as pl

    try:
        wrapped = nw.from_native(data)
    except TypeError as error:
        raise RatingsError(
            f"{origin}: {type(data).__name__} is no data frame that Narwhals understands (pandas, "
            f"polars, PyArrow, ...), {otherwise}"
        ) from error
    table = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    if not table.implementation.is_pandas_like():
        return table.to_polars()
    return pl.DataFrame([_series(table[name]) for name in table.columns])


def _series(column: Any) -> pl.Series:
    """Return a column of pandas, without PyArrow."""
    import narwhals as nw
    import polars as pl

    if column.dtype.is_numeric():
        return pl.Series(column.name, column.to_numpy())
    if column.dtype == nw.Datetime:
        seconds = pl.Series(column.name, column.dt.timestamp("us").to_numpy())
        return seconds.cast(pl.Datetime("us"), strict=False)
    listed = (
        column.cast(nw.String).to_list() if column.dtype == nw.Categorical else column.to_list()
    )
    try:
        return pl.Series(column.name, listed)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(column.name, listed, dtype=pl.Object)


def _frame_of_matrix(matrix: Any, layout: Layout, origin: str) -> pl.DataFrame:
    """Return the entries of a matrix of users by items; ids are row and column numbers."""
    import polars as pl

    if layout.columns:
        raise ConfigError(
            f"{origin}: a matrix has no names of columns; its rows are users, its columns items"
        )
    if len(matrix.shape) != 2:
        raise RatingsError(
            f"{origin}: a matrix of ratings has two dimensions, users and items, not "
            f"{len(matrix.shape)}"
        )
    entries = matrix.tocoo()
    if np.asarray(entries.data).dtype.kind not in "biuf":
        raise RatingsError(
            f"{origin}: a matrix of ratings must hold numbers, not {entries.data.dtype}"
        )
    users, items = (np.asarray(codes, np.int64) for codes in entries.coords)
    columns = {"user": users, "item": items, "rating": np.asarray(entries.data, np.float64)}
    return pl.DataFrame({name: columns[name] for name in COLUMNS[: 2 if layout.implicit else 3]})


def _frame_of_rows(rows: Any, layout: Layout, origin: str) -> pl.DataFrame:
    """Return a two-dimensional array, or a list of tuples, as a frame with our names."""
    import polars as pl

    if layout.columns:
        raise ConfigError(
            f"{origin}: rows have no names of columns; they are user, item, rating, timestamp"
        )
    fewest = 3 if layout.implicit is False else 2
    if isinstance(rows, np.ndarray):
        widths = {rows.shape[1]} if rows.ndim == 2 else {0}
    else:
        widths = {len(row) if isinstance(row, (tuple, list)) else 0 for row in rows}
    if len(widths) != 1 or not fewest <= min(widths) <= len(COLUMNS):
        raise RatingsError(
            f"{origin}: rows of ratings all have {fewest} to 4 fields (user, item, rating, "
            "timestamp); name columns in a data frame, or use Ratings.from_arrays"
        )
    listed = map(_whole, rows.T) if isinstance(rows, np.ndarray) else zip(*rows, strict=True)
    try:
        return pl.DataFrame(
            [
                pl.Series(ours, column, strict=ours not in COLUMNS[2:])  # 5 beside 1.5
                for ours, column in zip(COLUMNS, listed, strict=False)
            ]
        )
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise RatingsError(
            f"{origin}: a field of all rows must be of one type, whole numbers or text for ids and "
            "numbers for ratings"
        ) from error


def _whole(column: NDArray[Any]) -> Any:
    """Return a column of numbers as integers if all are: an array has one type for all fields."""
    if column.dtype.kind == "f" and bool(np.all(np.isfinite(column))):
        integers = column.astype(np.int64)
        return integers if np.array_equal(integers, column) else np.ascontiguousarray(column)
    return column.tolist() if column.dtype.kind in "OU" else np.ascontiguousarray(column)
