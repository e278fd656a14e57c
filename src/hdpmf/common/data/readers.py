"""Read and write rating files: CSV, TSV, ``::``-separated and Parquet; text may be gzip-compressed.

Whatever is in a file, reading it ends in columns or in a `RatingsError`: errors of the libraries
underneath do not get out.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data.columns import (
    COLUMNS,
    DOWN,
    UP,
    Columns,
    Layout,
    dated_columns,
    is_known,
    joined_columns,
    match_columns,
    take_columns,
)
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    import polars as pl

    from hdpmf.common.data.table import Ratings


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
    columns: Callable[[Mapping[str, pl.DataType]], Sequence[str]] = list,
) -> Iterator[pl.DataFrame]:
    """Yield the table in batches of rows: neither it nor the file has to fit in memory.

    Args:
        path: The file.
        origin: What it is called, for messages.
        columns: Chooses those that are read, by names and types; what it raises is raised here.

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
        schema = scanned.collect_schema()
        n_rows = int(scanned.select(pl.len()).collect().item())
    except foreign as error:
        raise problem from error
    chosen = list(columns(schema))
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


_GZIP = b"\x1f\x8b"

_BOM = b"\xef\xbb\xbf"

_MARKS = (b"::", b"\t", b",", b";", b"|")

# Stands in for separators of more than one byte, which the CSV engine does not know. It is ASCII's
# own "unit separator": no text field has it.
_UNIT = b"\x1f"


def read_columns(path: str | os.PathLike[str], layout: Layout) -> Columns:
    """Read the columns of a file; see `Ratings.read`."""
    origin = os.path.basename(os.fspath(path))
    if not is_parquet(path):
        return parse_columns(read_bytes(path), origin, layout)
    return joined_columns(_batches(path, origin, layout), origin)


def _batches(path: str | os.PathLike[str], origin: str, layout: Layout) -> Iterator[Columns]:
    """Yield the columns of a Parquet file, of a large one in batches."""
    found: dict[str, str] = {}

    def chosen(schema: Mapping[str, pl.DataType]) -> list[str]:
        found.update(match_columns(list(schema), layout, origin, dated_columns(schema)))
        return list(found.values())

    first = 1
    for batch in read_batches(path, origin, chosen):
        counted = origin if first == 1 else f"{origin} (rows counted from row {first:,} on)"
        yield take_columns(batch, found, counted, layout)
        first += batch.height


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


def parse_columns(data: bytes, origin: str, layout: Layout) -> Columns:
    """Find the columns in the text of a file."""
    data = data.removeprefix(_BOM).rstrip(b" \r\n") + b"\n"
    first = _first_line(data, origin)
    mark = _separator(first)
    quoted = mark in (b",", b";")
    fields = [
        _unquote(field) if quoted else field.strip() for field in first.strip(b"\r\n").split(mark)
    ]
    header = layout.columns is not None or _begins_with_names(fields, layout.implicit)
    if len(mark) > 1:
        if _UNIT in data:
            raise RatingsError(
                f"{origin}: control characters between the fields; is this a rating file?"
            )
        data, mark = data.replace(mark, _UNIT), _UNIT
    names = _names_in(fields, origin) if header else _names_of(fields, origin, layout)
    found = match_columns(names, layout, origin)
    if len(set(names)) != len(names):
        raise RatingsError(f"{origin}: two columns have the same name")
    frame = _frame(data, origin, names, mark.decode(), header, quoted, found)
    if not len(frame):
        raise RatingsError(f"{origin}: there are no ratings in it; at least one row is needed")
    return take_columns(frame, found, origin, layout, written=True)


def _first_line(data: bytes, origin: str) -> bytes:
    first = data.partition(b"\n")[0]
    if not first.strip():
        raise RatingsError(
            f"{origin}: the file is empty or begins with an empty line; it has no ratings"
        )
    if b"\0" in first:
        raise RatingsError(
            f"{origin}: this is not a text file; give a CSV, TSV, '::' or Parquet file"
        )
    return first


def _separator(line: bytes) -> bytes:
    for mark in _MARKS:
        if line.count(mark) >= 2:
            return mark
    if line.strip().count(b" ") >= 2:
        return b" "
    return next((mark for mark in _MARKS if mark in line), b",")


def _names_in(fields: Sequence[bytes], origin: str) -> list[str]:
    try:
        return [field.decode() for field in fields]
    except UnicodeDecodeError:
        raise _not_utf8(origin) from None


