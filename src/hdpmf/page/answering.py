"""What answers recommenders while the page is open, and goes on when it is locked: a thread for each of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hdpmf.device.agent import DeviceAgent
from hdpmf.device.following import follow
from hdpmf.device.joined import Joined, joined
from hdpmf.device.ledger import utc_now
from hdpmf.device.reporting import LOOK_EVERY, Reporter
from hdpmf.device.slots import in_slots
from hdpmf.device.store import DeviceStore
from hdpmf.errors import HdpmfError, StorageError

_SAID = 100
_PATIENCE = 10.0  # seconds for a thread to end


class Answering:
    """Answers the recommenders that the owner has joined.

    Args:
        path: The store's file.
        log: Told what happens, in lines for the owner. They hold no rating.
        every: Seconds between two looks at what recommenders publish.

    Attributes:
        why_not: Why nothing is answered here; empty if it is.
    """

    def __init__(self, path: Path, log: Callable[[str], None], every: float | None = None) -> None:
        self._path, self._every = path, every or LOOK_EVERY
        self._tell = log
        self._said: deque[tuple[str, str]] = deque(maxlen=_SAID)
        self._store: DeviceStore | None = None
        self._threads: dict[str, tuple[threading.Thread, threading.Event, threading.Event]] = {}
        self._states: dict[str, tuple[str, str]] = {}
        self.why_not = ""

    def __repr__(self) -> str:
        return f"Answering({len(self._threads)} recommenders)"

    def said(self) -> list[tuple[str, str]]:
        """The last lines for the owner with their times, the newest first; refusals have their reasons."""
        return list(reversed(self._said))

    def state(self, address: str) -> tuple[str, str] | None:
        """How the connection to a recommender is, in words, and since when; None where there is nothing to say."""
        return self._states.get(address)

    def _log_of(self, known: Joined) -> Callable[[str], None]:
        """Lines about one of several recommenders say which."""
        return lambda line: self._log(f"{known.address}: {line}")

    def _log(self, line: str) -> None:
        if not self._said or self._said[-1][1] != line:
            self._said.append((utc_now(), line))
            self._tell(line)

    def begin(self, passphrase: str | None) -> None:
        """Begin, unless it has begun; another process that answers from this store goes on doing so."""
        if self._store is None:
            try:
                self._store = DeviceStore.open(self._path, passphrase=passphrase, serving=True)
                self.why_not = ""
            except StorageError as error:
                self.why_not = str(error)
                self._log(f"Recommenders are not answered from here: {error}")
                return
        self.refresh()

    def refresh(self) -> None:
        """Answer those that are joined now and not paused, and look soon for what is new."""
        if self._store is None:
            return
        wanted = {known.address: known for known in joined(self._store) if not known.paused}
        for address in [known for known in self._threads if known not in wanted]:
            self._stop(address)
        for address, known in wanted.items():
            if address in self._threads and self._threads[address][0].is_alive():
                self._threads[address][2].set()
            else:
                self._start(known)

    def end(self) -> None:
        """Answer nobody any more."""
        for address in list(self._threads):
            self._stop(address)
        if self._store is not None:
            self._store.close()
            self._store = None

    def _start(self, known: Joined) -> None:
        stop, soon = threading.Event(), threading.Event()
        work = self._report if known.two_servers else self._answer
        thread = threading.Thread(target=self._guarded, args=(work, known, stop, soon), daemon=True)
        self._threads[known.address] = thread, stop, soon
        thread.start()

    def _stop(self, address: str) -> None:
        thread, stop, soon = self._threads.pop(address)
        stop.set()
        soon.set()
        thread.join(_PATIENCE)
        self._states.pop(address, None)

    def _guarded(
        self,
        work: Callable[[DeviceStore, Joined, threading.Event, threading.Event], None],
        known: Joined,
        stop: threading.Event,
        soon: threading.Event,
    ) -> None:
        store = self._store
        if store is None:
            return
        try:
            work(store.at(known.place), known, stop, soon)
        except HdpmfError as error:
            if not stop.is_set():
                self._states[known.address] = utc_now(), f"it is not answered: {error}"
                self._log_of(known)(f"it is not answered: {error}")
        except Exception:
            if not stop.is_set():  # otherwise the store was closed under it
                raise

    def _report(self, store: DeviceStore, known: Joined, stop: threading.Event, soon: threading.Event) -> None:
        from hdpmf.transport.web import WebDoor

        door = WebDoor(known.address, store.get("authority") or b"")
        reporter = Reporter(
            store,
            door,
            recommender=known.address,
            every=self._every,
            follow=lambda told: door.trust(follow(store, told, self._log_of(known))),
            log=self._log_of(known),
        )
        try:
            while not stop.is_set():
                if soon.wait(reporter.step()):
                    soon.clear()
                    reporter.look_soon()
        finally:
            reporter.settle()

    def _answer(self, store: DeviceStore, known: Joined, stop: threading.Event, soon: threading.Event) -> None:
        """By masks, as soon as a roster is pinned: without one, nobody knows among whom this device would be hidden."""
        from hdpmf.transport.flower.device import FlowerDevice
        from hdpmf.transport.keys import NodeKey

        while store.roster is None:
            soon.wait()
            soon.clear()
            if stop.is_set():
                return

        def connection(words: str) -> None:
            self._states[known.address] = utc_now(), words
            self._log_of(known)(words)

        agent = DeviceAgent(store, recommender=known.address, log=self._log_of(known))
        key = NodeKey.from_bytes(store.get("node-key") or b"")
        transport = FlowerDevice(
            known.address,
            store.get("authority") or b"",
            key,
            follow=lambda told: follow(store, told, self._log_of(known)),
            log=connection,
        )
        try:
            transport.serve(in_slots(agent.answer), stop)
        finally:
            agent.settle()
