"""A participant: reads one recommender's public files, and reports for its tasks from a store.

Catalogue, tasks and models are files, which `step` and `look` fetch. A task is checked against the
owner's policy, the pins and the remaining budget; the owner agrees; ratings pay; and only then
something leaves (``outbox.reports``), at a time that was drawn before. What is fetched, when, and
how many bytes leave does not depend on ratings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256

from hdpmf.common.privacy.sampling import Noise, ReleasedNoise, require_released
from hdpmf.common.protocol import AnyCatalogue, ItemFacts, decode
from hdpmf.common.protocol.key_list import MAX_PUBLISHED
from hdpmf.errors import HdpmfError, ProtocolError, StorageError, TransportError
from hdpmf.private.device.budget import entry_of
from hdpmf.private.device.outbox.reports import Reports
from hdpmf.private.device.outbox.server_keys import ServerKeyLists
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.published_files import (
    MOST_CATALOGUE,
    Carrier,
    Downloads,
    PublicFile,
    PublicIndex,
    most_bytes,
    pinned_items,
)
from hdpmf.private.device.recommendations import facts_digest, keep_model, local_model
from hdpmf.private.device.recommender_state import Setup
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel

POLL_EVERY = 300.0
"""Seconds, about, between two looks at what the recommender publishes."""

_OS = secrets.SystemRandom()
_SOON = 1.0


def _no_log(line: str) -> None:
    """Discard a line."""


class Participant:
    """Takes part with one recommender from a store. Several may share a store, for several.

    Args:
        store: The device's store, opened for serving.
        carrier: How to reach the recommender's files and the leader.
        recommender: Whose tasks these are, for the ledger.
        every: Seconds, about, between two looks at the files.
        clock: What time it is (Unix).
        uniform: A random number from 0 to 1, from the operating system by default.
        noise: Where noise comes from; only ``ReleasedNoise`` where anything leaves this process.
        simulation: Allow seeded noise, and keep a finished model in memory. Never for a real
            device.
        log: Called with lines for this device's owner. They hold no rating.

    Attributes:
        held: The last model, in simulation; otherwise it is in the store.
        last_look: When it last looked at the files (Unix), and True if these were reached.
    """

    def __init__(
        self,
        store: DeviceStore,
        carrier: Carrier,
        *,
        recommender: str = "recommender",
        every: float = POLL_EVERY,
        clock: Callable[[], float] = time.time,
        uniform: Callable[[], float] = _OS.random,
        noise: Noise | None = None,
        simulation: bool = False,
        log: Callable[[str], None] = _no_log,
    ) -> None:
        drawn = ReleasedNoise() if noise is None else noise
        self._setup = Setup(
            store=store,
            recommender=recommender,
            noise=drawn if simulation else require_released(drawn),
            simulation=simulation,
            log=log,
            clock=clock,
            uniform=uniform,
        )
        self._store = store
        self._every = every
        self._downloads = Downloads(self._setup, carrier)
        self._reports = Reports(self._setup, carrier, self._downloads)
        self._poll_at = 0.0
        self._missed = 0  # looks in a row in which something was not reached
        self._index: PublicIndex | None = None
        self._server_keys = ""  # digest of the lists that were taken last
        self._refused: dict[str, str] = {}  # tasks and lists of keys, by digest: until a restart
        self.held: LocalModel | None = None
        self.last_look: tuple[float, bool] | None = None

    def __repr__(self) -> str:
        return f"Participant({self._store!r})"

    @property
    def finished_task(self) -> str:
        """Id of the last task that a report left for, once a newer model has come; empty before."""
        standing, model = self._reports.book.state(), self._kept()
        if (
            not standing.reported
            or standing.task
            or model is None
            or facts_digest(self._store) == standing.model
        ):
            return ""
        return standing.reported.hex()

    def poll_soon(self) -> None:
        """Look at the files next time: the owner has answered something."""
        self._poll_at = 0.0

    def step(self) -> float:
        """Do what is due; return the seconds until there may be something to do again.

        What goes wrong is logged.
        """
        # What leaves or is fetched comes first: no work on ratings is before it.
        ready = self._reports.ready()
        if ready:
            self._guarded(self._reports.go_on)
        if self._due():
            self.look()
        if not ready:
            self._guarded(self._reports.go_on)
        due = self._reports.due()
        next_at = self._poll_at if due is None else min(due, self._poll_at)
        return max(next_at - self._setup.clock(), _SOON)

    def _due(self) -> bool:
        now = self._setup.clock()
        # Or the clock was put back.
        return now >= self._poll_at or self._poll_at > now + 3 * self._every

    def look(self) -> None:
        """Learn from the files now. What goes wrong is logged."""
        now, missed = self._setup.clock(), self._missed
        self._guarded(self._look)
        self.last_look = now, self._missed == missed
        if self._missed == missed:
            self._missed = 0
        self._poll_at = now + self._every * (0.5 + self._setup.uniform())

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except TransportError as error:
            self._miss(error)
        except HdpmfError as error:
            self._setup.log(f"refused: {error}")

    def _miss(self, error: TransportError) -> None:
        self._missed += 1
        self._setup.log(f"not reached: {error}")

    def _look(self) -> None:
        """Read the index, and take what is new."""
        self._index = index = self._downloads.index()
        missed = self._missed
        self._once(index.catalogue, self._take_catalogue)
        if self._missed > missed:
            return  # the rest is about items that are not here yet
        if index.keys is not None:
            self._once(index.keys, self._take_keys, content=False)
        if index.task is not None:
            self._once(PublicFile(index.task.id), self._reports.take_task, content=False)
        if index.model is not None:
            self._once(index.model, self._take_model)

    def _once(
        self, file: PublicFile, take: Callable[[PublicFile], None], *, content: bool = True
    ) -> None:
        """Take a file, unless it was refused before.

        A file that could not be fetched is tried again later. A refusal for its content holds after
        a restart; of tasks and lists of keys it may also be for the time, or the owner's answer.
        """
        if file.sha256 in self._refused or (content and self._downloads.was_refused(file)):
            return
        try:
            take(file)
        except TransportError as error:
            self._miss(error)
        except StorageError:
            raise
        except HdpmfError as error:
            if content:
                self._downloads.refuse(file)
            else:
                while len(self._refused) >= 64:
                    self._refused.pop(next(iter(self._refused)))
                self._refused[file.sha256] = str(error)
            self._setup.log(f"refused: {error}")

    def _take_keys(self, file: PublicFile) -> None:
        """Follow the lists of keys that the pinned servers have signed."""
        servers = pinned_servers(self._store)
        if servers is not None and file.sha256 != self._server_keys:
            data = self._downloads.fetch("keys", file, MAX_PUBLISHED)
            ServerKeyLists(self._store).take(data, servers)
            self._server_keys = file.sha256

    def _take_catalogue(self, file: PublicFile) -> None:
        known = self._store.pinned_catalogue
        if known is not None and known.digest.hex() == file.sha256:
            return
        items = decode(self._downloads.fetch("catalogue", file, MOST_CATALOGUE))
        if not isinstance(items, AnyCatalogue):
            raise ProtocolError(f"refused: a {type(items).__name__} is no item table")
        pinned = self._store.pin_catalogue(items)
        self._setup.log(pinned.in_words())

    def _take_model(self, file: PublicFile) -> None:
        """Keep a new model. Nothing is sent or paid for it."""
        before = self._kept()
        if (
            before is not None
            and before.run == file.run
            and sha256(before.numbers).hexdigest() == file.sha256
        ):
            return
        body = self._downloads.fetch("facts", file, most_bytes(pinned_items(self._store)))
        facts, pinned = decode(body), self._store.pinned_catalogue
        if not isinstance(facts, ItemFacts):
            raise ProtocolError(f"refused: a {type(facts).__name__} is no model")
        # A model may be older than the newest items.
        known = None if pinned is None else pinned.named(facts.catalogue)
        if known is None or len(facts.bias) != len(known.positions):
            raise ProtocolError(
                "refused: the item facts are about another item table than the pinned one"
            )
        standing = self._reports.book.state()
        terms = standing.terms
        model = LocalModel(
            recommender=self._setup.recommender,
            run=file.run,
            method=Terms.method,
            view="nothing" if terms is None else terms.view,
            survey=standing.survey,
            numbers=body,
        )
        with self._store.transaction():
            if terms is not None:
                entry = entry_of(
                    terms,
                    "received",
                    "facts about items",
                    recommender=self._setup.recommender,
                    run=standing.reported,
                )
                self._store.ledger.note(entry)
            self._keep(model)
        self._setup.log(f"A model of run {file.run[:8]} is here.")

    def _kept(self) -> LocalModel | None:
        return self.held if self._setup.simulation else local_model(self._store)

    def _keep(self, model: LocalModel) -> None:
        if self._setup.simulation:
            self.held = model  # thousands of simulated devices share its public numbers
        else:
            keep_model(self._store, model)