def _names_of(fields: Sequence[bytes], origin: str, layout: Layout) -> list[str]:
    """Return our names for the columns of a file without a header."""
    fewest = 3 if layout.implicit is False else 2
    if not fewest <= len(fields) <= len(COLUMNS):
        raise RatingsError(
            f"{origin}: a file without a header has {fewest} to 4 columns (user, item, rating, "
            f"timestamp) but this one has {len(fields)}; check the separator or add a header line"
        )
    if layout.implicit is not False and len(fields) == 3 and _is_time(fields[2]):
        return ["user", "item", "timestamp"]
    return list(COLUMNS[: len(fields)])


def _frame(
    data: bytes,
    origin: str,
    names: list[str],
    mark: str,
    header: bool,
    quoted: bool,
    found: Mapping[str, str],
) -> pl.DataFrame:
    """Cut the text: ids as they are written, numbers as such where all are written so."""
    import polars as pl

    # By position: names in the file could be anything, and repeat what the engine reserves.
    labels = {name: f"column_{number}" for number, name in enumerate(names, start=1)}
    wanted = list(found.values())

    def cut(types: dict[str, type[pl.DataType]]) -> pl.DataFrame:
        ours = {found[ours]: kind for ours, kind in types.items() if ours in found}
        frame = pl.read_csv(
            data,
            has_header=False,
            skip_lines=1 if header else 0,
            separator=mark,
            quote_char='"' if quoted else None,
            schema={label: ours.get(name, pl.String) for name, label in labels.items()},
            columns=[labels[name] for name in wanted],
        )
        return frame.select(pl.col(labels[name]).alias(name) for name in wanted)

    numbers: dict[str, type[pl.DataType]] = {"rating": pl.Float64, "timestamp": pl.Int64}
    for typed in (2, 1, 0):
        try:
            return cut(dict(list(numbers.items())[:typed]))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
            continue
    raise _unreadable(data, origin, len(names), mark.encode(), header, quoted)


def _unreadable(
    data: bytes, origin: str, width: int, mark: bytes, header: bool, quoted: bool
) -> RatingsError:
    try:
        data.decode()
    except UnicodeDecodeError:
        return _not_utf8(origin)
    for row, line in enumerate(data.splitlines(), start=0 if header else 1):
        if line.count(mark) >= width and not quoted:
            return RatingsError(
                f"{origin}: row {row:,} has more than {width} fields; correct or remove it"
            )
    return RatingsError(
        f"{origin}: the lines do not all have {width} fields, or a quote is not closed; check the "
        "file and the separator"
    )


def _not_utf8(origin: str) -> RatingsError:
    return RatingsError(
        f"{origin}: the file is not UTF-8 text; save it as UTF-8 (or as Parquet) and try again"
    )


def _begins_with_names(fields: list[bytes], implicit: bool | None) -> bool:
    """Check that a first line holds column names: in place of the rating it has no number."""
    if implicit is False or (len(fields) > 2 and not implicit):
        return len(fields) < 3 or not _is_number(fields[2])
    # Without ratings: what anybody calls users or items; or words, which few ids are.
    texts = [field.decode(errors="replace") for field in fields]
    known = any(is_known(text, ours) for text in texts for ours in COLUMNS)
    return known or not any(map(str.isdigit, "".join(texts)))


def _unquote(field: bytes) -> bytes:
    field = field.strip()
    return field[1:-1] if len(field) >= 2 and field[:1] == field[-1:] == b'"' else field


def _is_number(field: bytes) -> bool:
    if not field or field.strip().lower().decode(errors="replace") in (*UP, *DOWN):
        return True  # a rating that is missing, and the message about it will say so; or a thumb
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_time(field: bytes) -> bool:
    """Tell a date, or a number of seconds since 1970 after 1973, from a count of clicks."""
    digits = field.strip()
    return not digits.isdigit() or int(digits) >= 10**8


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
    columns = {
        "user": pl.Series(ratings.users.ids.tolist()).gather(ratings.user_codes),
        "item": pl.Series(ratings.items.ids.tolist()).gather(ratings.item_codes),
    }
    if not ratings.implicit:
        # "4" and not "4.0" where nobody gave half a star.
        whole = np.rint(ratings.values)
        same = np.array_equal(whole, ratings.values)
        columns["rating"] = pl.Series(whole.astype(np.int32) if same else ratings.values)
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
