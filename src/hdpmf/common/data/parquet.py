"""Parquet files, decoded by Polars within limits on rows and on what their texts take.

A small file may stand for a large table: a million rows of one long title are a title and a count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hdpmf.errors import RatingsError

if TYPE_CHECKING:
    import polars as pl

MOST_EXPANSION = 64
"""Times that a table may be larger in memory than its file; those that people have are below 25."""

FREE_BYTES = 128 << 20
"""Bytes that any table may have in memory, however small its file is."""

_FIRST_ROWS, _MOST_ROWS = 1_000, 2_000_000


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as Parquet does."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    except (OSError, ValueError):
        return False  # whoever reads it says why


def read_batches(
    path: str | os.PathLike[str],
    origin: str,
    columns: Callable[[Sequence[str]], Sequence[str]] = lambda names: names,
) -> Iterator[pl.DataFrame]:
    """Yield the table in batches of rows: neither it nor the file has to fit in memory.

    Args:
        path: The file.
        origin: What it is called, for messages.
        columns: Chooses those that are read; what it raises is raised here.

    Raises:
        RatingsError: It cannot be decoded, or would take far more memory than its size explains.
    """
    import polars as pl

    size = os.path.getsize(path)
    left = max(FREE_BYTES, MOST_EXPANSION * size)
    problem = RatingsError(
        f"{origin}: the Parquet file is truncated, corrupted or of a kind unknown here, or stands "
        f"for far more than its {size:,} bytes explain (at most {MOST_EXPANSION} times these, or "
        f"{FREE_BYTES:,}); get it again, or give it as CSV"
    )
    foreign = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)
    try:
        scanned = pl.scan_parquet(Path(path), glob=False, hive_partitioning=False)
        names = scanned.collect_schema().names()
        n_rows = int(scanned.select(pl.len()).collect().item())
    except foreign as error:
        raise problem from error
    chosen = list(columns(names))
    left -= 8 * n_rows * len(chosen)
    first, rows = 0, _FIRST_ROWS  # few at first: each may be a long text
    while left >= 0 and (first < n_rows or first == 0):
        try:
            batch = scanned.select(chosen).slice(first, rows).collect(engine="streaming")
            texts = batch.select(pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String))
            left -= sum(int(column.str.len_bytes().sum()) for column in texts)
        except foreign as error:
            raise problem from error
        if left >= 0:
            yield batch
        first, rows = first + rows, min(4 * rows, _MOST_ROWS)
    if left < 0:
        raise problem
