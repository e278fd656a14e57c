"""The columns user, item, rating and timestamp: found by name, parsed, taken out of frames.

Errors name the row; none ever shows a rating.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.checks import Missing
from hdpmf.common.data.ids import Coded, factorise, join_coded
from hdpmf.errors import ConfigError, RatingsError, hint, notify

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
COLUMNS = ("user", "item", "rating", "timestamp")
_OPTIONAL = ("rating", "timestamp")

# Spellings in lower case, letters and digits only. Guesses are reported to the user.
_SPELLINGS = {
    "user": ("user", "userid"),
    "item": ("item", "itemid", "movieid"),
    "rating": ("rating",),
    "timestamp": ("timestamp",),
}

_GUESSES = {
    "user": (
        "uid", "users", "customer", "customerid", "client", "clientid", "member", "memberid",
        "reviewer", "reviewerid", "account", "accountid", "visitor", "visitorid", "person",
        "personid", "reader", "readerid",
    ),
    "item": (
        "iid", "items", "movie", "film", "filmid", "book", "bookid", "isbn", "product", "productid",
        "article", "articleid", "asin", "sku", "ean", "business", "businessid", "song", "songid",
        "track", "trackid", "game", "gameid", "recipe", "recipeid",
    ),
    "rating": (
        "ratings", "stars", "star", "score", "overall", "grade", "bookrating", "reviewrating",
        "ratingvalue",
    ),
    "timestamp": (
        "time", "date", "datetime", "ratedat", "createdat", "unixreviewtime", "reviewtime",
        "eventtime", "ratingtimestamp",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ColumnNames:
    """The names of the columns in their source; ``rating`` is None for implicit feedback."""

    user: str
    item: str
    rating: str | None
    timestamp: str | None
    guessed: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [name for name in (self.user, self.item, self.rating, self.timestamp) if name]

    @property
    def by_ours(self) -> dict[str, str]:
        """Their names by ours."""
        named = {ours: getattr(self, ours) for ours in COLUMNS}
        return {ours: theirs for ours, theirs in named.items() if theirs is not None}

    def times(self, read: Callable[[], T], origin: str) -> T | None:
        """The times; none where their column was a guess that turns out to be wrong."""
        try:
            return read()
        except RatingsError:
            if "timestamp" not in self.guessed:
                raise
            notify(
                f"{origin}: column '{self.timestamp}' holds no times that can be read, so it is "
                "left out"
            )
            return None


def match_columns(
    names: Sequence[str],
    wanted: Mapping[str, str] | None,
    origin: str,
    implicit: bool | None = False,
) -> ColumnNames:
    """Find which column is which.

    Args:
        names: The columns there are.
        wanted: Names given by the caller, by our names.
        origin: What the columns are from, for messages.
        implicit: True: ratings are not looked for; False: they have to be there; None: they may be
            absent, with a word about it.
    """
    wanted = dict(wanted or {})
    strange = set(wanted) - set(COLUMNS)
    if strange:
        raise ConfigError(
            f"columns are called {', '.join(COLUMNS)} here, as in {hint('columns', 'user')}; "
            f"unknown: {', '.join(sorted(strange))}"
        )
    if implicit and "rating" in wanted:
        raise ConfigError("implicit feedback has no ratings to read; name no column for them")
    found: dict[str, str] = {}
    guessed: list[str] = []
    for ours in COLUMNS:
        if ours == "rating" and implicit:
            continue
        candidates, sure = _candidates(names, ours, wanted.get(ours))
        if len(candidates) == 1:
            found[ours] = candidates[0]
            if not sure:
                guessed.append(ours)
        elif len(candidates) > 1 and (sure or ours != "timestamp"):
            raise RatingsError(
                f"{origin}: more than one column could be '{ours}' ({_listed(candidates)}); say "
                f"which with {hint('columns', ours)}"
            )
        elif ours not in _OPTIONAL or ours in wanted or (ours == "rating" and implicit is False):
            or_none = ""
            if ours == "rating":
                or_none = f", or that there is none (clicks, purchases) with {hint('implicit')}"
            raise RatingsError(
                f"{origin}: no column '{wanted.get(ours, ours)}' among {_listed(names)}; "
                f"say which one it is with {hint('columns', ours)}{or_none}"
            )
    read_as_implicit = "rating" not in found and not implicit
    if guessed or not read_as_implicit:  # that has a message of its own, with all columns
        _report_use(names, found, guessed, origin)
    if read_as_implicit:
        notify(
            f"{origin}: no column of ratings among {_listed(names)}, so this is read as "
            "implicit feedback: who chose "
            f"what, nothing more. If there is one, say which with {hint('columns', 'rating')}"
        )
    return ColumnNames(
        found["user"], found["item"], found.get("rating"), found.get("timestamp"), tuple(guessed)
    )


def _report_use(
    names: Sequence[str], found: Mapping[str, str], guessed: Sequence[str], origin: str
) -> None:
    """Say which columns are used, if some were guessed or some are not used."""
    unused = [name for name in names if name not in found.values()]
    told = guessed or (found if unused else ())
    if not told:
        return
    how = "columns guessed by their names" if guessed else "columns used"
    words = ", ".join(ours if ours == found[ours] else f"{ours} = {found[ours]}" for ours in told)
    others = f"; not used: {_listed(unused).removeprefix('columns ')}" if unused else ""
    example = guessed[0] if guessed else "user" if "timestamp" in found else "timestamp"
    notify(f"{origin}: {how}: {words}{others}; say otherwise with {hint('columns', example)}")


def is_known(name: str, ours: str) -> bool:
    """Check that a column of that name would be taken for that one of ours."""
    return _normalized(name) in (*_SPELLINGS[ours], *_GUESSES[ours])


def _candidates(names: Sequence[str], ours: str, wanted: str | None) -> tuple[list[str], bool]:
    """The columns that could be it, and whether that is sure (if there is a single one)."""
    if wanted is not None:
        return [name for name in names if name == wanted], True
    if ours in names:
        return [ours], True
    usual = [name for name in names if _normalized(name) in _SPELLINGS[ours]]
    if usual:
        return usual, True
    return [name for name in names if _normalized(name) in _GUESSES[ours]], False


def _normalized(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _listed(names: Sequence[str]) -> str:
    """List column names, leaving out what looks like data, not names."""
    shown = [name for name in names if name[:1].isalpha() and len(name) <= 40][:12]
    return ("columns " + ", ".join(shown)) if shown else f"{len(names)} columns without names"


_DATES = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def parse_ids(series: pl.Series) -> pl.Series:
    """Make ids integers if all are written as integers are: beside ``007``, ``7`` stays text.

    Blanks around an id are no part of it.
    """
    import polars as pl

    if series.dtype != pl.String:
        return series
    integers = _as_written(series)
    if integers is not None:
        return integers
    # There are far fewer ids than rows, so they are looked at instead.
    distinct = series.unique(maintain_order=True)
    stripped = distinct.str.strip_chars()
    if stripped.equals(distinct, null_equal=True):
        return series
    series = series.str.strip_chars()
    integers = _as_written(series)
    return series if integers is None else integers


def _as_written(text: pl.Series) -> pl.Series | None:
    """Return the integers, or None if a text is not how its integer is written."""
    integers = text.str.to_integer(strict=False)
    if integers.null_count():
        return None
    # Any other spelling of an integer (leading zeros, a plus, minus zero) is longer than the usual
    # one.
    sizes = integers.to_numpy()
    length = len(sizes)
    if length and sizes.min() < 0:
        length += int(np.count_nonzero(sizes < 0))
        # Unsigned: the smallest integer of 64 bits has no positive counterpart.
        sizes = np.abs(sizes).astype(np.uint64)
    for digits in range(1, len(str(sizes.max(initial=0)))):
        length += int(np.count_nonzero(sizes >= sizes.dtype.type(10**digits)))
    return integers if int(text.str.len_bytes().sum()) == length else None


def parse_numbers(series: pl.Series, what: str, origin: str) -> pl.Series:
    """Numbers from text; the first row that has none is named."""
    import polars as pl

    numbers = series
    if series.dtype == pl.String:
        numbers = series.str.strip_chars().cast(pl.Float64, strict=False)
    if numbers.null_count():
        row = int(numbers.is_null().arg_true()[0])
        raise RatingsError(
            f"{origin}: column '{what}', row {row + 1:,}: text, not a number; correct or remove "
            "the row (or check the separator)"
        )
    return numbers


def parse_times(series: pl.Series, origin: str) -> pl.Series:
    """Read seconds since 1970, or dates as ISO 8601 writes them."""
    import polars as pl

    if series.dtype == pl.String:
        text = series.str.strip_chars().str.replace("T", " ", literal=True).str.strip_suffix("Z")
        if not text.cast(pl.Float64, strict=False).is_not_null().any():
            for form in _DATES:
                dates = text.str.strptime(pl.Datetime("us"), form, strict=False)
                if not dates.null_count():
                    return dates.dt.epoch("s")
    return parse_numbers(series, "timestamp", origin)


@dataclass(frozen=True)
class Columns:
    """The columns of a table, not yet validated; implicit feedback has no ratings.

    Attributes:
        missing: Of the rows that were left out, how many have nothing in each column.
        n_dropped: How many rows were left out.
    """

    user: Any
    item: Any
    rating: Any = None
    timestamp: Any = None
    missing: Mapping[str, int] = field(default_factory=dict)
    n_dropped: int = 0

    def coded(self) -> Columns:
        """Return the same with ids as codes, which take four bytes each, whatever ids look like."""
        if isinstance(self.user, Coded):
            return self
        user, item = (
            Coded(*factorise(ids, name)) for ids, name in ((self.user, "user"), (self.item, "item"))
        )
        rating = None if self.rating is None else np.asarray(self.rating, np.float32)
        return replace(self, user=user, item=item, rating=rating)

    def report_missing(self, origin: str) -> None:
        """Say how many rows were left out, if any."""
        if self.n_dropped:
            where = ", ".join(f"{ours} in {count:,}" for ours, count in self.missing.items())
            notify(
                f"{origin}: {self.n_dropped:,} rows are left out, because something is missing: "
                f"{where}"
            )


def present_rows(
    missing: Mapping[str, NDArray[np.bool_]], origin: str, how: Missing
) -> tuple[NDArray[np.bool_] | None, dict[str, int]]:
    """Return which rows have everything, or None if all do, and what is missing how often.

    Args:
        missing: By our name of each column, which rows have nothing in it.
        origin: What the columns are from, for messages.
        how: What becomes of rows without something.

    Raises:
        RatingsError: Something is missing, and ``how`` is ``error``; or all rows miss something.
    """
    if how not in get_args(Missing):
        raise ConfigError(f"missing values are treated as error or drop, not {how!r}")
    counts = {ours: int(rows.sum()) for ours, rows in missing.items() if rows.any()}
    if not counts:
        return None, {}
    ours = next(iter(counts))
    if how == "error":
        more = "".join(
            f"; column '{other}': {counts[other]:,}" for other in counts if other != ours
        )
        raise RatingsError(
            f"{origin}: column '{ours}', row {int(np.argmax(missing[ours])) + 1:,}: missing "
            f"({counts[ours]:,} such rows{more}); correct or remove them, or leave them out with "
            f"{hint('drop')}"
        )
    present = ~np.logical_or.reduce(list(missing.values()))
    if not present.any():
        raise RatingsError(f"{origin}: in every row something is missing; check the columns")
    return present, counts


# Texts that spreadsheets and other programs write where there is no number.
_NO_NUMBER = ("", "na", "n/a", "nan", "null", "none")


def absent(series: pl.Series, *, number: bool) -> NDArray[np.bool_]:
    """Return which entries of a column are missing; ``number`` if it should hold numbers."""
    import polars as pl

    rows = series.is_null()
    if series.dtype == pl.String:
        text = series.str.strip_chars()
        words = text.str.to_lowercase().is_in(_NO_NUMBER) if number else text == ""
        rows = rows | words.fill_null(False)
    elif series.dtype.is_float():
        rows = rows | series.is_nan().fill_null(False)
    return rows.to_numpy()


def columns_of(
    data: Any,
    wanted: Mapping[str, str] | None,
    origin: str,
    implicit: bool | None = False,
    missing: Missing = "error",
) -> Columns:
    """Take the columns out of a SciPy matrix, rows, or a frame that Narwhals understands."""
    if hasattr(data, "tocoo"):
        return _columns_of_matrix(data, wanted, origin, implicit)
    if isinstance(data, (np.ndarray, list, tuple)):
        data = _frame_of_rows(data, wanted, origin, implicit)
    if is_dask(data):
        return _columns_of_dask(data, wanted, origin, implicit, missing)
    import narwhals as nw

    try:
        wrapped = nw.from_native(data)
    except TypeError as error:
        raise RatingsError(
            f"{origin}: {type(data).__name__} is no data frame that Narwhals understands (pandas, "
            "polars, PyArrow, ...), no SciPy sparse matrix and no list of rows; use "
            "Ratings.from_arrays for columns or Ratings.read for a file"
        ) from error
    table = wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped
    found = match_columns(table.columns, wanted, origin, implicit)
    return take_columns(table, found, origin, missing)


def take_columns(
    frame: Any, found: ColumnNames, origin: str, missing: Missing = "error"
) -> Columns:
    """The columns that were found in a frame."""
    import narwhals as nw

    table = frame if isinstance(frame, nw.DataFrame) else nw.from_native(frame)
    n_rows = len(table)
    rows = {ours: _absent(table[theirs]) for ours, theirs in found.by_ours.items()}
    present, counts = present_rows(rows, origin, missing)
    if present is not None:
        table = table[np.flatnonzero(present)]
    rating, times = found.rating, found.timestamp
    return Columns(
        missing=counts,
        n_dropped=n_rows - len(table),
        user=_ids(table[found.user]),
        item=_ids(table[found.item]),
        rating=None if rating is None else _numbers(table[rating], "rating", origin),
        timestamp=None
        if times is None
        else found.times(lambda: _times(table[times], origin), origin),
    )


def _columns_of_matrix(
    matrix: Any, wanted: Mapping[str, str] | None, origin: str, implicit: bool | None
) -> Columns:
    """Return the entries of a matrix of users by items; ids are row and column numbers."""
    if wanted:
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
    return Columns(users, items, None if implicit else np.asarray(entries.data))


def _frame_of_rows(
    rows: Any, wanted: Mapping[str, str] | None, origin: str, implicit: bool | None
) -> pl.DataFrame:
    """Return a two-dimensional array, or a list of tuples, as a frame with our names."""
    import polars as pl

    if wanted:
        raise ConfigError(
            f"{origin}: rows have no names of columns; they are user, item, rating, timestamp"
        )
    fewest = 3 if implicit is False else 2
    if isinstance(rows, np.ndarray):
        widths = {rows.shape[1]} if rows.ndim == 2 else {0}
    else:
        widths = {len(row) if isinstance(row, (tuple, list)) else 0 for row in rows}
    if len(widths) != 1 or not fewest <= min(widths) <= len(COLUMNS):
        raise RatingsError(
            f"{origin}: rows of ratings all have {fewest} to 4 fields (user, item, rating, "
            "timestamp); name columns in a data frame, or use Ratings.from_arrays"
        )
    listed = (
        [_whole(column) for column in rows.T]
        if isinstance(rows, np.ndarray)
        else [list(column) for column in zip(*rows, strict=True)]
    )
    try:
        return pl.DataFrame(
            [
                pl.Series(ours, column, strict=ours not in _OPTIONAL)  # 5 beside 1.5
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


def is_dask(data: Any) -> bool:
    """Return whether something is a frame or a column of dask."""
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr")


def _columns_of_dask(
    frame: Any,
    wanted: Mapping[str, str] | None,
    origin: str,
    implicit: bool | None,
    missing: Missing,
) -> Columns:
    """Take the columns out of a dask frame, with one partition in memory at a time."""
    found = match_columns(list(frame.columns), wanted, origin, implicit)
    partitions = (part.compute() for part in frame[found.names].partitions)
    filled = (part for part in partitions if len(part))
    return joined_columns(
        [take_columns(part, found, origin, missing).coded() for part in filled], origin
    )


def joined_columns(parts: Sequence[Columns], origin: str) -> Columns:
    """Return the rows of several tables, one after the other.

    Raises:
        RatingsError: Some have ratings or times, and some have not.
    """
    if not parts:
        raise RatingsError(f"{origin}: there are no ratings in it; at least one row is needed")
    for ours in _OPTIONAL:
        if len({getattr(part, ours) is None for part in parts}) > 1:
            raise RatingsError(f"{origin}: some of {len(parts):,} files have no column of {ours}s")
    missing: dict[str, int] = {}
    for part in parts:
        for ours, count in part.missing.items():
            missing[ours] = missing.get(ours, 0) + count
    rating, times = (
        None
        if getattr(parts[0], ours) is None
        else np.concatenate([np.asarray(getattr(part, ours)) for part in parts])
        for ours in _OPTIONAL
    )
    return Columns(
        user=join_coded([part.coded().user for part in parts]),
        item=join_coded([part.coded().item for part in parts]),
        rating=rating,
        timestamp=times,
        missing=missing,
        n_dropped=sum(part.n_dropped for part in parts),
    )


def _ids(series: Any) -> Any:
    """Hand ids on as integers in an array or text in a polars series, the two that are fast."""
    import narwhals as nw

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

    if series.dtype.is_numeric():
        return series.to_numpy()
    if series.dtype == nw.Object:  # pandas columns that lost their type
        listed = series.to_list()
        for row, value in enumerate(listed, start=1):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise RatingsError(
                    f"{origin}: column '{what}', row {row:,}: not a number but "
                    f"{type(value).__name__}"
                )
        return listed
    raise RatingsError(f"{origin}: column '{what}' must hold numbers, not {series.dtype}")


def _times(series: Any, origin: str) -> Any:
    import narwhals as nw

    if series.dtype in (nw.Datetime, nw.Date):
        moments = series.cast(nw.Datetime("us")) if series.dtype == nw.Date else series
        return moments.dt.timestamp("us").to_numpy() // 1_000_000
    if series.dtype == nw.String:
        return parse_times(_as_polars(series), origin).to_numpy()
    return _numbers(series, "timestamp", origin)


def _absent(series: Any) -> NDArray[np.bool_]:
    """Return which entries of a frame's column are missing."""
    rows = series.is_null()
    if series.dtype.is_float():  # polars keeps "not a number" apart from null
        rows = rows | series.is_nan().fill_null(False)
    return np.asarray(rows.to_numpy(), bool)
