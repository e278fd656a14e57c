"""Original ids of users and items, and their positions 0, 1, 2, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import RatingsError, UnknownIdError

if TYPE_CHECKING:
    import polars as pl

Id: TypeAlias = int | str
Codes: TypeAlias = NDArray[np.int32]

MAX_ID_LENGTH = 256
"""Ids are kept in arrays of fixed width, so a single runaway id (a broken file) would blow up all
of them."""

# Beyond the first, an array of ids may be the second times as large as its text: a long id among
# millions of short ones gives each of them its width.
_FREE_BYTES = 512 << 20
_MOST_PADDING = 16

_FEW = 1 << 16  # texts that NumPy sorts as soon as polars is imported


class IdIndex:
    """Unique ids of one kind (all integers or all strings), sorted; an id's position is its code.

    Args:
        ids: The ids, in any order, without repetition.
        stated: Whether they are a public list, known before anybody rated; else they may be those
            in some ratings, and say that these were there.
        as_given: Keep their order, which is not that of sorting where a catalogue has grown at its
            end.
    """

    __slots__ = ("_ids", "_positions", "_sorted", "stated")

    def __init__(
        self, ids: Iterable[Id] | NDArray[Any], *, stated: bool = False, as_given: bool = False
    ) -> None:
        array = _id_array(ids, "id")
        self._sorted = len(array) < 2 or bool(np.all(array[:-1] < array[1:]))
        if not self._sorted:
            ordered = np.sort(array)
            if bool(np.any(ordered[:-1] == ordered[1:])):
                raise RatingsError("an id index cannot hold an id twice; pass each id once")
            if not as_given:
                array, self._sorted = ordered, True
        array = array.copy() if array is ids or array.base is not None else array
        array.flags.writeable = False
        self._ids: NDArray[Any] = array
        self._positions: dict[Id, int] | None = None
        self.stated = stated

    @property
    def ids(self) -> NDArray[Any]:
        """The ids in order: int64, or fixed-width text. Read-only."""
        return self._ids

    @property
    def is_integer(self) -> bool:
        """True for integer ids, False for strings."""
        return self._ids.dtype.kind == "i"

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdIndex):
            return NotImplemented
        return self is other or (
            self.is_integer == other.is_integer and np.array_equal(self._ids, other._ids)
        )

    def __hash__(self) -> int:
        return hash((self._ids.dtype.kind, len(self._ids)))

    def __reduce__(self) -> tuple[Callable[..., IdIndex], tuple[NDArray[Any], bool]]:
        return (_index, (self._ids, self.stated))

    def __repr__(self) -> str:
        return f"IdIndex({len(self):,} {'integer' if self.is_integer else 'string'} ids)"

    def __contains__(self, value: object) -> bool:
        return bool(self.find([cast("Id", value)])[0] >= 0)

    def find(self, values: Iterable[Id] | NDArray[Any]) -> Codes:
        """Look up codes, with -1 for every id that is not in the index.

        Types count: the string ``"7"`` is not the integer 7. Use `parse` for text typed by a
        person.
        """
        integers = _as_integers(values)
        if integers is not None:
            if self.is_integer:
                return self._find_integers(integers)
            return np.full(len(integers), -1, np.int32)
        if self._positions is None:
            self._positions = {value: code for code, value in enumerate(self._ids.tolist())}
        get = self._positions.get
        listed = as_written(values.tolist() if isinstance(values, np.ndarray) else list(values))
        return np.fromiter((get(value, -1) for value in listed), np.int32, len(listed))

    def codes(self, values: Iterable[Id] | NDArray[Any]) -> Codes:
        """Look up codes of ids that must all be in the index.

        Raises:
            UnknownIdError: Some id is not in the index.
        """
        found = self.find(values)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            more = f" and {len(missing) - 1:,} others" if len(missing) > 1 else ""
            raise UnknownIdError(
                f"unknown id {list(values)[missing[0]]!r}{more}: none of the {len(self):,} "
                f"{self._kind()} ids here"
            )
        return found

    def code(self, value: Id) -> int:
        """Look up the code of one id, or raise `UnknownIdError`."""
        found = int(self.find([value])[0])
        if found < 0:
            raise UnknownIdError(
                f"unknown id {value!r}: it is none of the {len(self):,} {self._kind()} ids here"
            )
        return found

    def parse(self, text: str) -> Id:
        """Turn text from a command line into an id of this index.

        Raises:
            UnknownIdError: The text is no id of this index.
        """
        value: Id = text
        if self.is_integer:
            try:
                value = int(text)
            except ValueError:
                value = -1
            if str(value) != text:  # 007 is not 7
                raise UnknownIdError(
                    f"unknown id {text!r}: the {len(self):,} ids here are integers"
                )
        self.code(value)
        return value

    def _kind(self) -> str:
        return "integer" if self.is_integer else "string"

    def _find_integers(self, values: NDArray[np.int64]) -> Codes:
        ids = self._ids
        if not len(ids) or not len(values):
            return np.full(len(values), -1, np.int32)
        order = None if self._sorted else np.argsort(ids)
        position = np.minimum(np.searchsorted(ids, values, sorter=order), len(ids) - 1)
        position = position if order is None else order[position]
        return np.where(ids[position] == values, position, -1).astype(np.int32)


def factorise(values: Any, what: str = "id") -> tuple[IdIndex, Codes]:
    """Split ids into an index and one code per row.

    Args:
        values: Integers or strings: an array, a sequence or a polars series.
        what: The column's name, for messages.

    Raises:
        RatingsError: An id is missing, or is neither an integer nor a string.
    """
    if type(values).__module__.startswith("polars"):
        return _factorise_series(values, what)
    array = _id_array(values, what)
    if array.dtype.kind == "i":
        return _factorise_integers(array)
    if len(array) <= _FEW or find_spec("polars") is None:
        ids, codes = np.unique(array, return_inverse=True)
        return IdIndex(ids), codes.astype(np.int32)
    import polars as pl

    return _factorise_series(pl.Series(array.tolist(), dtype=pl.String), what)


def as_text(index: IdIndex, codes: Codes) -> tuple[IdIndex, Codes]:
    """The same ids as text, and the codes that they then have."""
    if not index.is_integer:
        return index, codes
    texts = index.ids.astype(str)
    order = np.argsort(texts, kind="stable")
    positions = np.empty(len(order), np.int32)
    positions[order] = np.arange(len(order), dtype=np.int32)
    return IdIndex(texts[order], stated=index.stated), positions[codes]


def merge(first: IdIndex, second: IdIndex, what: str = "id") -> IdIndex:
    """Make the index of all ids of both."""
    if first == second:
        return first
    if first.is_integer != second.is_integer:
        raise RatingsError(
            f"{what} ids are integers in one table and strings in the other: write them the "
            "same way"
        )
    return IdIndex(np.union1d(first.ids, second.ids))


def _index(ids: NDArray[Any], stated: bool) -> IdIndex:
    return IdIndex(ids, stated=stated, as_given=True)


def _as_integers(values: Any) -> NDArray[np.int64] | None:
    if isinstance(values, np.ndarray):
        return values.astype(np.int64, copy=False) if values.dtype.kind == "i" else None
    if isinstance(values, range) or (
        isinstance(values, (list, tuple)) and set(map(type, values)) == {int}
    ):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:  # beyond 64 bits: no id of ours, and the dictionary will say so
            return None
    return None


def _id_array(values: Any, what: str) -> NDArray[Any]:
    """Bring ids into int64 or fixed-width text, or say in which row that fails."""
    array = values
    if not isinstance(values, np.ndarray):
        array = np.array([*values, None], dtype=object)[:-1]
    if array.ndim != 1:
        raise RatingsError(f"column '{what}' must have one dimension, not {array.ndim}")
    kind = array.dtype.kind
    if kind in "iu":
        if kind == "u" and len(array) and int(array.max()) > np.iinfo(np.int64).max:
            raise _too_big(what)
        return cast("NDArray[Any]", array.astype(np.int64, copy=False))
    if kind == "f":
        return _integral(array, what)
    if kind in "UOT":
        return _id_array_of_objects(array.tolist(), what)
    raise RatingsError(f"column '{what}' has type {array.dtype}: ids must be integers or strings")


def _id_array_of_objects(listed: list[Any], what: str) -> NDArray[Any]:
    listed = as_written(listed)
    types = set(map(type, listed)) or {str}
    if all(issubclass(kind, str) for kind in types):
        return _checked_text(listed, what)
    if bool not in types:
        try:
            if all(issubclass(kind, (int, np.integer)) for kind in types):
                return np.array(listed, dtype=np.int64)
            if all(issubclass(kind, (float, int, np.number)) for kind in types):
                return _integral(np.array(listed, dtype=np.float64), what)
        except OverflowError:
            raise _too_big(what) from None
    for row, value in enumerate(listed, start=1):
        if value is None or value != value:
            raise _missing(what, row)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer, str)):
            raise RatingsError(
                f"column '{what}', row {row:,}: an id must be an integer or a string, not "
                f"{type(value).__name__}"
            )
    raise RatingsError(f"column '{what}' mixes integers and strings: make all its ids strings")


def as_written(listed: list[Any]) -> list[Any]:
    """Return ids with UUIDs as text."""
    return [str(value) if isinstance(value, UUID) else value for value in listed]


def _integral(array: NDArray[Any], what: str) -> NDArray[np.int64]:
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise _missing(what, int(bad[0]) + 1)
    # 2**53 is where float64 stops telling neighbouring integers apart.
    bad = np.flatnonzero((array != np.floor(array)) | (np.abs(array) > 2**53))
    if len(bad):
        raise RatingsError(
            f"column '{what}', row {bad[0] + 1:,}: an id must be an integer or a string, "
            "not a fraction"
        )
    return array.astype(np.int64)


def _checked_text(listed: list[str], what: str) -> NDArray[np.str_]:
    for row, text in enumerate(listed, start=1):
        if not text:
            raise _missing(what, row)
        if len(text) > MAX_ID_LENGTH or "\0" in text:
            raise _unfit(what, row)
    # An explicit width keeps an empty column a text column.
    width = max(map(len, listed), default=1)
    if 4 * width * len(listed) > max(_FREE_BYTES, 4 * _MOST_PADDING * sum(map(len, listed))):
        raise RatingsError(
            f"column '{what}': one of {len(listed):,} ids has {width} characters, and the others "
            "far fewer; shorten or remove it"
        )
    return np.array(listed, dtype=f"<U{width}")


def _too_big(what: str) -> RatingsError:
    return RatingsError(
        f"column '{what}' has integers beyond 64 bits with sign: pass them as strings"
    )


def _missing(what: str, row: int) -> RatingsError:
    return RatingsError(
        f"column '{what}', row {row:,}: the id is missing; remove the row or give it an id"
    )


def _unfit(what: str, row: int) -> RatingsError:
    return RatingsError(
        f"column '{what}', row {row:,}: the id is longer than {MAX_ID_LENGTH} characters or "
        "contains NUL; is this the right column?"
    )


def _factorise_integers(array: NDArray[np.int64]) -> tuple[IdIndex, Codes]:
    if not len(array):
        return IdIndex(array), np.empty(0, np.int32)
    low, high = int(array.min()), int(array.max())
    if high - low < 4 * len(array) + 1024:  # dense ids need no sort
        offsets = array - low
        present = np.zeros(high - low + 1, dtype=bool)
        present[offsets] = True
        lookup = (np.cumsum(present, dtype=np.int32) - 1).astype(np.int32)
        return IdIndex(np.flatnonzero(present) + low), lookup[offsets]
    ids, codes = np.unique(array, return_inverse=True)
    return IdIndex(ids), codes.astype(np.int32)


def _factorise_series(series: pl.Series, what: str) -> tuple[IdIndex, Codes]:
    """Let polars do it: ten million Python strings would take a minute and a gigabyte."""
    import polars as pl

    if series.null_count():
        raise _missing(what, int(series.is_null().arg_true()[0]) + 1)
    if series.dtype == pl.Int128:
        raise _too_big(what)
    if series.dtype.is_integer() or series.dtype.is_float():
        return _factorise_integers(cast("NDArray[np.int64]", _id_array(series.to_numpy(), what)))
    if series.dtype == pl.String:
        series = series.cast(pl.Categorical)
    if series.dtype not in (pl.Categorical, pl.Enum):
        return factorise(np.array([*series.to_list(), None], dtype=object)[:-1], what)
    distinct = series.unique()
    distinct = distinct.gather(distinct.cast(pl.String).arg_sort())
    numbers = distinct.to_physical().to_numpy()
    lookup = np.empty(int(numbers.max(initial=0)) + 1, np.int32)
    lookup[numbers] = np.arange(len(numbers), dtype=np.int32)
    codes = lookup[series.to_physical().to_numpy()]
    texts = distinct.cast(pl.String).to_list()
    try:
        return IdIndex(_checked_text(texts, what)), codes
    except RatingsError:
        unfit = [not text or len(text) > MAX_ID_LENGTH or "\0" in text for text in texts]
        bad = np.flatnonzero(np.array(unfit)[codes])
        if not len(bad):
            raise
        row = int(bad[0])
        raise (_unfit if texts[codes[row]] else _missing)(what, row + 1) from None
