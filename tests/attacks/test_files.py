"""Attacks by a file that somebody hands to the owner or the operator: small on the disk, large in
memory.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.data.items import read_item_table
from hdpmf.errors import RatingsError

pytestmark = pytest.mark.slow

MOST_FILE = 8 << 20
MOST_MEMORY = 600 << 20
"""Bytes of the whole process, with the libraries that it loads."""

READ = r"""
import re, resource, sys
from pathlib import Path
from hdpmf.common.data import Ratings
from hdpmf.common.data.items import read_item_table
from hdpmf.errors import RatingsError
resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))  # for the machine's sake
try:
    {"items": read_item_table, "ratings": Ratings.read}[sys.argv[1]](sys.argv[2])
except RatingsError as error:
    print(error)
status = Path("/proc/self/status").read_text()  # ru_maxrss would be that of whoever started us
print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024)
"""


def parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def constant(rows: int) -> pl.Series:
    return pl.repeat(1, rows, dtype=pl.Int64, eager=True)


def written(groups: int, table: pa.Table, **options: Any) -> bytes:
    """The table so many times in one file."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, compression="zstd", **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return buffer.getvalue()


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [text])


def long_titles() -> bytes:
    """A title of 64 KB in the dictionary, and 50,000 rows that say "that one": 3.2 GB."""
    rows = 50_000
    return written(
        1, pa.table({"item": pa.array(range(rows)), "title": repeated("x" * 64_000, rows)})
    )


def long_users() -> bytes:
    rows = 50_000
    columns = {"item": pa.array(range(rows)), "rating": pa.repeat(1, rows)}
    return written(1, pa.table({"user": repeated("x" * 64_000, rows), **columns}))


def many_rows() -> bytes:
    """Rows that are all the same, a number and how often it comes: 3.2 GB."""
    ones = pa.repeat(1, 1 << 20)
    return written(128, pa.table({"user": ones, "item": ones, "rating": ones}))


def growing_texts() -> bytes:
    """Each text is the one before and a number: 800 MB."""
    texts = ["x" * 100_000 + str(number) for number in range(8_000)]
    table = pa.table({"item": pa.array(range(len(texts))), "title": pa.array(texts)})
    encoding = {"item": "PLAIN", "title": "DELTA_BYTE_ARRAY"}
    return written(1, table, use_dictionary=False, column_encoding=encoding)


def packed_pages() -> bytes:
    """Texts that differ by a few characters each, which compress to a thousandth: 1.9 GB."""
    texts = [f"{row:06d}" + "x" * 64_000 for row in range(300)]
    table = pa.table({"item": pa.array(range(300)), "title": pa.array(texts)})
    return written(100, table, use_dictionary=False)


def packed_text() -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as packed:
        packed.write(b"user,item,rating\n")
        for _ in range(64):
            packed.write(b"1,2,3\n" * (1 << 20))
    return buffer.getvalue()


def wide_ids() -> bytes:
    """An id of 256 characters among short ones, each of which gets its width."""
    ids = [*(f"i{number}" for number in range(1_000_000)), "w" * 256]
    return gzip.compress(("item,title\n" + "\n".join(f"{one},a" for one in ids)).encode())


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "titles": ("items", long_titles, "bytes explain"),
    "users": ("ratings", long_users, "bytes explain"),
    "rows": ("ratings", many_rows, "bytes explain"),
    "delta": ("items", growing_texts, "bytes explain"),
    "pages": ("items", packed_pages, "bytes explain"),
    "gzip": ("ratings", packed_text, "unpacks to more than"),
    "ids": ("items", wide_ids, "has 256 characters"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_is_not_a_large_table(tmp_path: Path, name: str) -> None:
    kind, make, words = BOMBS[name]
    file = tmp_path / "handed over"
    file.write_bytes(make())
    assert file.stat().st_size < MOST_FILE
    read = [sys.executable, "-c", READ, kind, str(file)]
    ended = subprocess.run(
        read, capture_output=True, text=True, timeout=300, check=True, env=os.environ
    )
    *said, most = ended.stdout.splitlines()
    assert words in " ".join(said)
    assert int(most) < MOST_MEMORY


def test_what_people_have_is_read(tmp_path: Path) -> None:
    """Rows that repeat are usual: sorted by user, few stars, titles of films, packed well."""
    rows = 200_000
    users = pl.int_range(rows, eager=True) // 100
    parquet_file = tmp_path / "r.parquet"
    parquet_file.write_bytes(
        parquet(user=users, item=pl.int_range(rows, eager=True) % 1000, rating=constant(rows))
    )
    assert len(Ratings.read(parquet_file)) == rows
    items = pl.int_range(50_000, eager=True)
    catalogue = tmp_path / "i.parquet"
    catalogue.write_bytes(
        parquet(
            item=items,
            title=pl.select(pl.format("A film of the name {} (1999)", items)).to_series(),
            genres=pl.repeat("Action|Comedy|Drama", len(items), eager=True),
        )
    )
    assert len(read_item_table(catalogue).index) == len(items)
    with pytest.raises(RatingsError):
        read_item_table(parquet_file)  # an item twice, and no word about memory
