"""The store behind the page, and the threads that answer recommenders."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.titles import TitleSearch
from hdpmf.common.web.local_server import AttemptLimit
from hdpmf.errors import ConfigError, HdpmfError, PrivacyError, StorageError
from hdpmf.private.device.choices.privacy_level import GROUPS, set_privacy_weight
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.participant import POLL_EVERY, Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.passphrase import change_passphrase
from hdpmf.private.device.store.schema import Recommender

FIRST_WEIGHT = GROUPS["moderate"]
"""The privacy weight of an owner who has not chosen one yet: not the least private."""

_LINES = 100

_PATIENCE = 10.0  # seconds for a thread to end


class BackgroundReports:
    """Threads that answer the recommenders the owner has joined.

    Args:
        path: The store's file.
        log: Told what happens, in lines for the owner. They hold no rating.
        every: Seconds between two looks at what recommenders publish.

    Attributes:
        problem: Why nothing is answered here; empty if it is.
    """

    def __init__(self, path: Path, log: Callable[[str], None], every: float | None = None) -> None:
        self._path = path
        self._every = every or POLL_EVERY
        self._tell = log
        self._lines: deque[tuple[str, str]] = deque(maxlen=_LINES)
        self._store: DeviceStore | None = None
        self._threads: dict[str, tuple[threading.Thread, threading.Event, threading.Event]] = {}
        self._states: dict[str, tuple[str, str]] = {}
        self._looks: dict[str, tuple[float, bool]] = {}
        self.problem = ""

    def __repr__(self) -> str:
        return f"Answering({len(self._threads)} recommenders)"

    def log_lines(self) -> list[tuple[str, str]]:
        """Return the last log lines for the owner with their times, newest first."""
        return list(reversed(self._lines))

    def state(self, address: str) -> tuple[str, str] | None:
        """Return the time and state of the connection to a recommender, if known."""
        return self._states.get(address)

    def last_look(self, address: str) -> tuple[float, bool] | None:
        """Return when a recommender's files were looked at, and True if these were reached."""
        return self._looks.get(address)

    def _log_of(self, known: Recommender) -> Callable[[str], None]:
        """Return a log function that prefixes the recommender's address."""
        return lambda line: self._log(f"{known.address}: {line}")

    def _log(self, line: str) -> None:
        if not self._lines or self._lines[-1][1] != line:
            self._lines.append((utc_now(), line))
            self._tell(line)

    def begin(self, passphrase: str | None) -> None:
        """Start, unless another process already answers from this store."""
        if self._store is None:
            try:
                self._store = DeviceStore.open(self._path, passphrase=passphrase, serving=True)
                self.problem = ""
            except StorageError as error:
                self.problem = str(error)
                self._log(f"Recommenders are not answered from here: {error}")
                return
        self.refresh()

    def refresh(self) -> None:
        """Start threads for joined recommenders, stop those of paused ones, and poll soon."""
        if self._store is None:
            return
        wanted = {
            known.address: known for known in joined_recommenders(self._store) if not known.paused
        }
        for address in [known for known in self._threads if known not in wanted]:
            self._stop(address)
        for address, known in wanted.items():
            if address in self._threads and self._threads[address][0].is_alive():
                self._threads[address][2].set()
            else:
                self._start(known)

    def end(self) -> None:
        """Stop all threads."""
        for address in list(self._threads):
            self._stop(address)
        if self._store is not None:
            self._store.close()
            self._store = None

    def _start(self, known: Recommender) -> None:
        stop = threading.Event()
        soon = threading.Event()
        thread = threading.Thread(target=self._guarded, args=(known, stop, soon), daemon=True)
        self._threads[known.address] = thread, stop, soon
        thread.start()

    def _stop(self, address: str) -> None:
        thread, stop, soon = self._threads.pop(address)
        stop.set()
        soon.set()
        thread.join(_PATIENCE)
        self._states.pop(address, None)
        self._looks.pop(address, None)

    def _guarded(self, known: Recommender, stop: threading.Event, soon: threading.Event) -> None:
        store = self._store
        if store is None:
            return
        try:
            self._serve(store.at(known.id), known, stop, soon)
        except HdpmfError as error:
            if not stop.is_set():
                self._states[known.address] = utc_now(), f"it is not answered: {error}"
                self._log_of(known)(f"it is not answered: {error}")
        except Exception:
            if not stop.is_set():  # otherwise the store was closed under it
                raise

    def _serve(
        self, store: DeviceStore, known: Recommender, stop: threading.Event, soon: threading.Event
    ) -> None:
        from hdpmf.private.device.connection import serve_recommender

        def after(participant: Participant) -> None:
            if participant.last_look is not None:
                self._looks[known.address] = participant.last_look

        serve_recommender(
            store,
            known.address,
            stop,
            self._log_of(known),
            every=self._every,
            soon=soon,
            after=after,
        )


