"""Public facts about items (titles, genres, years): tables, files of them, filters by them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.columns import parse_ids, polars_frame
from hdpmf.common.data.ids import Id, IdIndex, factorise
from hdpmf.common.data.readers import is_parquet, read_batches, read_bytes
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Public facts about items, one entry per item in the order of `ids`.

    Make one with `of` from a data frame or a file, and give it to ``fit(..., items=table)``.

    Attributes:
        index: The items' ids.
        titles: A title per item.
        genres: The genres of each item.
        years: The year of each item, or None where it is not known.
        audiences: Whom each item is suitable for, in the table's own words (``PG``, ``12``), empty
            where that is not known; or none at all.
        popularity: How often each item is chosen, as far as that is publicly known, in any unit;
            or none at all. It is not saved with a model.
        frame: All columns that `of` has read, a polars frame of which features are made; None: the
            genres and years are all.
    """

    index: IdIndex
    titles: tuple[str, ...] = field(repr=False)
    genres: tuple[tuple[str, ...], ...] = field(repr=False)
    years: tuple[int | None, ...] = field(repr=False)
    audiences: tuple[str, ...] = field(default=(), repr=False)
    popularity: tuple[float | None, ...] = field(default=(), repr=False)
    # No field: it is not saved with a model, which keeps the features that were made of it.
    frame: ClassVar[Any] = None

    def __post_init__(self) -> None:
        more = self.audiences or self.years, self.popularity or self.years
        _check_lengths(self.index, self.titles, self.genres, self.years, *more)

    @classmethod
    def of(cls, data: Any) -> ItemTable:
        """Make a table from a data frame or a file: CSV, TSV or Parquet with a header.

        Args:
            data: A path, or a frame that Narwhals understands (pandas, polars, PyArrow, ...). The
                ids are in ``item`` (or ``movieId``, ``id``, ..., else the first column); ``title``
                (or ``name``), ``genres`` (a list, or text separated by ``|``), ``year`` and
                ``audience`` (or ``certificate``, ``age``, ...) are used where they are there, and
                so is ``popularity``, public numbers of how often items are chosen. All columns of
                numbers, and of few different words, become features for methods that use them.

        Raises:
            RatingsError: It is no such table, or an item is listed twice.
        """
        return data if isinstance(data, cls) else item_table_of(data)

    @classmethod
    def build(
        cls,
        ids: Sequence[Id] | NDArray[Any],
        titles: Sequence[str],
        genres: Sequence[Sequence[str]],
        years: Sequence[int | None],
        audiences: Sequence[str] = (),
        popularity: Sequence[float | None] = (),
    ) -> ItemTable:
        """Make a table from columns in any order of ids."""
        _check_lengths(ids, titles, genres, years, audiences or years, popularity or years)
        index = IdIndex(ids)
        order = np.argsort(index.find(ids)).tolist()
        return cls(
            index,
            tuple(titles[i] for i in order),
            tuple(tuple(genres[i]) for i in order),
            tuple(years[i] for i in order),
            tuple(audiences[i] for i in order) if audiences else (),
            tuple(popularity[i] for i in order) if popularity else (),
        )

    @property
    def ids(self) -> NDArray[Any]:
        """The items' ids, in order."""
        return self.index.ids

    def __len__(self) -> int:
        return len(self.index)

    def with_text_ids(self) -> ItemTable:
        """The same facts with integer ids written as text."""
        if not self.index.is_integer:
            return self
        facts = self.titles, self.genres, self.years, self.audiences, self.popularity
        built = ItemTable.build(self.ids.astype(str), *facts)
        return built.with_frame(self.frame)

    def title(self, item_id: Id) -> str | None:
        """Return the title of an item, or None where the table does not list it."""
        code = int(self.index.find([item_id])[0])
        return self.titles[code] if code >= 0 else None

    def select(self, ids: Iterable[Id] | NDArray[Any]) -> ItemTable:
        """Keep only the items asked for; those the table does not list are left out."""
        found = np.unique(self.index.find(ids))
        positions = found[found >= 0].tolist()
        selected = ItemTable(
            IdIndex(self.index.ids[positions], as_given=True),
            tuple(self.titles[i] for i in positions),
            tuple(self.genres[i] for i in positions),
            tuple(self.years[i] for i in positions),
            tuple(self.audiences[i] for i in positions) if self.audiences else (),
            tuple(self.popularity[i] for i in positions) if self.popularity else (),
        )
        return selected.with_frame(self.frame)

    def public_popularity(self, items: IdIndex) -> NDArray[np.float64] | None:
        """Return how often each of these items is chosen; NaN where that is not known."""
        if not any(self.popularity):
            return None
        return np.array(_column(self, items, "popularity", None), np.float64)

    def with_frame(self, frame: Any) -> ItemTable:
        """Return the same table with columns that features are made of."""
        made = copy(self)
        object.__setattr__(made, "frame", frame)
        return made


