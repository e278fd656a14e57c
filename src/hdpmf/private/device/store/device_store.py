"""The private device's store: one SQLite file with all that a device keeps.

That is ratings, weights, user vectors, identity, pinned facts and the ledger.

The file is readable by its owner only and, with a passphrase, sealed (``encryption``). Each method
is one commit, on the disk when it returns; ``transaction`` makes one of several. A process that is
killed at any instant leaves all that was committed and nothing else. Several commands may use a
file at a time; one of them may answer a recommender.

A restored old copy lacks what was sent since. The counter beside the file (``counter``) detects
it, unless the counter was restored, too: never restore an old copy of a store that has been used.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, closing, suppress
from copy import copy
from types import TracebackType
from typing import Literal, Self

import msgspec

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import AnyCatalogue
from hdpmf.common.protocol.identity import Identity
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.private.device.disclosures.ledger import Ledger
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.catalogues import PLAIN, PinnedCatalogue, pinned
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.pins import PinnedItems, remember
from hdpmf.private.device.store.ratings_table import RatingsTable, Record, SealedRatings
from hdpmf.private.device.store.schema import (
    FIRST,
    OWN_FILE,
    Device,
    PublicData,
    Recommender,
)
from hdpmf.private.device.store.tables import ONLY, Runs, Tables, read_header, write_header


class DeviceStore:
    """A device's store; use it as a context manager. Make one with `create` or `open`.

    Attributes:
        identity: The device's signing key.
        ledger: What was sent and paid.
        runs: What is kept of runs under way, and what was answered in them.
        rated: The ratings and their weights, one by one. PRIVATE.
        tables: Everything else, in typed tables (``schema``).
        recommender_id: Of the recommender whose catalogue and model this is about (`at`).
    """

    def __init__(self, database: Database, cipher: StoreCipher) -> None:
        self._database = database
        self._cipher = cipher
        self.tables = Tables(database, cipher)
        device = self.device
        self.identity = Identity(device.identity)
        self.rated = SealedRatings(database, cipher)
        self.runs = Runs(database, cipher)
        self.ledger = Ledger(database, cipher, self.rated, lambda: self.policy)
        self.recommender_id = FIRST
        self._views = {FIRST: self}  # one for each recommender, which all of them share
        self._items = PinnedItems(database, self.tables)
        self._table: tuple[tuple[int, ...], PinnedCatalogue, RatingsTable] | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        passphrase: str | None = None,
        policy: Policy | None = None,
        scale: RatingScale | None = None,
    ) -> DeviceStore:
        """Make a store with a new identity.

        Args:
            path: The file, which must not exist; ``":memory:"`` for simulation.
            passphrase: Seal everything with it.
            policy: What the device agrees to.
            scale: The scale of its owner's ratings; None takes that of the first table of ratings.

        Raises:
            ConfigError: There is a file already.
            StorageError: The disk refused.
        """
        cipher = StoreCipher.new(passphrase)
        database = Database(path, make=True)
        try:
            with database.transaction():
                database.lay_tables(cipher)
                write_header(database, cipher)
                scales = {} if scale is None else {PLAIN: (scale.low, scale.high, scale.step)}
                device = Device(
                    identity=Identity.generate().secret_bytes(),
                    policy=policy or Policy(),
                    scales=scales,
                )
                Tables(database, cipher).device.put(device)
            return cls(database, cipher)
        except BaseException:
            with suppress(OSError):
                database.remove()
            raise

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        passphrase: str | None = None,
        serving: bool = False,
        old_copy: bool = False,
    ) -> DeviceStore:
        """Open a store.

        Args:
            passphrase: Where it is encrypted.
            serving: To answer a recommender: one process at a time may.
            old_copy: Take an old copy too, or one that was moved without its counter: it has
                forgotten what was sent since, and may send it again.

        Raises:
            ConfigError: There is no such file, or it is something else, or of a newer hdpmf.
            PrivacyError: The passphrase is wrong or missing.
            StorageError: It is damaged, was tampered with, is an old copy or in use by another
                process that serves, or the disk refused.
        """
        database = Database(path)
        try:
            cipher = StoreCipher.unlock(read_header(database), passphrase)
            database.check(cipher, old_copy=old_copy)
            made = cls(database, cipher)
            if serving:
                database.serve()
            return made
        except BaseException:
            database.close()
            raise

    @staticmethod
    def is_encrypted(path: str | os.PathLike[str]) -> bool:
        """Return True if a store needs a passphrase."""
        with closing(Database(path)) as database:
            return StoreCipher.needs_passphrase(read_header(database))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DeviceStore({self.identity.public.hex()[:16]})"

    def close(self) -> None:
        """Let the file go."""
        self._database.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is one commit; an error undoes all of it."""
        return self._database.transaction()

    def at_once(self) -> AbstractContextManager[None]:
        """Begin a transaction without waiting; StorageError if another is writing."""
        return self._database.at_once()

    def at(self, recommender_id: int) -> DeviceStore:
        """Return this store with the catalogue, model and pins of one recommender.

        All else is the same.
        """
        if recommender_id not in self.recommender_ids:
            raise ConfigError("this store knows no such recommender")
        if recommender_id not in self._views:
            view = self._views[recommender_id] = copy(self)
            view.recommender_id, view._table = recommender_id, None
            view._items = PinnedItems(self._database, self.tables, recommender_id)
        return self._views[recommender_id]

    @property
    def recommender_ids(self) -> list[int]:
        """The ids of recommenders; the first exists before any is joined."""
        return sorted({FIRST, *(row.id for row in self.tables.recommenders.rows())})

    def new_recommender(self) -> DeviceStore:
        """Return this store for one more recommender."""
        with self.transaction():
            recommender_id = self.recommender_ids[-1] + 1
            self.tables.recommenders.put(Recommender(id=recommender_id))
        return self.at(recommender_id)

    @property
    def recommender(self) -> Recommender:
        """The recommender that this view is about, and what is pinned of it."""
        found = self.tables.recommenders.find(self.recommender_id)
        return Recommender(id=self.recommender_id) if found is None else found

    def change_recommender(self, **changes: object) -> None:
        """Change fields of `recommender`."""
        with self.transaction():
            self.tables.recommenders.put(msgspec.structs.replace(self.recommender, **changes))

    @property
    def device(self) -> Device:
        """The device's own row."""
        return self.tables.device.need(ONLY)

    def change_device(self, **changes: object) -> None:
        """Change fields of `device`."""
        with self.transaction():
            self.tables.device.put(msgspec.structs.replace(self.device, **changes))

    @property
    def encrypted(self) -> bool:
        """True if there is a passphrase."""
        return self._cipher.is_encrypted

    @property
    def policy(self) -> Policy:
        """The policy of this device."""
        return self.device.policy

    def set_policy(self, policy: Policy) -> None:
        """Agree to something else from now on."""
        self.change_device(policy=policy)

    @property
    def scale(self) -> RatingScale | None:
        """The scale that the owner rates on; None if it is not known.

        No recommender can change it.
        """
        return self._items.scale

    def rate(self, item: str, value: float, *, at: int | Literal["now"] | None = "now") -> None:
        """Add or change a rating, made at a time in seconds since 1970 (None: not known).

        It has to be on the owner's scale and, once a catalogue is pinned, on that one's.
        """
        scale = self.scale
        if scale is not None and not scale.low <= value <= scale.high:
            raise RatingsError(
                f"a rating is not on this device's scale {scale}; nothing was changed"
            )
        made = Record(item, float(value), at=int(time.time()) if at == "now" else at)
        self.rated.put([made], self.pinned_catalogue)

    def remove(self, item: str) -> None:
        """Take a rating out. What it has spent stays spent, also if it comes back."""
        self.rated.remove(item)

    def add(self, ratings: Ratings) -> None:
        """Add many ratings of the owner.

        Ids become text. The first table sets the scale.
        """
        with self.transaction():
            own = self.scale
            if own is not None and (own.low, own.high) != (ratings.scale.low, ratings.scale.high):
                raise RatingsError(
                    f"these ratings are on the scale {ratings.scale}; this device's is {own}"
                )
            self.rated.put_table(ratings, self.pinned_catalogue)
            if own is None:
                self._items.set_scale(ratings.scale)

    def set_weight(
        self,
        *,
        beta: float | None = None,
        item: str | None = None,
        gamma: float | None = None,
    ) -> None:
        """Set the privacy weight of the owner (``beta``), of an item (``gamma``), or both."""
        if (item is None) != (gamma is None):
            raise ConfigError("an item's weight needs both item and gamma")
        self.rated.weigh(beta, {} if item is None or gamma is None else {item: gamma})

    def set_weights(self, weights: PrivacyWeights, ratings: Ratings) -> None:
        """Set the weights of a table that was given to `add`: its owner's, items', ratings'."""
        self.rated.weigh_table(weights, ratings, self.pinned_catalogue)

    def ratings(self) -> Ratings:
        """Return the ratings of the pinned catalogue's items; others are left out."""
        return self._over_catalogue().ratings

    def weights(self) -> PrivacyWeights:
        """The privacy weights of `ratings`."""
        return self._over_catalogue().weights

    def ratings_version(self) -> tuple[int, ...]:
        """Numbers that change with ratings or weights, by whichever process; at times without.

        Reading them takes as long for one rating as for thousands.
        """
        return self._database.version(), self._database.rollbacks, self.rated.changes

    def keyed_digest(self, data: bytes) -> bytes:
        """Return a digest that says nothing about the data to somebody without the store's key."""
        return self._cipher.lasting_check(data)

    @property
    def n_left_out(self) -> int:
        """Ratings of items that the catalogue does not have."""
        return self._over_catalogue().n_left_out

    @property
    def n_ratings(self) -> int:
        """All ratings in the store."""
        return self.rated.count()

    def records(self) -> list[Record]:
        """Return all ratings in the store with their weights, with or without a catalogue.

        For this device's owner only.
        """
        return self.rated.weighed()

    def pin_catalogue(self, items: AnyCatalogue) -> PinnedCatalogue:
        """Pin an item table that is the pinned one or follows from it; return what is pinned.

        Raises:
            ProtocolError: It does not follow from the pinned one, or cannot be used.
        """
        own = self.tables.catalogues.find(OWN_FILE)
        with self.transaction():
            return self._items.pin(items, None if own is None else own.data, self.rated.names)

    def set_own_items(self, data: bytes) -> None:
        """Keep the items of the owner's file, encoded, instead of those of an earlier one."""
        with self.transaction():
            self._remember_own()
            self.tables.catalogues.put(PublicData(recommender_id=OWN_FILE, data=data))

    @property
    def item_namespace(self) -> str:
        """The namespace of the recommender's items on this device."""
        return self._items.namespace

    def name_of(self, item: str) -> str:
        """Return this device's name of the recommender's item with this id."""
        catalogue = self.pinned_catalogue
        return self._items.name_of(item) if catalogue is None else catalogue.name_of(item)

    @property
    def pinned_catalogue(self) -> PinnedCatalogue | None:
        """The pinned item table with all that is computed from it."""
        return self._items.now

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the pinned item table; None without one."""
        catalogue = self.pinned_catalogue
        return None if catalogue is None else catalogue.known.fingerprint

    def forget(self, *, ratings: bool = False, model: bool = False) -> None:
        """Delete the user vectors and the run under way from the file. The ledger stays.

        Args:
            ratings: Also the ratings, and their weights.
            model: Also the item tables, and the owner's own.
        """
        with self.transaction():
            self.runs.clear()
            self.ledger.release_held(
                "the owner forgot the runs under way; nothing of this one had left"
            )
            self._table = None
            self.tables.models.clear()
            if model:
                kept = self._names_in_use()
                for view in map(self.at, self.recommender_ids):
                    view._items.forget(kept)
                self._remember_own()
                self.tables.catalogues.delete(OWN_FILE)
            if ratings:
                self.rated.clear()
                self.tables.past_items.clear()
        self._database.shred()

    def forget_recommender(self) -> None:
        """Take all that is here of this view's recommender out of the file.

        Ratings and the ledger stay.
        """
        with self.transaction():
            self._items.forget(self._names_in_use())
            self.tables.models.delete(self.recommender_id)
            self.change_recommender(authority=None, servers=b"", name="")
        self._database.shred()

    def destroy(self) -> None:
        """Delete the file, with its identity and its ledger."""
        self._database.remove()

    def over(self, catalogue: PinnedCatalogue) -> RatingsTable:
        """Return ratings and weights over a catalogue: the pinned one, or an earlier version."""
        now = self.ratings_version()  # another thread may do the same as this
        kept = self._table
        if kept is None or kept[0] != now or kept[1] is not catalogue:
            kept = self._table = now, catalogue, self.rated.table(catalogue)
        return kept[2]

    def _remember_own(self) -> None:
        """Keep what items of the owner's file are that have ratings or weights: it goes."""
        own = self.tables.catalogues.find(OWN_FILE)
        if own is not None:
            remember(self.tables, pinned(own.data), OWN_FILE, self._names_in_use())

    def _names_in_use(self) -> set[str]:
        """Names of items that have ratings or weights."""
        return self.rated.names() | set(self.rated.gammas())

    def _over_catalogue(self) -> RatingsTable:
        return self.over(self._catalogue())

    def _catalogue(self) -> PinnedCatalogue:
        catalogue = self.pinned_catalogue
        if catalogue is None:
            raise ConfigError(
                "no item table is pinned yet; it comes with the first conversation (hdpmf "
                "device join)"
            )
        return catalogue
