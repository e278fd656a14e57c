"""The ratings table that everything else stands on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpmf.errors import RatingsError
from hdpmf.ratings.ids import Codes, IdIndex, factorise
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.randomness import RngLike
from hdpmf.ratings.scale import RatingScale, ScaleLike


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Who rated what how, checked once and never changed.

    Rows are kept as positions (codes) in two id indexes, so that tables cut from one another stay comparable.
    A row number in an error message counts from 1. Make one with `from_arrays`, `from_frame` or `read`.

    Attributes:
        users: The ids of the users; ``user_codes`` are positions in it.
        items: The ids of the items; ``item_codes`` are positions in it.
        user_codes: One int32 per rating.
        item_codes: One int32 per rating.
        values: The ratings, float32.
        timestamps: Seconds since 1970 per rating, or None.
        scale: The public scale the ratings were given on.
        item_table: Public facts about the items, or None. It may list items nobody rated.
        name: What to call these ratings in tables and messages.
    """

    users: IdIndex
    items: IdIndex
    user_codes: Codes
    item_codes: Codes
    values: NDArray[np.float32]
    timestamps: NDArray[np.int64] | None = None
    scale: RatingScale = RatingScale()
    item_table: ItemTable | None = None
    name: str = "ratings"

    def __post_init__(self) -> None:
        n = len(self.values)
        for label, column in (
            ("user", self.user_codes),
            ("item", self.item_codes),
            ("timestamp", self.timestamps),
        ):
            if column is not None and len(column) != n:
                raise RatingsError(
                    f"{self.name}: column '{label}' has {len(column):,} rows but column 'rating' has {n:,}"
                )
        if n == 0:
            raise RatingsError(f"{self.name}: there are no ratings in it; at least one row is needed")
        _check_codes(self.name, "user", self.user_codes, self.users)
        _check_codes(self.name, "item", self.item_codes, self.items)
        _check_values(self.name, self.values, self.scale)
        _check_duplicates(self.name, self.user_codes, self.item_codes, len(self.items))
        self._freeze()

    # ---- making one ------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        users: Any,
        items: Any,
        values: Any,
        *,
        scale: ScaleLike | None = None,
        timestamps: Any = None,
        name: str = "ratings",
        item_table: ItemTable | None = None,
        users_index: IdIndex | None = None,
        items_index: IdIndex | None = None,
    ) -> Ratings:
        """Make a table from columns.

        Args:
            users: The user of each rating: integers or strings.
            items: The item of each rating: integers or strings.
            values: The ratings.
            scale: The public scale as ``(low, high)``; one to five where it is not given.
            timestamps: Seconds since 1970, where known.
            name: What to call the table in messages.
            item_table: Public facts about the items.
            users_index: Use this index instead of a new one, so that codes compare with another table's.
            items_index: The same for items.

        Raises:
            RatingsError: Something is wrong with the columns; the message says where and what to do.
        """
        numbers = _numbers(name, values)
        user_codes, users_found = _codes(name, "user", users, users_index, len(numbers))
        item_codes, items_found = _codes(name, "item", items, items_index, len(numbers))
        times = None if timestamps is None else _times(name, timestamps)
        return cls(
            users=users_found,
            items=items_found,
            user_codes=user_codes,
            item_codes=item_codes,
            values=numbers,
            timestamps=times,
            scale=RatingScale.of(scale),
            item_table=item_table,
            name=name,
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        scale: ScaleLike | None = None,
        columns: Mapping[str, str] | None = None,
        name: str = "ratings",
        item_table: ItemTable | None = None,
    ) -> Ratings:
        """Make a table from any data frame that Narwhals understands (pandas, polars, PyArrow, ...).

        Args:
            frame: A frame with columns ``user``, ``item``, ``rating`` and, if known, ``timestamp``.
            scale: The public scale as ``(low, high)``; one to five where it is not given.
            columns: Other column names, as ``{"user": "customer", "rating": "stars"}``.
            name: What to call the table in messages.
            item_table: Public facts about the items.
        """
        from hdpmf.ratings.frames import columns_of_frame

        found = columns_of_frame(frame, columns, name)
        return cls.from_arrays(
            found.user,
            found.item,
            found.rating,
            timestamps=found.timestamp,
            scale=scale,
            name=name,
            item_table=item_table,
        )

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        scale: ScaleLike | None = None,
        columns: Mapping[str, str] | None = None,
        separator: str | None = None,
        header: bool | None = None,
        name: str | None = None,
    ) -> Ratings:
        """Read a file: CSV, TSV, ``::``-separated or Parquet, plain or gzip-compressed.

        Args:
            path: The file.
            scale: The public scale as ``(low, high)``; one to five where it is not given.
            columns: Other column names, as ``{"user": "customer", "rating": "stars"}``.
            separator: What stands between fields; found from the first line where it is not given.
            header: Whether the first line holds column names; found from it where it is not given. Without a
                header the columns are user, item, rating and, if there is a fourth, timestamp.
            name: What to call the table in messages; the file's name where it is not given.
        """
        from hdpmf.ratings.readers import read_columns

        label = os.path.basename(os.fspath(path)) if name is None else name
        found = read_columns(path, columns=columns, separator=separator, header=header)
        return cls.from_arrays(
            found.user, found.item, found.rating, timestamps=found.timestamp, scale=scale, name=label
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the ratings to ``.csv``, ``.tsv`` or ``.parquet``, whole or not at all, readable by you only."""
        from hdpmf.ratings.writers import write_ratings

        write_ratings(self, path)

    # ---- looking at it ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return (
            f"Ratings({self.name!r}: {len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users, "
            f"scale {self.scale})"
        )

    @property
    def n_users(self) -> int:
        """How many users the index has (after `take`, some may have no rating here)."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """How many items the index has (after `take`, some may have no rating here)."""
        return len(self.items)

    @property
    def density(self) -> float:
        """The share of all user-item pairs that have a rating."""
        return len(self) / (self.n_users * self.n_items)

    @property
    def user_ids(self) -> NDArray[Any]:
        """The original user id of each rating."""
        return self.users.ids[self.user_codes]

    @property
    def item_ids(self) -> NDArray[Any]:
        """The original item id of each rating."""
        return self.items.ids[self.item_codes]

    def user_counts(self) -> NDArray[np.int64]:
        """Count the ratings of each user, in the order of ``users``."""
        return np.bincount(self.user_codes, minlength=self.n_users)

    def item_counts(self) -> NDArray[np.int64]:
        """Count the ratings of each item, in the order of ``items``."""
        return np.bincount(self.item_codes, minlength=self.n_items)

    # ---- cutting it ------------------------------------------------------------------------------------------

    def take(self, rows: NDArray[np.bool_] | NDArray[np.integer]) -> Ratings:
        """Keep some rows, by mask or by position, and both id indexes as they are.

        Unlike tables read from outside, the result may be empty: a test set can be.
        """
        chosen = np.asarray(rows)
        if chosen.dtype == bool and len(chosen) != len(self):
            raise RatingsError(f"a mask of {len(chosen):,} rows does not fit {len(self):,} ratings")
        if chosen.dtype.kind not in "biu":
            raise RatingsError("rows are chosen by a boolean mask or by integer positions")
        try:
            taken = self._derive(
                user_codes=self.user_codes[chosen],
                item_codes=self.item_codes[chosen],
                values=self.values[chosen],
                timestamps=None if self.timestamps is None else self.timestamps[chosen],
            )
        except IndexError:
            raise RatingsError(f"rows must be between 0 and {len(self) - 1:,}") from None
        if chosen.dtype != bool:  # positions can repeat, masks cannot
            _check_duplicates(self.name, taken.user_codes, taken.item_codes, self.n_items)
        return taken

    def compact(self) -> Ratings:
        """Drop the ids that have no rating here from both indexes."""
        users, user_codes = _shrink(self.users, self.user_codes)
        items, item_codes = _shrink(self.items, self.item_codes)
        return self._derive(users=users, items=items, user_codes=user_codes, item_codes=item_codes)

    def reindex(self, users: IdIndex, items: IdIndex) -> Ratings:
        """Express the same ratings in other indexes, which must hold every id used here."""
        user_codes, _ = _codes(self.name, "user", self.user_ids, users, len(self))
        item_codes, _ = _codes(self.name, "item", self.item_ids, items, len(self))
        return self._derive(users=users, items=items, user_codes=user_codes, item_codes=item_codes)

    def describe(self, item_table: ItemTable | None = None, *, name: str | None = None) -> Ratings:
        """Attach public facts about the items, or another name."""
        return self._derive(
            item_table=self.item_table if item_table is None else item_table,
            name=self.name if name is None else name,
        )

    def min_ratings(self, per_user: int = 20) -> Ratings:
        """Keep users with at least ``per_user`` ratings; ids that nobody uses any more leave the indexes."""
        kept = self.user_counts()[self.user_codes] >= per_user
        if not bool(kept.any()):
            raise RatingsError(f"{self.name}: no user has {per_user:,} ratings or more; ask for fewer")
        return self.take(kept).compact()

    def hold_out(self, per_user: int = 10, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
        """Split into training and test, with ``per_user`` ratings of each user in the test (`splits.hold_out`)."""
        from hdpmf.ratings import splits

        return splits.hold_out(self, per_user, rng=rng)

    def leave_one_out(self, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
        """Split into training and test, with one rating of each user in the test (`splits.leave_one_out`)."""
        from hdpmf.ratings import splits

        return splits.leave_one_out(self, rng=rng)

    def k_fold(self, k: int = 5, *, rng: RngLike = 0) -> Iterator[tuple[Ratings, Ratings]]:
        """Go through ``k`` pairs of training and validation (`splits.k_fold`)."""
        from hdpmf.ratings import splits

        return splits.k_fold(self, k, rng=rng)

    def sparsify(self, fraction: float, *, rng: RngLike = 0) -> Ratings:
        """Keep that fraction of each user's ratings, at least one (`splits.sparsify`)."""
        from hdpmf.ratings import splits

        return splits.sparsify(self, fraction, rng=rng)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _derive(self, **changes: Any) -> Ratings:
        """Copy with changes that cannot break what was checked, so that it is not checked again."""
        made = object.__new__(Ratings)
        made.__dict__.update(self.__dict__ | changes)
        made._freeze()
        return made

    def _freeze(self) -> None:
        for column in ("user_codes", "item_codes", "values", "timestamps"):
            array = getattr(self, column)
            if array is not None:
                array.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies sent to worker processes come back writable otherwise.
        self.__dict__.update(state)
        self._freeze()


def _numbers(name: str, values: Any) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.array(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise RatingsError(f"{name}: column 'rating' has something that is not a number") from None
    if array.ndim != 1:
        raise RatingsError(f"{name}: column 'rating' must have one dimension, not {array.ndim}")
    return array


def _times(name: str, timestamps: Any) -> NDArray[np.int64]:
    array = np.asarray(timestamps)
    if array.dtype.kind == "M":
        if bool(np.isnat(array).any()):
            row = int(np.flatnonzero(np.isnat(array))[0]) + 1
            raise RatingsError(f"{name}: column 'timestamp', row {row:,}: the time is missing")
        return array.astype("datetime64[s]").astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise RatingsError(
            f"{name}: column 'timestamp' must hold seconds since 1970 as numbers, or date-times"
        )
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.abs(array) < 2**62))
        if len(bad):
            raise RatingsError(
                f"{name}: column 'timestamp', row {bad[0] + 1:,}: the time is missing or absurd"
            )
    return array.astype(np.int64)


