"""The columns user, item, rating and timestamp: found by name, parsed, taken out of tables.

Errors name the row; none ever shows a rating.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import ConfigError, RatingsError, hint, notify

if TYPE_CHECKING:
    import polars as pl


COLUMNS = ("user", "item", "rating", "timestamp")
_NUMBERS = ("rating", "timestamp")

Missing = Literal["error", "drop"]
"""The rule for rows in which something is missing."""


@dataclass(frozen=True)
class Layout:
    """What a caller says about a table.

    Attributes:
        columns: Names of columns, by ours.
        implicit: True: ratings are not looked for; False: they have to be there; None: they may be
            absent, with a word about it.
        missing: What becomes of rows without something.
    """

    columns: Mapping[str, str] | None = None
    implicit: bool | None = False
    missing: Missing = "error"

    def __post_init__(self) -> None:
        if self.columns is not None and not isinstance(self.columns, Mapping):
            raise ConfigError(f"columns are named by ours, as in {hint('columns', 'user')}")
        if self.implicit not in (True, False, None):
            raise ConfigError(f"implicit is True, False or None, not {self.implicit!r}")
        if self.missing not in get_args(Missing):
            raise ConfigError(f"missing values are treated as error or drop, not {self.missing!r}")


# In lower case, letters and digits only. Which are used is said where they are not the first ones.
_USUAL = frozenset(("user", "userid", "item", "itemid", "movieid", "rating", "timestamp"))
_NAMES = {
    "user": (
        "user", "userid", "uid", "customer", "customerid", "member", "memberid", "reviewer",
        "reviewerid", "visitor", "visitorid", "reader", "readerid",
    ),
    "item": (
        "item", "itemid", "iid", "movie", "movieid", "film", "filmid", "book", "bookid", "isbn",
        "product", "productid", "article", "articleid", "asin", "sku", "business", "businessid",
        "song", "songid", "track", "trackid", "game", "gameid",
    ),
    "rating": ("rating", "stars", "score", "overall", "bookrating"),
    "timestamp": ("timestamp", "time", "date", "datetime", "when", "ratedat", "createdat"),
}  # fmt: skip


def match_columns(
    names: Sequence[str], layout: Layout, origin: str, dated: Sequence[str] = ()
) -> dict[str, str]:
    """Return the names of columns by ours; ``origin`` is what they are from.

    ``dated`` are columns that hold dates by their type: where no name says which one has the times,
    a single one does.
    """
    wanted, implicit = dict(layout.columns or {}), layout.implicit
    strange = set(wanted) - set(COLUMNS)
    if strange:
        raise ConfigError(
            f"columns are called {', '.join(COLUMNS)} here, as in {hint('columns', 'user')}; "
            f"unknown: {', '.join(sorted(strange))}"
        )
    if implicit and "rating" in wanted:
        raise ConfigError("implicit feedback has no ratings to read; name no column for them")
    found: dict[str, str] = {}
    for ours in COLUMNS:
        if ours == "rating" and implicit:
            continue
        candidates = _candidates(names, ours, wanted.get(ours))
        if ours == "timestamp" and not candidates and ours not in wanted and len(dated) == 1:
            candidates = list(dated)
        if len(candidates) == 1:
            found[ours] = candidates[0]
        elif len(candidates) > 1:
            raise RatingsError(
                f"{origin}: more than one column could be '{ours}' ({_listed(candidates)}); say "
                f"which with {hint('columns', ours)}"
            )
        elif ours not in _NUMBERS or ours in wanted or (ours == "rating" and implicit is False):
            or_none = ""
            if ours == "rating":
                or_none = f", or that there is none (clicks, purchases) with {hint('implicit')}"
            raise RatingsError(
                f"{origin}: no column '{wanted.get(ours, ours)}' among {_listed(names)}; "
                f"say which one it is with {hint('columns', ours)}{or_none}"
            )
    if "rating" not in found and not implicit:
        notify(
            f"{origin}: no column of ratings among {_listed(names)}, so this is read as "
            "implicit feedback: who chose "
            f"what, nothing more. If there is one, say which with {hint('columns', 'rating')}"
        )
    else:
        _report_use(names, found, wanted, origin)
    return found


def dated_columns(schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return the columns whose type is a date, or a date and a time."""
    import polars as pl

    return [name for name, kind in schema.items() if kind in (pl.Date, pl.Datetime)]


def _report_use(
    names: Sequence[str], found: Mapping[str, str], wanted: Mapping[str, str], origin: str
) -> None:
    """Say which columns are used, if some are not, or have a name that may mean something else."""
    unused = [name for name in names if name not in found.values()]
    odd = [ours for ours in found if ours not in wanted and _normalized(found[ours]) not in _USUAL]
    if not unused and not odd:
        return
    words = ", ".join(ours if ours == found[ours] else f"{ours} = {found[ours]}" for ours in found)
    others = f"; not used: {_listed(unused).removeprefix('columns ')}" if unused else ""
    example = odd[0] if odd else "user" if "timestamp" in found else "timestamp"
    notify(
        f"{origin}: columns used: {words}{others}; say otherwise with {hint('columns', example)}"
    )