def _check_lengths(*columns: Sized) -> None:
    if len(set(map(len, columns))) > 1:
        counts = ", ".join(f"{len(column):,}" for column in columns)
        raise RatingsError(
            f"an item table needs one title, genre list and year per id, not {counts} of these"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Conditions on items, all of which have to hold.

    Attributes:
        genres: At least one of these, in any letter case.
        not_genres: None of these.
        from_year: This year or later.
        to_year: This year or earlier. An item without a year is in no range.
        audience: Known to be suitable for one of these, in the table's own words and any letter
            case. An item whose audience is unknown is left out.
        items: Only these; None for all.
    """

    genres: Sequence[str] = ()
    not_genres: Sequence[str] = ()
    from_year: int | None = None
    to_year: int | None = None
    audience: Sequence[str] = ()
    items: Sequence[Id] | np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        first, last = self.from_year, self.to_year
        for name, word in ("genres", "Drama"), ("not_genres", "Drama"), ("audience", "PG"):
            own = getattr(self, name)
            several = isinstance(own, Collection) and not isinstance(own, str)
            if not several or not all(isinstance(each, str) for each in own):
                raise ConfigError(f'{name} is a list of words, as {name}=["{word}"]')
        if isinstance(self.items, str) or not isinstance(self.items, Iterable | None):
            raise ConfigError("items is a list of ids, as items=[1, 2]")
        for year in (first, last):
            if year is not None and not isinstance(year, (int, np.integer)):
                raise ConfigError(f"a year is a whole number, as from_year=1990, not {year!r}")
        if first is not None and last is not None and first > last:
            raise ConfigError(f"no year is from {self.from_year} and to {self.to_year}; swap them")

    def allowed(self, items: IdIndex, table: ItemTable | None) -> np.ndarray:
        """Return a mask of the catalogue's items that pass.

        Raises:
            ConfigError: It asks for genres, years or an audience where none are known, or for a
                genre or an audience that there is not.
            UnknownIdError: One of ``items`` is not in the catalogue.
        """
        passing = np.ones(len(items), bool)
        if self.items is not None:
            passing[:] = False
            passing[items.codes(self.items)] = True
        if self.genres or self.not_genres:
            there = sorted({genre for own in table.genres for genre in own}) if table else []
            if not there:
                raise ConfigError("no genres are known of these items, so none can be asked for")
            wanted = _known("genre", self.genres, there)
            unwanted = _known("genre", self.not_genres, there)
            genres = [set(map(str.casefold, own)) for own in _column(table, items, "genres", ())]
            passing &= [bool(own & wanted or not wanted) and not own & unwanted for own in genres]
        if self.from_year is not None or self.to_year is not None:
            years = _column(table, items, "years", None)
            if not any(year is not None for year in years):
                raise ConfigError("no years are known of these items, so none can be asked for")
            first = self.from_year or -np.inf
            last = np.inf if self.to_year is None else self.to_year
            passing &= [year is not None and first <= year <= last for year in years]
        if self.audience:
            audiences = _column(table, items, "audiences", "") if table and table.audiences else []
            there = sorted(set(audiences) - {""})
            if not there:
                raise ConfigError("no audience is known of these items, so none can be asked for")
            wanted = _known("audience", self.audience, there)
            passing &= [audience.casefold() in wanted for audience in audiences]
        return passing


def _known(kind: str, names: Sequence[str], there: Sequence[str]) -> set[str]:
    wanted = set(map(str.casefold, names))
    unknown = [name for name in names if name.casefold() not in set(map(str.casefold, there))]
    if unknown:
        raise ConfigError(f"there is no {kind} {unknown[0]!r}; there are {', '.join(there)}")
    return wanted


def _column(table: ItemTable | None, items: IdIndex, name: str, missing: Any) -> list[Any]:
    if table is None:
        return [missing] * len(items)
    column = getattr(table, name)
    return [missing if row < 0 else column[row] for row in table.index.find(items.ids).tolist()]


TITLES = ("title", "name")
YEAR = re.compile(r"\((\d{4})(?:-\d{4})?\)\s*$")
"""The year that a title ends in."""

_GENRES = ("genres", "genre", "categories")
_AUDIENCES = ("audience", "certificate", "content_rating", "age_rating", "age")
_ID_NAMES = ("item", "itemid", "movieid", "bookid", "businessid", "id")


def id_column(names: Sequence[str]) -> str:
    """The column that holds item ids: by its name, or the first."""
    plain = [name.lower().replace("_", "") for name in names]
    return next((names[plain.index(name)] for name in _ID_NAMES if name in plain), names[0])


def read_frame(
    path: str | os.PathLike[str],
    ids: Callable[[Sequence[str]], Sequence[str]] = lambda names: [id_column(names)],
    what: str = "items",
) -> pl.DataFrame:
    """Read a CSV, TSV or Parquet file, or raise RatingsError; ``ids`` picks the id columns."""
    import polars as pl

    label = os.path.basename(os.fspath(path))
    try:
        if is_parquet(path):
            frame = pl.concat(read_batches(path, label))
        else:
            data = read_bytes(path)
            first = data.split(b"\n", 1)[0]
            mark = max("\t,;", key=lambda sign: first.count(sign.encode()))
            # Ids as they are written: 0000000011 is not 11.
            written = dict.fromkeys(
                ids(pl.read_csv(data, separator=mark, n_rows=0).columns), pl.String
            )
            frame = pl.read_csv(
                data, separator=mark, infer_schema_length=10_000, schema_overrides=written
            )
            if any(name.endswith("_duplicated_0") for name in frame.columns):
                raise ValueError("two columns have one name")
            frame = frame.with_columns(parse_ids(frame[name]) for name in written)
            frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # empty lines
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise _no_table(label, what) from error
    if frame.height == 0 or frame.width < 2:
        raise _too_small(label, what)
    return frame


def read_item_table(path: str | os.PathLike[str]) -> ItemTable:
    """Make `ItemTable.of` a file, without the frame of all its columns."""
    return item_table_of(path).with_frame(None)


def item_table_of(data: Any) -> ItemTable:
    """Make `ItemTable.of` a frame or a file, with all its columns."""
    if isinstance(data, (str, os.PathLike)):
        frame, label = read_frame(data), os.path.basename(os.fspath(data))
    else:
        frame, label = _items_frame(data), "items"
    frame = tidied(frame)
    return _table(*_texts(frame, label), label).with_frame(frame)


def tidied(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame of items with the years that titles end in, where it has none of its own.

    Where MovieLens says that no genres are listed, there are none.
    """
    import polars as pl

    frame = frame.with_columns(pl.col(pl.String).replace("(no genres listed)", None))
    plain = {name.lower(): name for name in frame.columns}
    titles = [plain[name] for name in TITLES if name in plain]
    if "year" in plain or not titles or frame[titles[0]].dtype != pl.String:
        return frame
    years = frame[titles[0]].str.extract(YEAR.pattern, 1).cast(pl.Int64)
    return frame if years.is_null().all() else frame.with_columns(years.alias("year"))


def _items_frame(data: Any) -> pl.DataFrame:
    """Return a data frame of any kind as one of polars, with lists and categories as text."""
    import polars as pl

    frame = polars_frame(data, "items", "give one, or a file")
    if frame.height == 0 or frame.width < 2:
        raise _too_small("items")
    frame = frame.with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(None))
    odd = [name for name, kind in frame.schema.items() if kind == pl.Object]
    frame = frame.with_columns(pl.Series(name, map(_worded, frame[name])) for name in odd)
    lists = [name for name, kind in frame.schema.items() if kind in (pl.List, pl.Array)]
    return frame.with_columns(
        pl.col(lists).cast(pl.List(pl.String)).list.join("|"),
        pl.col(pl.Categorical, pl.Enum).cast(pl.String),
    )


