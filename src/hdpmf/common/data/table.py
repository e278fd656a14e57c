"""The ratings table, and `as_ratings`, which makes one of any data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.base.progress import facts_html, frame_of
from hdpmf.common.data import checks, splits
from hdpmf.common.data.checks import (
    IMPLICIT_SCALE,
    THUMBS,
    Duplicates,
    RatingScale,
    ScaleLike,
    check_duplicates,
    pair_keys,
)
from hdpmf.common.data.columns import (
    Layout,
    Missing,
    dated_columns,
    match_columns,
    take_columns,
)
from hdpmf.common.data.ids import Codes, Id, IdIndex, as_text
from hdpmf.common.data.items import ItemTable
from hdpmf.errors import RatingsError


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Ratings of items by users, or choices without ratings, checked once and never changed.

    Clicks, purchases and plays are choices: ``implicit`` tells, ``values`` are all 1 then and say
    nothing.

    Rows are kept as positions (codes) in two id indexes, so that tables cut from one another stay
    comparable. A row number in an error message counts from 1. Make one with `of`, `from_arrays` or
    `read`.

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
        implicit: Whether these are no ratings but choices (clicks, purchases): each value is 1, on
            the scale 0..1, and says no more than that the pair is there. Whoever learns from
            ``values`` asks this first.
        columns: What the data that was read calls its columns, by ours, where the caller said so.
    """

    users: IdIndex
    items: IdIndex
    user_codes: Codes
    item_codes: Codes
    values: NDArray[np.float32]
    timestamps: NDArray[np.int64] | None = None
    scale: RatingScale = field(default_factory=RatingScale)
    item_table: ItemTable | None = None
    name: str = "ratings"
    implicit: bool = False
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        n = len(self.values)
        for label, column in (
            ("user", self.user_codes),
            ("item", self.item_codes),
            ("timestamp", self.timestamps),
        ):
            if column is not None and len(column) != n:
                raise RatingsError(
                    f"{self.name}: column '{label}' has {len(column):,} rows but column 'rating' "
                    f"has {n:,}"
                )
        if n == 0:
            raise RatingsError(
                f"{self.name}: there are no ratings in it; at least one row is needed"
            )
        checks.check_codes(self.name, "user", self.user_codes, self.users)
        checks.check_codes(self.name, "item", self.item_codes, self.items)
        checks.check_values(self.name, self.values, self.scale)
        check_duplicates(self.name, self.user_codes, self.item_codes, len(self.items))
        self._freeze()

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        scale: ScaleLike | None = None,
        columns: Mapping[str, str] | None = None,
        duplicates: Duplicates = "error",
        missing: Missing = "error",
        implicit: bool | None = False,
        name: str | None = None,
        item_table: ItemTable | None = None,
    ) -> Ratings:
        """Make a table from a data frame, a SciPy sparse matrix, rows or a file.

        Args:
            data: A frame that Narwhals understands (pandas, polars, PyArrow, ...) with columns for
                user, item, rating and, if known, timestamp; a SciPy matrix of users by items; a
                NumPy array or a list of tuples with a rating per row: user, item, rating and, if
                known, timestamp; or a path, as for `read`.
            scale: The public scale as ``(low, high)``; where it is not given, one to five, and two
                steps for thumbs: a column of booleans is 1 for up and 0 for down.
            columns: What the frame calls its columns, as ``{"user": "customer", "rating":
                "stars"}``; common names are known.
            duplicates: What becomes of several ratings of one item by one user: an ``error``, or
                the ``last`` counts (by time), the one in the ``last-row``, or their ``mean``.
            missing: What becomes of rows without a user, an item, a rating or a time: an
                ``error``, or ``drop``, which leaves them out with a warning that counts them.
            implicit: Whether this is implicit feedback: who chose what, and no ratings, whatever
                counts there are; None: where there is no column of ratings, with a warning.
            name: What to call the table in messages; else a file is called by its name.
            item_table: Public facts about the items.

        Raises:
            RatingsError: Something is wrong with the data; the message says where and what to do.
        """
        layout = Layout(columns, implicit, missing)
        if isinstance(data, (str, os.PathLike)):
            from hdpmf.common.data.readers import read_columns

            label = os.path.basename(os.fspath(data)) if name is None else name
            found = read_columns(data, layout)
        else:
            from hdpmf.common.data.columns import ratings_frame

            label = "ratings" if name is None else name
            frame = ratings_frame(data, layout, label)
            names = match_columns(frame.columns, layout, label, dated_columns(frame.schema))
            found = take_columns(frame, names, label, layout)
        found.report_missing(label)
        made = cls.from_arrays(
            found.frame["user"],
            found.frame["item"],
            found.get("rating"),
            timestamps=found.get("timestamp"),
            scale=THUMBS if scale is None and found.thumbs else scale,
            duplicates=duplicates,
            name=label,
            item_table=item_table,
        )
        return made if columns is None else made._derive(columns=dict(columns))

    @classmethod
    def read(cls, path: str | os.PathLike[str], **options: Any) -> Ratings:
        """Read a file: CSV, TSV, ``::``-separated (also gzip-compressed) or Parquet.

        What separates the fields, and whether there is a header, is seen in the first line. Without
        a header the columns are user, item, rating and timestamp, of which the last two may be
        absent; of choices (``implicit=True``) a third column is the time where it looks like one.
        Ids are integers where all of a column come back as they are written, else text:
        ``007`` stays ``007``.

        Args:
            path: The file.
            options: The other arguments of `of`.
        """
        return cls.of(os.fspath(path), **options)

    @classmethod
    def from_arrays(
        cls,
        users: Any,
        items: Any,
        values: Any,
        *,
        scale: ScaleLike | None = None,
        timestamps: Any = None,
        duplicates: Duplicates = "error",
        name: str = "ratings",
        item_table: ItemTable | None = None,
        users_index: IdIndex | None = None,
        items_index: IdIndex | None = None,
    ) -> Ratings:
        """Make a table from columns.

        Args:
            users: The user of each rating: integers or strings.
            items: The item of each rating: integers or strings.
            values: The ratings; None for implicit feedback, of which only the pairs count, each
                once.
            scale: The public scale as ``(low, high)``; one to five where it is not given.
            timestamps: Seconds since 1970, where known.
            duplicates: See `of`.
            name: What to call the table in messages.
            item_table: Public facts about the items.
            users_index: Use this index instead of a new one, so that codes compare with another
                table's.
            items_index: The same for items.

        Raises:
            RatingsError: Something is wrong with the columns; the message says where and what to
                do.
        """
        implicit = values is None
        if implicit:
            if scale not in (None, IMPLICIT_SCALE):
                raise RatingsError(
                    f"{name}: implicit feedback has no rating scale; leave the scale out"
                )
            # Several clicks are one choice; the last tells when.
            scale = IMPLICIT_SCALE
            if timestamps is None or duplicates == "error":
                duplicates = "last" if timestamps is not None else "last-row"
        numbers = checks.numbers(name, np.ones(len(users)) if implicit else values)
        user_codes, users_found = checks.codes(name, "user", users, users_index, len(numbers))
        item_codes, items_found = checks.codes(name, "item", items, items_index, len(numbers))
        times = None if timestamps is None else checks.times(name, timestamps)
        public_scale = RatingScale.of(scale)
        if duplicates != "error" and len(numbers) and (times is None or len(times) == len(numbers)):
            checks.check_values(name, numbers, public_scale)  # while rows still have their numbers
            keys = pair_keys(user_codes, item_codes, len(items_found))
            kept, numbers = checks.merge_duplicates(name, keys, numbers, times, duplicates)
            user_codes, item_codes = user_codes[kept], item_codes[kept]
            times = None if times is None else times[kept]
        return cls(
            users=users_found,
            items=items_found,
            user_codes=user_codes,
            item_codes=item_codes,
            values=numbers,
            timestamps=times,
            scale=public_scale,
            item_table=item_table,
            name=name,
            implicit=implicit,
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.csv``, ``.tsv`` or ``.parquet`` file atomically, readable by you only."""
        from hdpmf.common.data.readers import write_ratings

        write_ratings(self, path)

    hold_out = splits.hold_out
    hold_out_last = splits.hold_out_last
    split = splits.ratio
    split_by_time = splits.by_time
    k_fold = splits.k_fold
    sparsify = splits.sparsify
    min_ratings = splits.min_ratings

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        what = "choices" if self.implicit else "ratings"
        scale = "implicit" if self.implicit else f"scale {self.scale}"
        return (
            f"Ratings({self.name!r}: {len(self):,} {what} of {self.n_items:,} items by "
            f"{self.n_users:,} users, {scale})"
        )

    def _repr_html_(self) -> str:
        """Counts for notebooks; no rating, and no id."""
        facts = {
            "choices" if self.implicit else "ratings": f"{len(self):,}",
            "users": f"{self.n_users:,}",
            "items": f"{self.n_items:,}",
            "of all pairs": f"{self.density:.2%}",
            "scale": "implicit feedback" if self.implicit else self.scale,
        }
        return facts_html(self.name, facts)

    def to_frame(self, kind: Literal["polars", "pandas"] = "polars") -> Any:
        """Return a data frame with the columns user, item, rating and, if known, timestamp.

        Implicit feedback has no column of ratings. PRIVATE, as the ratings are.
        """
        columns: dict[str, NDArray[Any]] = {"user": self.user_ids, "item": self.item_ids}
        if not self.implicit:
            columns["rating"] = self.values
        if self.timestamps is not None:
            columns["timestamp"] = self.timestamps
        return frame_of(columns, kind)

    @property
    def n_users(self) -> int:
        """The number of users in the index; after `take`, some may have no rating here."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """The number of items in the index; after `take`, some may have no rating here."""
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
                **{
                    name: None if column is None else column[chosen]
                    for name, column in self._columns().items()
                }
            )
        except IndexError:
            raise RatingsError(f"rows must be between 0 and {len(self) - 1:,}") from None
        if chosen.dtype != bool:  # positions can repeat, masks cannot
            check_duplicates(self.name, taken.user_codes, taken.item_codes, self.n_items)
        return taken

    def compact(self) -> Ratings:
        """Drop the ids that have no rating here from both indexes."""
        users, user_codes = checks.shrink(self.users, self.user_codes)
        items, item_codes = checks.shrink(self.items, self.item_codes)
        return self._derive(users=users, items=items, user_codes=user_codes, item_codes=item_codes)

    def reindex(self, users: IdIndex, items: IdIndex) -> Ratings:
        """Express the same ratings in other indexes, which must hold every id used here."""
        user_codes, _ = checks.codes(self.name, "user", self.user_ids, users, len(self))
        item_codes, _ = checks.codes(self.name, "item", self.item_ids, items, len(self))
        return self._derive(users=users, items=items, user_codes=user_codes, item_codes=item_codes)

    def with_text_ids(self, *, users: bool = False, items: bool = False) -> Ratings:
        """Return the same ratings with integer ids as text."""
        changes: dict[str, Any] = {}
        if users:
            changes["users"], changes["user_codes"] = as_text(self.users, self.user_codes)
        if items:
            changes["items"], changes["item_codes"] = as_text(self.items, self.item_codes)
        return self._derive(**changes)

    def over(self, items: ItemTable | Iterable[Id]) -> Ratings:
        """The ratings of a public list of items; those of other items are left out.

        A model's items are those of its ratings' index. Where that has what somebody rated, it
        tells that somebody did, and no epsilon covers it; a list that was public before tells
        nothing.
        """
        table = items if isinstance(items, ItemTable) else self.item_table
        index = IdIndex(items.ids if isinstance(items, ItemTable) else list(items), stated=True)
        codes = index.find(self.item_ids)
        if not (codes >= 0).any():
            raise RatingsError(
                f"{self.name}: no rating is about an item of the list; are its ids of another kind?"
            )
        listed = self.take(codes >= 0)
        return listed._derive(items=index, item_codes=codes[codes >= 0], item_table=table)

    def describe(self, item_table: ItemTable | None = None, *, name: str | None = None) -> Ratings:
        """Attach public facts about the items, or another name."""
        return self._derive(
            item_table=self.item_table if item_table is None else ItemTable.of(item_table),
            name=self.name if name is None else name,
        )

    def _derive(self, **changes: Any) -> Ratings:
        """Copy with changes that cannot break what was checked, so that it is not checked again."""
        made = object.__new__(Ratings)
        made.__dict__.update(self.__dict__ | changes)
        made._freeze()
        return made

    def _columns(self) -> dict[str, NDArray[Any] | None]:
        names = ("user_codes", "item_codes", "values", "timestamps")
        return {name: getattr(self, name) for name in names}

    def _freeze(self) -> None:
        for column in self._columns().values():
            if column is not None:
                column.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies sent to worker processes come back writable otherwise.
        self.__dict__.update(state)
        self._freeze()


RatingsLike: TypeAlias = Ratings | Any
"""Ratings, a data frame, a SciPy sparse matrix of users by items, an array or a list of rows, or a
path."""


def as_ratings(
    data: RatingsLike,
    scale: ScaleLike | None = None,
    *,
    implicit: bool | None = False,
    columns: Mapping[str, str] | None = None,
) -> Ratings:
    """The ratings that `Ratings.of` makes of data, or the same ones where it is ratings already.

    Args:
        data: What holds them.
        scale: Their public scale, where the data is no `Ratings`, which know their own.
        implicit: See `Ratings.of`.
        columns: What earlier data called its columns: used where this has all of them.
    """
    if isinstance(data, Ratings):
        return data
    if columns is not None:
        names: Iterable[Any] = getattr(
            data, "column_names", getattr(data, "columns", ())
        )  # Arrow's
        columns = columns if set(columns.values()) <= set(names) else None
    return Ratings.of(data, scale=scale, implicit=implicit, columns=columns)