def _codes(name: str, what: str, values: Any, index: IdIndex | None, rows: int) -> tuple[Codes, IdIndex]:
    if len(values) != rows:
        raise RatingsError(
            f"{name}: column '{what}' has {len(values):,} rows but column 'rating' has {rows:,}"
        )
    if index is None:
        try:
            index, codes = factorise(values, what)
        except RatingsError as error:
            raise RatingsError(f"{name}: {error}") from None
        return codes, index
    codes = index.find(values)
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        raise RatingsError(
            f"{name}: column '{what}', row {unknown[0] + 1:,}: this id is not in the index given "
            f"({len(unknown):,} such rows)"
        )
    return codes, index


def _check_codes(name: str, what: str, codes: Codes, index: IdIndex) -> None:
    if codes.dtype != np.int32 or codes.ndim != 1:
        raise RatingsError(f"{name}: codes of column '{what}' must be one dimension of int32")
    if int(codes.min()) < 0 or int(codes.max()) >= len(index):
        raise RatingsError(f"{name}: codes of column '{what}' must be positions in its index")


def _check_values(name: str, values: NDArray[np.float32], scale: RatingScale) -> None:
    if values.dtype != np.float32 or values.ndim != 1:
        raise RatingsError(f"{name}: ratings must be one dimension of float32")
    bad = ~np.isfinite(values)
    if bool(bad.any()):
        raise RatingsError(
            f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: not a finite number "
            f"({np.count_nonzero(bad):,} such rows); remove them"
        )
    # Compared as float32 on both sides: 0.7 rounded down is still on a scale that starts at 0.7.
    bad = (values < np.float32(scale.low)) | (values > np.float32(scale.high))
    if bool(bad.any()):
        raise RatingsError(
            f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: off the scale {scale} "
            f"({np.count_nonzero(bad):,} such rows); pass scale=(low, high) if the scale is another one"
        )
    if scale.step is not None:
        steps = (values - np.float32(scale.low)) / np.float32(scale.step)
        bad = np.abs(steps - np.rint(steps)) > 1e-3
        if bool(bad.any()):
            raise RatingsError(
                f"{name}: column 'rating', row {np.argmax(bad) + 1:,}: between the steps of {scale.step:g} that "
                f"the scale {scale} has ({np.count_nonzero(bad):,} such rows); pass scale=(low, high) without step"
            )


def _check_duplicates(name: str, user_codes: Codes, item_codes: Codes, n_items: int) -> None:
    keys = user_codes.astype(np.int64)
    keys *= n_items
    keys += item_codes
    ordered = np.sort(keys)
    repeated = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if not repeated:
        return
    _, first_rows = np.unique(keys, return_index=True)
    again = np.ones(len(keys), dtype=bool)
    again[first_rows] = False
    raise RatingsError(
        f"{name}: row {np.argmax(again) + 1:,} rates an item that the same user has rated before "
        f"({repeated:,} such rows); keep one rating per user and item"
    )


def _shrink(index: IdIndex, codes: Codes) -> tuple[IdIndex, Codes]:
    used = np.zeros(len(index), dtype=bool)
    used[codes] = True
    if bool(used.all()):
        return index, codes
    renumbered = (np.cumsum(used) - 1).astype(np.int32)
    return IdIndex(index.ids[used]), renumbered[codes]