class Owner:
    """The owner's store, as the page uses it.

    The page and what answers recommenders have a connection each, so that neither sees the other's
    half-done work.

    Args:
        path: The store's file; it may not be there yet.
        log: Told what happens, in lines for the owner. They hold no rating.
        every: Seconds between two looks at what recommenders publish; the usual ones by default.

    Attributes:
        background: What answers recommenders.
    """

    def __init__(
        self,
        path: Path,
        log: Callable[[str], None],
        every: float | None = None,
    ) -> None:
        self.path = path
        self.attempts = AttemptLimit()
        self.background = BackgroundReports(path, log, every)
        self._lock = threading.RLock()
        self._store: DeviceStore | None = None
        self._searches: dict[int, TitleSearch] = {}

    def __repr__(self) -> str:
        return f"Owner({self.path.name!r}, {'closed' if self._store is None else 'open'})"

    @property
    def exists(self) -> bool:
        """True if the store exists."""
        return self.path.exists()

    @property
    def encrypted(self) -> bool:
        """True if the store needs a passphrase."""
        return self.exists and DeviceStore.is_encrypted(self.path)

    @property
    def is_open(self) -> bool:
        """True if the store is open."""
        return self._store is not None

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The store's lock."""
        return self._lock

    @contextmanager
    def store(self) -> Iterator[DeviceStore]:
        """Lock the open store for one request."""
        with self._lock:
            if self._store is None:
                raise ConfigError("the store is locked; unlock it first")
            yield self._store

    def make(self, name: str, passphrase: str | None, scale: RatingScale) -> None:
        """Create a store and open it."""
        if name and not (len(name) <= 200 and name.isprintable()):
            raise ConfigError("a name has 1 to 200 printable characters")
        with new_device(
            self.path,
            name=name or None,
            policy=Policy(ask=True),
            passphrase=passphrase,
            scale=scale,
        ) as store:
            set_privacy_weight(store, FIRST_WEIGHT)
        self.open(passphrase)

    def open(self, passphrase: str | None) -> None:
        """Open the store and start to answer recommenders.

        Raises:
            PrivacyError: The passphrase is wrong, or it was tried too often.
        """
        with self._lock:
            store = self._opened(passphrase)
            self.attempts.right()
            self.close()
            self._store = store
            self.background.begin(passphrase)

    def _opened(self, passphrase: str | None) -> DeviceStore:
        """Return the store, opened by one more attempt at its passphrase."""
        if self.attempts.wait > 0:
            raise PrivacyError(f"too many wrong passphrases: wait {self.attempts.wait:.0f} seconds")
        try:
            return DeviceStore.open(self.path, passphrase=passphrase)
        except PrivacyError:
            self.attempts.wrong()
            raise

    def close(self) -> None:
        """Close the store and drop its key. The background threads go on."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store = None
            self._searches = {}

    def end(self) -> None:
        """Close the store and stop the background threads."""
        self.background.end()
        self.close()

    def change_passphrase(self, old: str | None, new: str) -> None:
        """Encrypt the store with a new passphrase; it stays open."""
        with self._lock:
            self._opened(old).close()
            self.background.end()
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
            self.background.end()
            with self.store() as store:
                store.destroy()
            self._store = None
            self._searches = {}

    def search(self, recommender_id: int, *, fresh: bool = False) -> TitleSearch | None:
        """Return a recommender's title search; ``fresh`` reloads it if the items changed."""
        with self.store() as store:
            found = self._searches.get(recommender_id)
            if fresh or found is None:
                shown = current_catalogue(store.at(recommender_id))
                if shown is None:
                    self._searches.pop(recommender_id, None)
                    return None
                if found is None or found.table is not shown.table:
                    found = self._searches[recommender_id] = TitleSearch(shown.table)
            return found
