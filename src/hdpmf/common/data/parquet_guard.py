"""Looking over a Parquet file before it is decoded, and decoding it within bounds.

The decoder believes what a file says about itself: a damaged page header that announces a negative
number of values makes it ask for 2^61 bytes and end the whole process, which no ``except`` can
catch. So the numbers that it allocates by are read here first. Structure only: no values are
decoded.

A small file may also stand for a large table: a million rows of one long title are a title and a
count. The decoder keeps such texts once, so that its memory is bounded by the number of values and
the unpacked pages (`decoded_bytes`); whoever takes the texts out gets each anew, so that their
lengths are added up first (`read_frame`).

The numbers are in Thrift's compact protocol: https://parquet.apache.org/docs/file-format/metadata/
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpmf.errors import RatingsError

if TYPE_CHECKING:
    import polars as pl

Bytes = bytes | mmap.mmap
"""The content of a file, read or mapped."""

MOST_EXPANSION = 64
"""Times that a table may be larger in memory than its file; those that people have are below 25."""

FREE_BYTES = 128 << 20
"""Bytes that any table may have in memory, however small its file is."""

_MAGIC = b"PAR1"
_MAX_ROWS = 2**31 - 1
_MAX_PAGE = 1 << 30
_MAX_DEPTH = 16
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    1, 13
)
# The fields we look at, by their numbers in parquet.thrift.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_META = 3
_META_TYPE, _META_VALUES, _META_DATA_OFFSET, _META_DICTIONARY_OFFSET = 1, 5, 9, 11
_PAGE_KIND, _PAGE_UNPACKED, _PAGE_PACKED = 1, 2, 3
# Where each kind of page keeps its header: data, dictionary, data version 2.
_PAGE_HEADER = {0: 5, 2: 7, 3: 8}
_DICTIONARY = 2
# Where each kind of page keeps the encoding of its values.
_PAGE_ENCODING = {0: 2, 2: 2, 3: 4}
# Each text is written as a part of the one before and what follows it: a page of a megabyte may
# stand for a terabyte, and there is no telling without decoding it. Hardly any writer uses it.
_DELTA_BYTE_ARRAY = 7
# Bytes of a value in the decoder's memory, by its physical type: numbers have 8 at most, texts a
# reference of 16. A bit for "missing" is less than what is rounded up here.
_VALUE_BYTES = {0: 1, 1: 8, 2: 8, 3: 8, 4: 8, 5: 8, 6: 16, 7: 16}


def decoded_bytes(data: Bytes) -> int | None:
    """Return the most bytes that decoding the file takes; None if it is not sound.

    A text that is in the file once and in the table many times counts once, with a reference for
    each row.
    """
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        return None
    length = int.from_bytes(data[-8:-4], "little")
    if length > len(data) - 12:
        return None
    try:
        meta = _Compact(data, len(data) - 8 - length).struct()
        return _bytes_of_groups(data, meta)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None  # a field is missing, or is not what it should be


def read_frame(
    data: bytes,
    origin: str,
    columns: Callable[[Sequence[str]], Sequence[str]] = lambda names: names,
) -> pl.DataFrame:
    """Decode a Parquet file.

    Args:
        data: The file.
        origin: What it is called, for messages.
        columns: Chooses those that are read; what it raises is raised here.

    Raises:
        RatingsError: It cannot be decoded, or would take far more memory than its size explains.
    """
    import polars as pl

    problem = f"{origin}: the Parquet file is truncated, corrupted or of a kind unknown here"
    most = max(FREE_BYTES, MOST_EXPANSION * len(data))
    needed = decoded_bytes(data)
    if needed is None:
        raise RatingsError(problem)
    if needed > most:
        raise _too_large(origin, len(data), needed)
    try:
        chosen = list(columns(list(pl.read_parquet_schema(io.BytesIO(data)))))
        frame = pl.read_parquet(io.BytesIO(data), columns=chosen)
        texts = sum(_text_bytes(column) for column in frame.get_columns())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise RatingsError(problem) from error
    if texts > most:
        raise _too_large(origin, len(data), texts)
    return frame


def read_batches(
    path: str | os.PathLike[str],
    origin: str,
    columns: Callable[[Sequence[str]], Sequence[str]],
    rows: int,
) -> Iterator[pl.DataFrame]:
    """Decode a Parquet file by Polars' streaming engine, so many rows at a time.

    Neither the file nor the table has to fit in memory, only the row groups of so many rows.
    Arguments and errors are those of `read_frame`.
    """
    import polars as pl

    problem = f"{origin}: the Parquet file is truncated, corrupted or of a kind unknown here"
    size = os.path.getsize(path)
    most = max(FREE_BYTES, MOST_EXPANSION * size)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        needed = decoded_bytes(data)
    if needed is None:
        raise RatingsError(problem)
    if needed > most:
        raise _too_large(origin, size, needed)
    texts = 0
    try:
        scanned = pl.scan_parquet(Path(path), glob=False, hive_partitioning=False)
        chosen = list(columns(scanned.collect_schema().names()))
        n_rows = int(scanned.select(pl.len()).collect().item())
        # Slices read the row groups that they touch, and nothing else.
        for first in range(0, n_rows, rows):
            batch = scanned.select(chosen).slice(first, rows).collect(engine="streaming")
            texts += sum(_text_bytes(column) for column in batch.get_columns())
            if texts > most:
                raise _too_large(origin, size, texts)
            yield batch
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise RatingsError(problem) from error


def _text_bytes(column: pl.Series) -> int:
    """Return the bytes of all texts, each as often as it is there."""
    import polars as pl

    if column.dtype == pl.Binary:
        return int(column.bin.size().sum())
    if column.dtype == pl.String:
        return int(column.str.len_bytes().sum())
    if column.dtype in (pl.Categorical, pl.Enum):  # a cast of all of it would write each text out
        found = column.alias("text").value_counts(name="count")
        lengths = found["text"].cast(pl.String).str.len_bytes().fill_null(0)
        return int((lengths.cast(pl.UInt64) * found["count"]).sum())
    return 0


def _too_large(origin: str, size: int, needed: int) -> RatingsError:
    return RatingsError(
        f"{origin}: the Parquet file has {size:,} bytes and would take {needed:,} in memory, which "
        f"no table of items or ratings does (at most {MOST_EXPANSION} times its size, or "
        f"{FREE_BYTES:,}); look at what repeats in it, or give it as CSV"
    )


def _bytes_of_groups(data: Bytes, meta: dict[int, Any]) -> int | None:
    total = rows = 0
    for group in meta[_FILE_GROUPS]:
        here = group[_GROUP_ROWS]
        if not 0 <= here <= _MAX_ROWS:
            return None
        rows += here
        for chunk in group[_GROUP_COLUMNS]:
            pages = _bytes_of_pages(data, chunk[_CHUNK_META], here)
            if pages is None:
                return None
            total += pages
    return total if rows == meta[_FILE_ROWS] <= _MAX_ROWS else None


def _bytes_of_pages(data: Bytes, meta: dict[int, Any], rows: int) -> int | None:
    values, offset = meta[_META_VALUES], meta[_META_DATA_OFFSET]
    dictionary = meta.get(_META_DICTIONARY_OFFSET, 0)
    if 0 < dictionary < offset:  # some writers say 0 where there is none
        offset = dictionary
    if not 0 <= values <= _MAX_ROWS:
        return None
    each = _VALUE_BYTES[meta[_META_TYPE]]
    total = each * max(values, rows)
    seen = 0
    while seen < values:
        if not len(_MAGIC) <= offset < len(data):
            return None
        reader = _Compact(data, offset)
        page = reader.struct()
        kind, packed, unpacked = page[_PAGE_KIND], page[_PAGE_PACKED], page[_PAGE_UNPACKED]
        # Every number in the page's own header is a count or a length.
        own = page[_PAGE_HEADER[kind]]
        numbers = [number for number in own.values() if type(number) is int]
        if min(numbers) < 0 or max(numbers) > _MAX_ROWS:
            return None
        if own[_PAGE_ENCODING[kind]] == _DELTA_BYTE_ARRAY:
            return None
        if not (0 <= unpacked <= _MAX_PAGE and 0 <= packed <= len(data) - reader.offset):
            return None
        total += unpacked
        if kind == _DICTIONARY:
            total += each * own[1]
        else:
            seen += own[1]
        offset = reader.offset + packed
    return total if seen == values else None


class _Compact:
    """A reader of Thrift's compact protocol; structs become dictionaries by field number."""

    def __init__(self, data: Bytes, offset: int) -> None:
        self._data = data
        self.offset = offset

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct up to its end."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            fields[number] = self._value(header & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in (_SHORT, _INT, _LONG):
            return self._signed()
        if kind in (_DOUBLE, _BINARY):
            return self._skip(8 if kind == _DOUBLE else self._unsigned())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError("no such type in Parquet")  # it has no maps either

    def _list(self, depth: int) -> list[Any]:
        header = self._byte()
        size = self._unsigned() if header >> 4 == 15 else header >> 4
        kind = header & 15
        if size > len(self._data):  # each element takes a byte or more
            raise ValueError("list longer than the file")
        return [
            self._byte() == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            for _ in range(size)
        ]

    def _byte(self) -> int:
        self.offset += 1
        return self._data[self.offset - 1]

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self.offset:
            raise ValueError("text longer than the file")
        self.offset += size

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("number longer than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
