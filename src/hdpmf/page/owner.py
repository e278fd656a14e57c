"""The store behind the page: made, opened, locked; one request at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hdpmf.device.card import new_device
from hdpmf.device.policy import Policy
from hdpmf.device.rekey import change_passphrase
from hdpmf.device.store import DeviceStore
from hdpmf.device.titles import shown_items
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.page.answering import Answering
from hdpmf.public.title_search import TitleSearch
from hdpmf.ratings import RatingScale
from hdpmf.web.sessions import Tries


class Owner:
    """What the page knows of its owner's store.

    The page and what answers recommenders have a connection each, so that neither sees the other's half-done work.

    Args:
        path: The store's file; it may not be there yet.
        log: Told what happens, in lines for the owner. They hold no rating.
        every: Seconds between two looks at what recommenders publish; the usual ones by default.

    Attributes:
        tries: Of the passphrase.
        answering: What answers recommenders.
    """

    def __init__(self, path: Path, log: Callable[[str], None], every: float | None = None) -> None:
        self.path = path
        self.tries = Tries()
        self.answering = Answering(path, log, every)
        self._lock = threading.RLock()
        self._store: DeviceStore | None = None
        self._searches: dict[int, TitleSearch] = {}

    def __repr__(self) -> str:
        return f"Owner({self.path.name!r}, {'closed' if self._store is None else 'open'})"

    @property
    def made(self) -> bool:
        """Whether there is a store."""
        return self.path.exists()

    @property
    def encrypted(self) -> bool:
        """Whether the store needs a passphrase."""
        return self.made and DeviceStore.is_encrypted(self.path)

    @property
    def opened(self) -> bool:
        """Whether it is open."""
        return self._store is not None

    @property
    def alone(self) -> AbstractContextManager[object]:
        """As a context: nobody else opens, uses or closes the store meanwhile."""
        return self._lock

    @contextmanager
    def store(self) -> Iterator[DeviceStore]:
        """The store, for one request."""
        with self._lock:
            if self._store is None:
                raise ConfigError("the store is locked; unlock it first")
            yield self._store

    def make(self, name: str, passphrase: str | None, scale: RatingScale) -> None:
        """Make a new store, and open it."""
        if name and not (len(name) <= 200 and name.isprintable()):
            raise ConfigError("a name has 1 to 200 printable characters")
        new_device(self.path, name=name or None, policy=Policy(ask=True), passphrase=passphrase, scale=scale).close()
        self.open(passphrase)

    def open(self, passphrase: str | None) -> None:
        """Open the store, and begin to answer recommenders, if nobody else does so.

        Raises:
            PrivacyError: The passphrase is wrong, or it was tried too often.
        """
        with self._lock:
            if self.tries.wait > 0:
                raise PrivacyError(f"too many wrong passphrases: wait {self.tries.wait:.0f} seconds")
            try:
                store = DeviceStore.open(self.path, passphrase=passphrase)
            except PrivacyError:
                self.tries.wrong()
                raise
            self.tries.right()
            self.close()
            self._store = store
            self.answering.begin(passphrase)

    def close(self) -> None:
        """Let the store go, and with it its key and everything that was read from it. Answering goes on."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store, self._searches = None, {}

    def end(self) -> None:
        """Close it, and answer nobody any more."""
        self.answering.end()
        self.close()

    def change_passphrase(self, old: str | None, new: str) -> None:
        """Seal the store anew; it stays open."""
        with self._lock:
            if self.tries.wait > 0:
                raise PrivacyError(f"too many wrong passphrases: wait {self.tries.wait:.0f} seconds")
            try:
                DeviceStore.open(self.path, passphrase=old).close()
            except PrivacyError:
                self.tries.wrong()
                raise
            self.answering.end()
            self.close()
            opens = old
            try:
                change_passphrase(self.path, new, old=old)
                opens = new
            finally:
                self.open(opens)

    def destroy(self) -> None:
        """Delete the store, with its ledger and its identity."""
        with self._lock:
            self.answering.end()
            with self.store() as store:
                store.destroy()
            self._store, self._searches = None, {}

    def search(self, place: int, *, fresh: bool = False) -> TitleSearch | None:
        """Search in the items of a place of the open store; ``fresh``: see first whether they are others by now."""
        with self.store() as store:
            found = self._searches.get(place)
            if fresh or found is None:
                shown = shown_items(store.at(place))
                if shown is None:
                    self._searches.pop(place, None)
                    return None
                if found is None or found.table is not shown.table:
                    found = self._searches[place] = TitleSearch(shown.table)
            return found