def _worded(value: Any) -> str | None:
    """Return something that polars has no type for as text: a set, an id of a kind of its own."""
    if isinstance(value, (set, frozenset)):
        return "|".join(sorted(map(str, value)))
    return None if value is None else str(value)


def _table(
    written: Mapping[str, Sequence[str]], listed: pl.Series | Sequence[int | str], label: str
) -> ItemTable:
    """Titles, genres, years and audiences from columns of text, and the ids beside them."""
    id_name = id_column(list(written))
    index, codes = factorise(listed, id_name)
    if len(index) < len(codes):
        raise RatingsError(f"{label}: an item is listed twice; keep one row per item")
    plain = {name.lower(): name for name in written if name != id_name}

    def column(names: tuple[str, ...]) -> Sequence[str]:
        return next((written[plain[name]] for name in names if name in plain), [""] * len(codes))

    def numbers(name: str, read: Callable[[str], T], what: str) -> list[T]:
        found = []
        for row, text in enumerate(column((name,)), start=1):
            try:
                found.append(read(text))
            except (ValueError, OverflowError):
                raise RatingsError(
                    f"{label}: column {name!r}, row {row:,}: no {what}; correct it, or leave it out"
                ) from None
        return found

    return ItemTable.build(
        index.ids[codes],
        column(TITLES),
        [[word.strip() for word in text.split("|") if word.strip()] for text in column(_GENRES)],
        numbers("year", _year, "year"),
        [text.strip().removesuffix(".0") for text in column(_AUDIENCES)],
        numbers("popularity", _amount, "number from 0"),
    )


def _texts(frame: pl.DataFrame, label: str) -> tuple[dict[str, list[str]], pl.Series]:
    """The columns of a frame as text, and the ids, which have a type there."""
    import polars as pl

    try:
        texts = frame.with_columns(pl.all().cast(pl.String).fill_null(""))
    except pl.exceptions.PolarsError as error:
        raise _no_table(label) from error
    return {name: texts[name].to_list() for name in texts.columns}, frame[id_column(frame.columns)]


def _year(text: str) -> int | None:
    """The year in a field; spreadsheets write 1999 as 1999.0."""
    return int(float(text)) if text.strip() else None


def _amount(text: str) -> float | None:
    """How often something is chosen, or None where the field is empty."""
    if not text.strip():
        return None
    amount = float(text)
    if not 0 <= amount < np.inf:
        raise ValueError
    return amount


def _no_table(label: str, what: str = "items") -> RatingsError:
    return RatingsError(
        f"{label}: not a table of {what}; give CSV, TSV or Parquet with a header line"
    )


def _too_small(label: str, what: str = "items") -> RatingsError:
    return RatingsError(
        f"{label}: a table of {what} needs a header, a column of ids and at least one more column"
    )