def is_known(name: str, ours: str) -> bool:
    """Check that a column of that name would be taken for that one of ours."""
    return _normalized(name) in _NAMES[ours]


def _candidates(names: Sequence[str], ours: str, wanted: str | None) -> list[str]:
    """Return the columns that could be it."""
    if wanted is not None:
        return [name for name in names if name == wanted]
    if ours in names:
        return [ours]
    known = [name for name in names if is_known(name, ours)]
    return [name for name in known if _normalized(name) in _USUAL] or known


def _normalized(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _listed(names: Sequence[str]) -> str:
    """List column names, leaving out what looks like data, not names."""
    shown = [name for name in names if name[:1].isalpha() and len(name) <= 40][:12]
    if shown:
        return f"columns {', '.join(shown)}"
    # Most often a file without a header, and with something else than a number for a rating.
    return f"{len(names)} columns without names (or: the third is to hold numbers, and does not)"


_DATES = tuple(
    f"{day}{hour}"
    for day in ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y")
    for hour in (" %H:%M:%S%.f", " %H:%M", "")
)


UP, DOWN = ("true", "yes", "up", "like"), ("false", "no", "down", "dislike")
"""Words for thumbs, in lower case."""


def parse_ids(series: pl.Series) -> pl.Series:
    """Make ids integers if all are written as integers are: beside ``007``, ``7`` stays text.

    Blanks around an id are no part of it.
    """
    import polars as pl

    if series.dtype != pl.String:
        return series
    text = series.str.strip_chars()
    integers = text.str.to_integer(strict=False)
    return integers if text.equals(integers.cast(pl.String)) else text


def _numbers(series: pl.Series, what: str, origin: str) -> pl.Series:
    """Numbers as they are, or from text; the first row that has none is named."""
    import polars as pl

    if _is_thumbs(series):
        return series.cast(pl.String).str.strip_chars().str.to_lowercase().is_in(UP)
    if series.dtype == pl.String:
        numbers = series.str.strip_chars().cast(pl.Float64, strict=False)
    elif series.dtype == pl.Object:  # a column of pandas that lost its type
        listed = [value if _is_number(value) else None for value in series.to_list()]
        numbers = pl.Series(listed, dtype=pl.Float64, strict=False)
    elif series.dtype.is_numeric():
        numbers = series
    else:
        raise RatingsError(f"{origin}: column '{what}' must hold numbers, not {series.dtype}")
    if numbers.null_count():
        row = int(numbers.is_null().arg_true()[0])
        problem = "not a number"
        if what == "timestamp":
            problem = "no time (seconds since 1970, 2020-12-31 10:00, 31.12.2020)"
        raise RatingsError(
            f"{origin}: column '{what}', row {row + 1:,}: {problem}; correct or remove the "
            "row (or check the separator)"
        )
    return numbers


def _is_thumbs(series: pl.Series) -> bool:
    """Return True for a column of booleans, or of words for up and down."""
    import polars as pl

    if series.dtype != pl.String:
        return series.dtype == pl.Boolean
    words = series.str.strip_chars().str.to_lowercase()
    return len(words) > 0 and bool(words.is_in((*UP, *DOWN)).all())


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _times(series: pl.Series, origin: str) -> pl.Series:
    """Read seconds since 1970, dates and times, or these as ISO 8601 writes them."""
    import polars as pl

    if series.dtype in (pl.Date, pl.Datetime):
        return series.cast(pl.Datetime("us")).dt.epoch("s")
    if series.dtype == pl.String:
        text = series.str.strip_chars().str.replace("T", " ", literal=True).str.strip_suffix("Z")
        if not text.cast(pl.Float64, strict=False).is_not_null().any():
            for form in _DATES:
                dates = text.str.strptime(pl.Datetime("us"), form, strict=False)
                if not dates.null_count() and bool((dates.dt.year() > 99).all()):  # 31.12.20
                    return dates.dt.epoch("s")
            dates = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%:z", time_zone="UTC", strict=False)
            if not dates.null_count():
                return dates.dt.epoch("s")
    return _numbers(series, "timestamp", origin)


@dataclass(frozen=True)
class Columns:
    """The columns of a table under our names, not yet validated.

    Attributes:
        frame: The ids, and ratings and times if there are any.
        missing: Of the rows that were left out, how many have nothing in each column.
        n_dropped: How many rows were left out.
        thumbs: Whether the ratings are booleans, up or down: 1 and 0 here.
    """

    frame: pl.DataFrame
    missing: Mapping[str, int]
    n_dropped: int
    thumbs: bool = False

    def get(self, ours: str) -> NDArray[Any] | None:
        """Return the numbers of a column, or None where there is none."""
        return self.frame[ours].to_numpy() if ours in self.frame.columns else None

    def report_missing(self, origin: str) -> None:
        """Say how many rows were left out, if any."""
        if self.n_dropped:
            where = ", ".join(f"{ours} in {count:,}" for ours, count in self.missing.items())
            notify(
                f"{origin}: {self.n_dropped:,} rows are left out, because something is missing: "
                f"{where}"
            )


def take_columns(
    frame: pl.DataFrame,
    found: Mapping[str, str],
    origin: str,
    layout: Layout,
    *,
    written: bool = False,
) -> Columns:
    """Take the columns that were found out of a frame.

    Args:
        written: Ids are as they are written in a file: those of a column that are all integers
            become integers.

    Raises:
        RatingsError: Something is missing, and that is an error; or all rows miss
            something; or a rating is no number.
    """
    import polars as pl

    n_rows = len(frame)
    absent = {
        ours: _absent(frame[theirs], number=ours in _NUMBERS) for ours, theirs in found.items()
    }
    counts = {ours: int(rows.sum()) for ours, rows in absent.items() if rows.any()}
    if counts and layout.missing == "error":
        ours = next(iter(counts))
        more = "".join(f"; column '{name}': {n:,}" for name, n in counts.items() if name != ours)
        raise RatingsError(
            f"{origin}: column '{ours}', row {int(np.argmax(absent[ours])) + 1:,}: missing "
            f"({counts[ours]:,} such rows{more}); correct or remove them, or leave them out with "
            f"{hint('drop')}"
        )
    if counts:
        frame = frame.filter(~np.logical_or.reduce(list(absent.values())))
        if not len(frame):
            raise RatingsError(f"{origin}: in every row something is missing; check the columns")
    columns = {ours: frame[theirs] for ours, theirs in found.items()}
    if written:
        columns |= {ours: parse_ids(columns[ours]) for ours in ("user", "item")}
    thumbs = "rating" in columns and _is_thumbs(columns["rating"])
    if "rating" in columns:
        columns["rating"] = _numbers(columns["rating"], "rating", origin).cast(pl.Float64)
    if "timestamp" in columns:
        times = columns.pop("timestamp")
        try:
            columns["timestamp"] = _times(times, origin)
        except RatingsError:
            if "timestamp" in (layout.columns or ()) or _normalized(times.name) in _USUAL:
                raise
            notify(f"{origin}: column '{times.name}' holds no times, so it is left out")
    return Columns(pl.DataFrame(columns), counts, n_rows - len(frame), thumbs)


# Texts that spreadsheets and other programs write where there is no number.
_NO_NUMBER = ("", "na", "n/a", "nan", "null", "none")


def _absent(series: pl.Series, *, number: bool) -> NDArray[np.bool_]:
    """Return which entries of a column are missing; ``number`` if it should hold numbers."""
    import polars as pl

    rows = series.is_null()
    if series.dtype == pl.String:
        text = series.str.strip_chars()
        words = text.str.to_lowercase().is_in(_NO_NUMBER) if number else text == ""
        rows = rows | words.fill_null(False)
    elif series.dtype.is_float():
        rows = rows | series.is_nan().fill_null(False)
    elif series.dtype == pl.Object:
        rows = pl.Series([value is None or value != value for value in series.to_list()])
    return rows.to_numpy()


def joined_columns(parts: Iterable[Columns], origin: str) -> Columns:
    """Return the rows of the batches of a table, one after the other.

    Each is kept as numbers and categories as it comes: together they may be larger than memory as
    they are written.
    """
    import polars as pl

    kept, counts, n_dropped, thumbs = [], Counter[str](), 0, True
    for part in parts:
        thumbs = thumbs and part.thumbs
        texts = pl.col(pl.String).exclude(*_NUMBERS).cast(pl.Categorical)
        kept.append(part.frame.with_columns(texts, pl.col("^rating$").cast(pl.Float32)))
        counts.update(part.missing)
        n_dropped += part.n_dropped
    return Columns(pl.concat(kept, how="vertical_relaxed"), counts, n_dropped, thumbs)


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

    names = list(data.columns) if hasattr(data, "iloc") and hasattr(data, "columns") else []
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise RatingsError(f"{origin}: each column of a frame needs a name of its own, as text")
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
    written = column.cast(nw.String) if column.dtype == nw.Categorical else column
    gone = column.is_null().to_list()  # NaN, NA and NaT, too
    listed = [None if no else each for each, no in zip(written.to_list(), gone, strict=True)]
    # Parquet's lists come as arrays.
    listed = [each.tolist() if isinstance(each, np.ndarray) else each for each in listed]
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
    kind = np.asarray(entries.data).dtype.kind
    if kind == "b" and not layout.implicit:
        raise RatingsError(
            f"{origin}: a matrix of booleans says who chose what; say so with {hint('implicit')}"
        )
    if kind not in "biuf":
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
