"""The ratings and privacy weights in a device's file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

import msgspec
import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import PrivacyError, RatingsError, UnknownIdError
from hdpmf.private.client.recency import UNKNOWN
from hdpmf.private.device.store.catalogues import PinnedCatalogue
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.tables import RawRow, decoded

ME = "me"
_MAX_ID_LENGTH = 256

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rating as it lies in the file: one per item.

    Attributes:
        weight: Overrides the product of the two weights.
        since: Number of the ledger's last entry when the rating got this value: what came after it
            may have sent this one, what came before has not.
        source: The row of the owner's file that it came from, in its plainest form: one row that
            was taken in for several recommenders is one secret (``shared_budget``).
        at: When it was made, in seconds since 1970; None where that is not known. It is used for
            the owner's own lists and never sent.
    """

    item: str
    value: float
    weight: float | None = None
    since: int = 0
    source: str = ""
    at: int | None = None

    def __repr__(self) -> str:
        return "Record(...)"


class _Weight(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    weight: float

    def __repr__(self) -> str:
        return "_Weight(...)"


@dataclass(frozen=True, slots=True, repr=False)
class RatingsTable:
    """Ratings and their weights over a catalogue, and how many ratings it has no place for."""

    ratings: Ratings
    weights: PrivacyWeights
    n_left_out: int


class SealedRatings:
    """The owner's ratings and weights, sealed one by one.

    A rating weighs its owner's weight times its item's. One with its own weight weighs that or,
    where the item weighs less than 1, the smaller of the two.

    Attributes:
        changes: How often this process has written any.
    """

    def __init__(self, database: Database, cipher: StoreCipher) -> None:
        self._database = database
        self._cipher = cipher
        self.changes = 0

    def rating_tag(self, item: str) -> bytes:
        """Return the tag of a rating in the file."""
        return self._cipher.tag(b"rating", item)

    def put(self, records: Sequence[Record], catalogue: PinnedCatalogue | None) -> None:
        """Add ratings, replacing those of the same item.

        A rating's own weight stays where none is given.
        """
        for record in records:
            _check_id(record.item)
        values = np.array([record.value for record in records], np.float64)
        if not bool(np.isfinite(values).all()):
            raise RatingsError("a rating must be a number")
        if catalogue is not None:
            known = np.array([record.item in catalogue.positions for record in records], bool)
            if not bool(catalogue.fit(values[known]).all()):
                raise RatingsError(
                    f"a rating is not on the scale {_scale_words(catalogue)}; nothing was changed"
                )
        with self._database.transaction():
            records = self._after(records)
            self._write("ratings", ((self.rating_tag(record.item), record) for record in records))

    def remove(self, item: str) -> None:
        """Take a rating out of the file."""
        with self._database.transaction():
            if self.find(item) is None:
                raise UnknownIdError("there is no such rating here, so nothing was removed")
            self.changes += 1
            self._database.execute("DELETE FROM ratings WHERE tag = ?", (self.rating_tag(item),))

    def put_table(
        self, ratings: Ratings, catalogue: PinnedCatalogue | None, weights: np.ndarray | None = None
    ) -> None:
        """Add the ratings of a table of one person, with a weight for each where they are given.

        Ids become text.
        """
        if len(np.unique(ratings.user_codes)) > 1:
            raise RatingsError(
                "these are ratings of several users, and a device is one person's; give it the "
                "rows of its owner"
            )
        if ratings.implicit:
            raise RatingsError("implicit feedback has no ratings; a device keeps ratings")
        own = [None] * len(ratings) if weights is None else weights.tolist()
        items = [_name(catalogue, str(item)) for item in ratings.item_ids.tolist()]
        times = ratings.timestamps
        made = [None] * len(ratings) if times is None else times.tolist()
        columns = (items, ratings.values.tolist(), own, made)
        self.put([Record(i, v, w, at=at) for i, v, w, at in zip(*columns, strict=True)], catalogue)

    def weigh_table(
        self, weights: PrivacyWeights, ratings: Ratings, catalogue: PinnedCatalogue | None
    ) -> None:
        """Set the weights of a table's owner, items and, where they have their own, ratings."""
        beta, gamma = weights.for_users(ratings.users), weights.for_items(ratings.items)
        items = ratings.items.ids
        with self._database.transaction():
            self.weigh(
                float(beta[ratings.user_codes[0]]) if len(ratings) else None,
                {
                    _name(catalogue, str(items[code])): float(gamma[code])
                    for code in sorted(set(ratings.item_codes.tolist()))
                },
            )
            if weights.rating_weights is not None:
                self.put_table(ratings, catalogue, weights.for_ratings(ratings))

    def find(self, item: str) -> Record | None:
        """The rating of an item."""
        tag = self.rating_tag(item)
        rows = self._database.execute("SELECT sealed FROM ratings WHERE tag = ?", (tag,))
        return self._record(tag, rows[0][0]) if rows else None

    def values_of(self, items: Iterable[str]) -> dict[str, float]:
        """The ratings of a few items."""
        found = map(self.find, items)
        return {record.item: record.value for record in found if record is not None}

    def records(self) -> list[Record]:
        """All ratings, by item."""
        return sorted(self._unsorted(), key=lambda record: record.item)

    def weighed(self, beta: float | None = None) -> list[Record]:
        """Return all ratings, each with its weight by the rules of the class.

        With ``beta``, as if the owner's own weight were that.
        """
        weight = self._weigher(beta)
        return [msgspec.structs.replace(record, weight=weight(record)) for record in self.records()]

    def sources(self) -> dict[str, str]:
        """The rows of files that ratings came from, by item."""
        return {record.item: record.source for record in self._unsorted() if record.source}

    def names(self) -> set[str]:
        """The names of all items that have a rating."""
        return {record.item for record in self._unsorted()}

    def count(self) -> int:
        """Return the number of ratings."""
        return int(self._database.execute("SELECT count(*) FROM ratings")[0][0])

    def weigh(self, beta: float | None, gammas: Mapping[str, float]) -> None:
        """Set the privacy weights of the owner and of items."""
        with self._database.transaction():
            if beta is not None:
                self._write("user_weights", [(self._own_tag, _Weight(ME, _checked(beta)))])
            known = self.gammas()
            for item in gammas:
                _check_id(item)
            # Items without a weight of their own have 1; most have, and there are many.
            changed = {
                item: gamma for item, gamma in gammas.items() if gamma != known.get(item, 1.0)
            }
            weights = [_Weight(item, _checked(gamma)) for item, gamma in changed.items()]
            self._database.execute_many(
                "DELETE FROM item_weights WHERE tag = ?",
                [(self._item_tag(item),) for item in changed],
            )
            lighter = [(self._item_tag(row.name), row) for row in weights if row.weight < 1]
            self._write("item_weights", lighter)

    @property
    def beta(self) -> float:
        """The owner's weight."""
        return next((row.weight for row in self._weights("user_weights")), 1.0)

    def gammas(self, of: Iterable[str] | None = None) -> dict[str, float]:
        """The weight that the owner gave to single items; only to these few, if they are given."""
        found = (
            self._weights("item_weights")
            if of is None
            else self._weights("item_weights", map(self._item_tag, of))
        )
        return {row.name: row.weight for row in found}

    def clear(self) -> None:
        """Take all ratings and weights out of the file."""
        with self._database.transaction():
            self.changes += 1
            for table in ("ratings", "user_weights", "item_weights"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608  # names of ours

    def resealed(self, cipher: StoreCipher) -> Iterator[tuple[str, Iterator[RawRow]]]:
        """Return the rows of each table as another cipher seals them, inside a transaction."""
        other = SealedRatings(self._database, cipher)

        def rows(table: str, kind: type[T], tag_of: Callable[[T], bytes]) -> Iterator[RawRow]:
            query = f"SELECT tag, sealed FROM {table}"  # noqa: S608  # a name of ours
            for old, sealed in self._database.iterate(query):
                row = decoded(self._cipher.open(sealed, table.encode() + old), kind, table)
                tag = tag_of(row)
                yield tag, cipher.seal(msgspec.msgpack.encode(row), table.encode() + tag)

        yield "ratings", rows("ratings", Record, lambda row: other.rating_tag(row.item))
        yield "user_weights", rows("user_weights", _Weight, lambda row: other._own_tag)
        yield "item_weights", rows("item_weights", _Weight, lambda row: other._item_tag(row.name))

    def weights_of(self, items: Iterable[str]) -> np.ndarray:
        """The weight of each rating, by item; NaN where there is no such rating."""
        weight = self._weigher()
        known = {record.item: weight(record) for record in self._unsorted()}
        return np.array([known.get(item, math.nan) for item in items], np.float64)

    def _weigher(self, beta: float | None = None) -> Callable[[Record], float]:
        """Return what gives the weight of each rating, as rules are now."""
        own, items = self.beta if beta is None else beta, self.gammas()

        def weight(record: Record) -> float:
            item = items.get(record.item, 1.0)
            product = own * item
            if record.weight is None:
                return product
            return min(record.weight, product) if item < 1 else record.weight

        return weight

    def table(self, catalogue: PinnedCatalogue) -> RatingsTable:
        """Ratings and weights over a catalogue."""
        beta, gammas = self.beta, self.gammas()
        items = catalogue.known.items
        gamma = np.ones(len(items))
        for name, weight in gammas.items():
            if name in catalogue.positions:
                gamma[catalogue.positions[name]] = weight
        rows = self._unsorted()
        position_of = catalogue.positions.get
        positions = np.fromiter((position_of(row.item, -1) for row in rows), np.int32, len(rows))
        values = np.fromiter((row.value for row in rows), np.float64, len(rows))
        own = np.fromiter(
            (math.nan if row.weight is None else row.weight for row in rows), np.float64, len(rows)
        )
        times = np.fromiter(
            (UNKNOWN if row.at is None else row.at for row in rows), np.int64, len(rows)
        )
        kept = np.flatnonzero(positions >= 0)
        kept = kept[np.argsort(positions[kept], kind="stable")]
        positions, own = positions[kept], own[kept]
        ratings = _ratings(positions, catalogue.bring_in(values[kept]), times[kept], catalogue)
        mixed = None
        if bool((own > 0).any()):
            product, held = beta * gamma[positions], gamma[positions] < 1
            mixed = np.where(held, np.fmin(own, product), np.where(np.isnan(own), product, own))
        weights = PrivacyWeights(ratings.users, items, np.array([beta]), gamma, mixed)
        return RatingsTable(ratings, weights, len(rows) - len(kept))

    def _after(self, records: Sequence[Record]) -> list[Record]:
        """Return ratings with what is kept of earlier ones, such as their own weight."""
        single = len(records) == 1
        found = [self.find(records[0].item)] if single else self._unsorted()
        before = {record.item: record for record in found if record is not None}
        now = int(self._database.execute("SELECT coalesce(max(number), 0) FROM ledger")[0][0])

        def after(record: Record) -> Record:
            old = before.get(record.item)
            same = old is not None and old.value == record.value
            since = old.since if old is not None and same else now
            at = old.at if old is not None and same and record.at is None else record.at
            weight = old.weight if old is not None and record.weight is None else record.weight
            source = record.source or ("" if old is None else old.source)
            return msgspec.structs.replace(record, since=since, weight=weight, source=source, at=at)

        return [after(record) for record in records]

    @property
    def _own_tag(self) -> bytes:
        return self._cipher.tag(b"owner")

    def _item_tag(self, item: str) -> bytes:
        return self._cipher.tag(b"item", item)

    def _write(self, table: str, rows: Iterable[tuple[bytes, Record | _Weight]]) -> None:
        self.changes += 1
        seal, encode = self._cipher.seal, msgspec.msgpack.encode
        self._database.execute_many(
            f"INSERT OR REPLACE INTO {table} VALUES (?, ?)",  # noqa: S608  # a name of ours
            # In the order of the file: much faster for many, and no order of rating can be read off
            # it.
            (
                (tag, seal(encode(row), table.encode() + tag))
                for tag, row in sorted(rows, key=itemgetter(0))
            ),
        )

    def _unsorted(self) -> list[Record]:
        rows = self._database.execute("SELECT tag, sealed FROM ratings")
        return [self._record(tag, sealed) for tag, sealed in rows]

    def _record(self, tag: bytes, sealed: bytes) -> Record:
        return decoded(self._cipher.open(sealed, b"ratings" + tag), Record, "ratings")

    def _weights(self, table: str, tags: Iterable[bytes] | None = None) -> Iterator[_Weight]:
        query, execute = f"SELECT tag, sealed FROM {table}", self._database.execute  # noqa: S608  # a name of ours
        rows = (
            execute(query)
            if tags is None
            else (row for tag in tags for row in execute(f"{query} WHERE tag = ?", (tag,)))
        )
        for tag, sealed in rows:
            yield decoded(self._cipher.open(sealed, table.encode() + tag), _Weight, table)


def _ratings(
    positions: np.ndarray,
    values: np.ndarray,
    times: np.ndarray,
    catalogue: PinnedCatalogue,
) -> Ratings:
    known, empty = catalogue.known, not len(values)
    if empty:
        # A table read from outside must not be empty, one cut from another may be: a device without
        # ratings takes part too.
        positions = np.zeros(1, np.int32)
        values = np.full(1, known.scale.low)
        times = np.full(1, UNKNOWN)
    made = Ratings(
        users=IdIndex([ME]),
        items=known.items,
        user_codes=np.zeros(len(positions), np.int32),
        item_codes=positions,
        values=values.astype(np.float32),
        scale=known.scale,
        item_table=known.item_table,
        timestamps=times if bool((times != UNKNOWN).any()) else None,
        name="this device",
    )
    return made.take(np.zeros(1, bool)) if empty else made


def _check_id(text: str) -> None:
    if not text or len(text) > _MAX_ID_LENGTH or "\0" in text:
        raise RatingsError(
            f"the item's id is empty, longer than {_MAX_ID_LENGTH} characters or contains NUL"
        )


def _name(catalogue: PinnedCatalogue | None, item: str) -> str:
    return item if catalogue is None else catalogue.name_of(item)


def _checked(weight: float) -> float:
    if not 0 < weight <= 1:
        raise PrivacyError(
            "a privacy weight must be above 0 and at most 1: 1 allows all of epsilon, less "
            "allows less"
        )
    return float(weight)


def _scale_words(catalogue: PinnedCatalogue) -> str:
    scale = catalogue.known.scale
    return f"{scale}" if scale.step is None else f"{scale} in steps of {scale.step:g}"
