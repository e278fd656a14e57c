"""Read and write rating files: CSV, TSV, ``::``-separated and Parquet, plain or gzip-compressed.

Whatever is in a file, reading it ends in columns or in a `RatingsError`: errors of the libraries
underneath do not get out.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data.checks import Missing
from hdpmf.common.data.columns import (
    COLUMNS,
    ColumnNames,
    Columns,
    absent,
    is_known,
    joined_columns,
    match_columns,
    parse_ids,
    parse_numbers,
    parse_times,
    present_rows,
    take_columns,
)
from hdpmf.common.data.parquet_guard import FREE_BYTES, MOST_EXPANSION, read_batches, read_frame
from hdpmf.errors import ConfigError, RatingsError, hint, without_notes

if TYPE_CHECKING:
    import polars as pl

    from hdpmf.common.data.table import Ratings


_GZIP = b"\x1f\x8b"

_PARQUET = b"PAR1"

_BOM = b"\xef\xbb\xbf"

_MARKS = (b"::", b"\t", b",", b";", b"|")

# How many rows tell which columns are worth parsing as numbers.
_PROBED_ROWS = 1000

# Stands in for separators of more than one byte, which the CSV engine does not know. It is ASCII's
# own "unit separator": no text field has it.
_UNIT = b"\x1f"


_STREAMED_BYTES = 16 << 20
"""Parquet files above this are read batch by batch."""

_BATCH_ROWS = 2_000_000


def read_columns(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    implicit: bool | None = False,
    missing: Missing = "error",
) -> Columns:
    """Read the columns of one file or several; see `Ratings.read` for the arguments."""

    def read(file: str | os.PathLike[str]) -> Columns:
        if _is_large_parquet(file):
            return _stream_parquet(file, columns, implicit, missing)
        return parse_columns(
            read_bytes(file),
            os.path.basename(os.fspath(file)),
            columns=columns,
            separator=separator,
            header=header,
            implicit=implicit,
            missing=missing,
        )

    first, *others = files_at(path)
    found = read(first)
    if not others:
        return found
    # One file, or one batch of a large one, at a time as it is written, the others as codes:
    # together they may be larger than memory.
    parts = [found.coded()]
    with without_notes():  # which columns are used is said once
        parts += (read(file).coded() for file in others)
    return joined_columns(parts, os.fspath(path))


def files_at(path: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the file itself, the Parquet files in a folder, or the files that fit a pattern.

    Raises:
        RatingsError: There is none.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(each for each in place.rglob("*.parquet") if each.is_file())
        wanted = "Parquet file in the folder"
    elif not place.exists() and glob.has_magic(os.fspath(path)):
        found = sorted(Path(each) for each in glob.glob(os.fspath(path), recursive=True))
        wanted = "file that fits"
    else:
        return [path]
    if not found:
        raise RatingsError(f"there is no {wanted} {os.fspath(path)}; check the path")
    return [*found]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file, unpacked if it is gzip-compressed."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise RatingsError(f"there is no file {os.fspath(path)}; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise RatingsError(f"could not read {os.fspath(path)!r}: {reason}") from error
    return decompress(data, os.path.basename(os.fspath(path)))


def decompress(data: bytes, origin: str) -> bytes:
    """Unpack gzip, whatever the file is called; leave everything else as it is."""
    if not data.startswith(_GZIP):
        return data
    most = max(FREE_BYTES, MOST_EXPANSION * len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            unpacked = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RatingsError(
            f"{origin}: the gzip file is truncated or corrupted; get it again from where it came"
        ) from error
    if len(unpacked) > most:
        raise RatingsError(
            f"{origin}: the gzip file has {len(data):,} bytes and unpacks to more than {most:,}, "
            "which no table of items or ratings does; unpack it yourself if you trust it"
        )
    return unpacked


def parse_columns(
    data: bytes,
    origin: str,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    implicit: bool | None = False,
    missing: Missing = "error",
) -> Columns:
    """Find the columns in the content of a file."""
    if data.startswith(_PARQUET):
        return _parse_parquet(data, origin, columns, implicit, missing)
    text = data.removeprefix(_BOM)
    return _typed(*_text_table(text, origin, columns, separator, header, implicit), missing)


def _parse_parquet(
    data: bytes,
    origin: str,
    columns: Mapping[str, str] | None,
    implicit: bool | None,
    missing: Missing,
) -> Columns:
    found: list[ColumnNames] = []

    def chosen(names: Sequence[str]) -> list[str]:
        found.append(match_columns(names, columns, origin, implicit))
        return found[0].names

    frame = read_frame(data, origin, chosen)
    return take_columns(frame, found[0], origin, missing)


def _is_large_parquet(path: str | os.PathLike[str]) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == _PARQUET and os.path.getsize(path) > _STREAMED_BYTES
    except (OSError, ValueError):
        return False  # whoever reads it says why


def _stream_parquet(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None,
    implicit: bool | None,
    missing: Missing,
) -> Columns:
    """Read a Parquet file that need not fit in memory: ids become codes batch by batch."""
    origin = os.path.basename(os.fspath(path))
    found: list[ColumnNames] = []

    def chosen(names: Sequence[str]) -> list[str]:
        found.append(match_columns(names, columns, origin, implicit))
        return found[0].names

    parts: list[Columns] = []
    first = 1
    for batch in read_batches(path, origin, chosen, _BATCH_ROWS):
        counted = origin if first == 1 else f"{origin} (rows counted from row {first:,} on)"
        parts.append(take_columns(batch, found[0], counted, missing).coded())
        first += batch.height
    return joined_columns(parts, origin)


def _text_table(
    data: bytes,
    origin: str,
    columns: Mapping[str, str] | None,
    separator: str | None,
    header: bool | None,
    implicit: bool | None,
) -> tuple[_TextTable, ColumnNames]:
    if separator is not None and (not separator or separator in ("\n", "\r", '"')):
        raise ConfigError(
            "separator must be one or more characters other than a line end or a quote"
        )
    first = _first_line(data)
    if not first.strip():
        raise RatingsError(
            f"{origin}: the file is empty or begins with an empty line; it has no ratings"
        )
    if b"\0" in first:
        raise RatingsError(
            f"{origin}: this is not a text file; give a CSV, TSV, '::' or Parquet file"
        )
    mark = separator.encode() if separator is not None else _guess_separator(first)
    quoted = mark in (b",", b";")
    fields = [
        _unquote(field) if quoted else field.strip() for field in first.strip(b"\r\n").split(mark)
    ]
    if header is None:
        header = columns is not None or _begins_with_names(fields, implicit)
    if len(mark) > 1:
        if _UNIT in data:
            raise RatingsError(
                f"{origin}: control characters between the fields; is this a rating file?"
            )
        data, mark = data.replace(mark, _UNIT), _UNIT
    if header:
        try:
            names = [field.decode() for field in fields]
        except UnicodeDecodeError:
            raise _not_utf8(origin) from None
        found = match_columns(names, columns, origin, implicit)
        if len(set(names)) != len(names):
            raise RatingsError(f"{origin}: two columns have the same name")
    elif columns is not None:
        raise ConfigError(
            f"{hint('columns', 'user')} names a header's column, but the file is read without one"
        )
    else:
        if not (2 if implicit else 3) <= len(fields) <= len(COLUMNS):
            raise RatingsError(
                f"{origin}: a file without a header has 3 or 4 columns (user, item, rating, "
                "timestamp) but "
                f"this one has {len(fields)}; check the separator or add a header line"
            )
        names = list(COLUMNS[: len(fields)])
        found = match_columns(names, None, origin, implicit)
    return _TextTable(data, origin, names, mark.decode(), header, quoted), found


class _TextTable:
    """The content of a delimited file and how to cut it."""

    def __init__(
        self, data: bytes, origin: str, names: list[str], mark: str, header: bool, quoted: bool
    ) -> None:
        self.data = data
        self.origin = origin
        self.names = names
        self.mark = mark
        self.header = header
        self.quoted = quoted

    def frame(self, types: dict[str, type[pl.DataType]], rows: int | None = None) -> pl.DataFrame:
        import polars as pl

        # By position: names in the file could be anything, and repeat what the engine reserves.
        labels = {name: f"column_{number}" for number, name in enumerate(self.names, start=1)}
        frame = pl.read_csv(
            io.BytesIO(self.data),
            has_header=False,
            skip_lines=1 if self.header else 0,
            separator=self.mark,
            quote_char='"' if self.quoted else None,
            schema={label: types.get(name, pl.String) for name, label in labels.items()},
            columns=[labels[name] for name in types],
            n_rows=rows,
        )
        return frame.select(pl.col(labels[name]).alias(name) for name in types)


def _typed(table: _TextTable, found: ColumnNames, missing: Missing) -> Columns:
    """Parse columns by their first rows, which is fast; where that fails, parse all as text."""
    import polars as pl

    foreign = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)
    text: dict[str, type[pl.DataType]] = dict.fromkeys(found.names, pl.String)
    numeric: dict[str, type[pl.DataType]] = {}
    if found.rating is not None:
        numeric[found.rating] = pl.Float64
    if found.timestamp is not None:
        numeric[found.timestamp] = pl.Int64
    try:
        begin = table.frame(text, rows=_PROBED_ROWS)
        frame = table.frame(
            text | {name: kind for name, kind in numeric.items() if _all_are(kind, begin[name])}
        )
    except foreign:
        try:
            frame = table.frame(text)
        except foreign as error:
            raise _unreadable(table) from error
    if not len(frame):
        raise RatingsError(
            f"{table.origin}: there are no ratings in it; at least one row is needed"
        )
    n_rows, rating, times = len(frame), found.rating, found.timestamp
    rows = {
        ours: absent(frame[theirs], number=theirs in numeric)
        for ours, theirs in found.by_ours.items()
    }
    present, counts = present_rows(rows, table.origin, missing)
    if present is not None:
        frame = frame.filter(pl.Series(present))
    return Columns(
        missing=counts,
        n_dropped=n_rows - len(frame),
        user=parse_ids(frame[found.user]),
        item=parse_ids(frame[found.item]),
        rating=None
        if rating is None
        else parse_numbers(frame[rating], "rating", table.origin).to_numpy(),
        timestamp=None
        if times is None
        else found.times(lambda: parse_times(frame[times], table.origin).to_numpy(), table.origin),
    )


def _all_are(kind: type[pl.DataType], series: pl.Series) -> bool:
    return not series.cast(kind, strict=False).null_count()


def _unreadable(table: _TextTable) -> RatingsError:
    try:
        table.data.decode()
    except UnicodeDecodeError:
        return _not_utf8(table.origin)
    mark = table.mark.encode()
    for row, line in enumerate(table.data.splitlines(), start=0 if table.header else 1):
        if line.count(mark) >= len(table.names) and not table.quoted:
            return RatingsError(
                f"{table.origin}: row {row:,} has more than {len(table.names)} fields; correct "
                "or remove it"
            )
    return RatingsError(
        f"{table.origin}: the lines do not all have {len(table.names)} fields, or a quote is not "
        "closed; check the file and the separator"
    )


def _not_utf8(origin: str) -> RatingsError:
    return RatingsError(
        f"{origin}: the file is not UTF-8 text; save it as UTF-8 (or as Parquet) and try again"
    )


def _first_line(data: bytes) -> bytes:
    end = data.find(b"\n")
    return data if end < 0 else data[:end]


def _guess_separator(line: bytes) -> bytes:
    for mark in _MARKS:
        if line.count(mark) >= 2:
            return mark
    if line.strip().count(b" ") >= 2:
        return b" "
    return next((mark for mark in _MARKS if mark in line), b",")


def _begins_with_names(fields: list[bytes], implicit: bool | None) -> bool:
    """Check that a first line holds column names: in place of the rating it has no number."""
    if len(fields) > 2:
        return not _is_number(fields[2])
    return not implicit or all(
        is_known(field.decode(errors="replace"), ours)
        for field, ours in zip(fields, COLUMNS, strict=False)
    )


def _unquote(field: bytes) -> bytes:
    field = field.strip()
    return field[1:-1] if len(field) >= 2 and field[:1] == field[-1:] == b'"' else field


def _is_number(field: bytes) -> bool:
    if not field:
        return True  # a rating that is missing, and the message about it will say so
    try:
        float(field)
    except ValueError:
        return False
    return True


def write_ratings(ratings: Ratings, path: str | os.PathLike[str]) -> None:
    """Write ratings as CSV, TSV or Parquet, by the ending of the name, with a header.

    Ratings are private: the file is readable by its owner only.
    """
    import polars as pl

    ending = Path(path).suffix.lower()
    if ending not in (".csv", ".tsv", ".parquet"):
        raise ConfigError(
            f"ratings are written to .csv, .tsv or .parquet, not to '{Path(path).name}'"
        )
    values = ratings.values
    whole = np.rint(values)
    columns = {
        "user": pl.Series(ratings.users.ids.tolist()).gather(ratings.user_codes),
        "item": pl.Series(ratings.items.ids.tolist()).gather(ratings.item_codes),
        # "4" and not "4.0" where nobody gave half a star.
        "rating": pl.Series(whole.astype(np.int32) if np.array_equal(whole, values) else values),
    }
    if ratings.implicit:
        del columns["rating"]
    if ratings.timestamps is not None:
        columns["timestamp"] = pl.Series(ratings.timestamps)
    frame = pl.DataFrame(columns)
    buffer = io.BytesIO()
    if ending == ".parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(
            buffer, separator="," if ending == ".csv" else "\t", quote_style="necessary"
        )
    atomic_write(path, buffer.getvalue(), mode=0o600)
