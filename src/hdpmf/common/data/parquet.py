"""Parquet files, decoded by Polars within bounds.

Polars believes what a file says about itself: a damaged page that announces a negative number of
values makes it ask for 2^61 bytes and end the whole process, which no ``except`` can catch (Polars
2.1, for 17 of 63,000 files in which one byte was changed). And a small file may stand for a large
table: a million rows of one long title are a title and a count. So a process of its own decodes
each file first, which may die, and may not have more memory than a table of that size explains.
"""

from __future__ import annotations

import os
import subprocess
import sys
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

_BATCH_ROWS = 2_000_000

_OWN_BYTES = 2 << 30  # of addresses, which a process has before it decodes anything

_TRIAL = """
import sys
import polars as pl

path, most, rows, *columns = sys.argv[1:]
try:
    import resource
except ImportError:  # Windows
    pass
else:
    resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
table = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(columns)
texts = 0
for first in range(0, table.select(pl.len()).collect().item(), int(rows)):
    for column in table.slice(first, int(rows)).collect(engine="streaming").get_columns():
        if column.dtype in (pl.Categorical, pl.Enum):
            column = column.cast(pl.String)
        if column.dtype == pl.String:
            texts += column.str.len_bytes().sum()
        elif column.dtype == pl.Binary:
            texts += column.bin.size().sum()
print(texts)
"""


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
    """Yield the table, some million rows at a time: neither it nor the file has to fit in memory.

    Args:
        path: The file.
        origin: What it is called, for messages.
        columns: Chooses those that are read; what it raises is raised here.

    Raises:
        RatingsError: It cannot be decoded, or would take far more memory than its size explains.
    """
    import polars as pl

    size = os.path.getsize(path)
    most = max(FREE_BYTES, MOST_EXPANSION * size)
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
    if 8 * n_rows * len(chosen) > most or _bytes_of_texts(path, chosen, most) > most:
        raise problem
    for first in range(0, max(n_rows, 1), _BATCH_ROWS):
        try:
            yield scanned.select(chosen).slice(first, _BATCH_ROWS).collect(engine="streaming")
        except foreign as error:
            raise problem from error


def _bytes_of_texts(path: str | os.PathLike[str], columns: Sequence[str], most: int) -> float:
    """Return the bytes of all texts, each as often as it is there; infinite if none can be read."""
    known = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "POLARS_MAX_THREADS": "4"}
    limits = str(most + _OWN_BYTES), str(_BATCH_ROWS)
    done = subprocess.run(  # noqa: S603 - our own code, without a shell
        [sys.executable, "-P", "-c", _TRIAL, os.path.abspath(path), *limits, *columns],
        env=os.environ | known,
        capture_output=True,
        check=False,
    )
    return float("inf") if done.returncode else int(done.stdout)
