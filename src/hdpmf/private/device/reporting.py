"""The device of a recommender that uses two servers: it reports in every period, whatever it has
rated, and listens.

The recommender publishes files, which the device looks for now and then; nobody can ask it
anything. Whatever is in them is checked here against the owner's policy, what is pinned, and what
ratings have left. When a report leaves is drawn when its task comes. What is fetched, when, and how
many bytes leave does not depend on ratings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from hdpmf.common.net.succession import MOST_TOLD
from hdpmf.common.privacy.sampling import Noise, ReleasedNoise, require_released
from hdpmf.common.protocol import AnyCatalogue, ItemFacts, Terms, decode
from hdpmf.errors import HdpmfError, ProtocolError, StorageError, TransportError
from hdpmf.private.device.budget import entry_of
from hdpmf.private.device.consent import Asked, require_consent
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.errors import DeclinedError, reason_of
from hdpmf.private.device.model_update import (
    kept_facts,
    lack_lists,
    model_of_facts,
    most_list_bytes,
    with_lists,
    with_older_lists,
)
from hdpmf.private.device.published_files import (
    INDEX,
    MOST_CATALOGUE,
    MOST_INDEX,
    Door,
    PublicFile,
    PublicIndex,
    ReadTask,
    check_period,
    check_task,
    fetch_file,
    most_bytes,
    read_index,
    read_task,
)
from hdpmf.private.device.recommendations import keep_model, kept_model
from hdpmf.private.device.recommender_state import ReportBook, TaskState, collector_digest
from hdpmf.private.device.recommender_state import kept as kept_message
from hdpmf.private.device.reports import LONGEST_WAIT, TaskReports
from hdpmf.private.device.store.device_store import DeviceStore

LOOK_EVERY = 300.0
"""Seconds, about, between two looks at what the recommender publishes."""

_OS = secrets.SystemRandom()
_LATEST = 0.9  # of what is left of a period: the rest is for trying again
_SOON = 1.0
_AFTER_ERROR = 60.0
_MAY_PASS = ("storage", "busy", "unavailable")


def _no_log(line: str) -> None:
    """Nobody wants to know."""


class Reporter:
    """Reports to two servers from a store, for one recommender.

    Args:
        store: The device's store, opened for serving.
        door: How to reach the recommender's files and the leader.
        recommender: Whose files these are, for the ledger.
        every: Seconds, about, between two looks at them.
        clock: What time it is (Unix).
        uniform: A random number from 0 to 1, from the operating system by default.
        noise: What taste labels are drawn with; only ``ReleasedNoise`` where anything leaves this
            process.
        simulation: Allow seeded noise. Never for a real device.
        follow: Told what the recommender tells about its authorities (``transport.succession``).
        log: Told what happens, in lines for this device's owner. They hold no rating.
    """

    def __init__(
        self,
        store: DeviceStore,
        door: Door,
        *,
        recommender: str,
        every: float = LOOK_EVERY,
        clock: Callable[[], float] = time.time,
        uniform: Callable[[], float] = _OS.random,
        noise: Noise | None = None,
        simulation: bool = False,
        follow: Callable[[bytes], None] | None = None,
        log: Callable[[str], None] = _no_log,
    ) -> None:
        self._store, self._door, self._recommender = store, door, recommender
        self._every, self._clock, self._uniform, self._log = every, clock, uniform, log
        self._follow = follow
        self._book = ReportBook(store, recommender)
        drawn = ReleasedNoise() if noise is None else noise
        self._reports = TaskReports(
            store=store,
            book=self._book,
            door=door,
            recommender=recommender,
            noise=drawn if simulation else require_released(drawn),
            simulation=simulation,
            uniform=uniform,
            log=log,
        )
        self._look_at = 0.0
        self._etag = ""
        self._index: PublicIndex | None = None
        self._authorities = ""  # digest of what was told about them last
        self._refused: dict[
            str, str
        ] = {}  # digests of files that were refused, so that they are not fetched again
        self._held: tuple[str, bytes] = "", b""  # a task whose time has not come
        self._rest_until = 0.0  # after the disk refused
        self._told = b""  # the task that the owner was last told to wait for an answer
        self._read: ReadTask | None = None
        self._asked: ReadTask | None = None  # the task that is looked at
        self._refusals = RefusalBook(store, recommender)

    def __repr__(self) -> str:
        return f"Reporter({self._store!r})"

    @property
    def answered(self) -> str:
        """Id of the last task that a report left for, once a newer model has come; empty before."""
        standing, model = self._book.standing(), kept_model(self._store)
        goes_on = bool(standing.task) or standing.counted is not None
        if (
            not standing.reported
            or goes_on
            or model is None
            or kept_facts(self._store) == standing.model
        ):
            return ""
        lists = None if self._index is None else self._index.lists
        lacks = lists is not None and lists.sha256 not in self._refused and lack_lists(model)
        return "" if lacks else standing.reported.hex()

    def look_soon(self) -> None:
        """See in the next step what there is: the owner has answered something."""
        self._look_at = 0.0

    def step(self) -> float:
        """Do what is due; the seconds until there may be something to do again. What goes wrong
        is logged.
        """
        self._guarded(self._go_on)
        now = self._clock()
        if (
            now >= self._look_at or self._look_at > now + 3 * self._every
        ):  # or the clock was put back
            self._guarded(self._look)
            self._look_at = now + self._every * (0.5 + self._uniform())
            self._guarded(self._go_on)
        opened, due = self._opened(), self._look_at
        if opened is not None:
            due = min(due, max(self._due(*opened, now), self._rest_until))
        return max(due - self._clock(), _SOON)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except TransportError as error:
            self._log(f"not reached: {error}")
        except HdpmfError as error:
            self._refuse(error)

    def settle(self) -> None:
        """Nothing is done any more: write what is not in the store yet of what was refused."""
        self._refusals.settle()

    def _refuse(self, error: HdpmfError, read: ReadTask | None = None) -> None:
        """Tell the owner what is refused, and keep it."""
        self._log(f"refused: {error}")
        self._keep_refusal(error, read)

    def _keep_refusal(self, error: HdpmfError, read: ReadTask | None) -> None:
        asked = (None, b"") if read is None else (read.terms, read.id)
        self._refusals.note(reason_of(error), str(error), *asked)

    # The task under way

    @staticmethod
    def _due(read: ReadTask, state: TaskState, now: float) -> float:
        """When there is something to do for a task."""
        again = (
            state.retry_at if state.retry_at <= now + 2 * LONGEST_WAIT else now
        )  # or the clock was put back
        return min(again if state.built else max(state.moment, again), read.task.end)

    def _opened(self) -> tuple[ReadTask, TaskState] | None:
        """The task under way."""
        standing = self._book.standing()
        kept = self._book.load(standing.task) if standing.task else None
        if kept is None:
            return None
        if self._read is None or self._read.id != standing.task:
            self._read = read_task(kept[1])
        return self._read, kept[0]

    def _go_on(self) -> None:
        """Make the report, send it, or give it up, if it is time for that."""
        standing, opened, now = self._book.standing(), self._opened(), self._clock()
        if opened is None:
            if standing.task:  # the owner has forgotten the runs under way
                self._book.end(standing.task)
            return
        if now < max(self._due(*opened, now), min(self._rest_until, now + _AFTER_ERROR)):
            return
        try:
            self._bring_forward(*opened, now)
        except (
            HdpmfError
        ):  # the disk refused, or another process was here; what is in the store holds
            self._rest_until = now + _AFTER_ERROR
            raise

    def _bring_forward(self, read: ReadTask, state: TaskState, now: float) -> None:
        if now >= read.task.end:
            self._reports.give_up(read, state, "its time is over")
            return
        if not state.built:
            try:
                self._reports.make(read, state)
            except HdpmfError as error:
                if reason_of(error) in _MAY_PASS:
                    raise
                self._keep_refusal(error, read)
                self._reports.give_up(read, state, f"it is refused ({error})")
                return
            opened = self._opened()
            if opened is None:
                return
            read, state = opened
        if self._reports.send(read, state, now):
            self._log(
                f"Task {read.id.hex()[:8]}: reported to the servers of {read.task.servers.names}."
            )

    # What the recommender publishes

    def _look(self) -> None:
        """Read the index, and take what is new."""
        got = self._door.fetch(INDEX, MOST_INDEX, self._etag if self._index is not None else "")
        if got is not None:
            self._index = read_index(got[0])
            self._etag = got[1]
        index = self._index
        if index is None:
            raise ProtocolError(
                "refused: the recommender says that its index is unchanged, and none came before"
            )
        if index.authority is not None and self._follow is not None:
            self._once(index.authority, self._take_authority)
        self._once(index.catalogue, self._take_catalogue)
        if index.task is not None:
            self._once(PublicFile(index.task.id), self._take_task)
        if index.model is not None:
            self._once(index.model, self._take_model)
        if index.lists is not None:
            self._once(index.lists, self._take_lists)

    def _once(self, file: PublicFile, take: Callable[[PublicFile], None]) -> None:
        """Take a file, unless it was refused before. One that was not reached is tried again
        another time.
        """
        if file.sha256 in self._refused:
            return
        self._asked = None
        try:
            take(file)
        except TransportError as error:
            self._log(f"not reached: {error}")
        except StorageError:
            raise
        except HdpmfError as error:
            while len(self._refused) >= 64:
                self._refused.pop(next(iter(self._refused)))
            self._refused[file.sha256] = str(error)
            self._refuse(error, self._asked)

    def _take_authority(self, file: PublicFile) -> None:
        """Trust whom the pinned authority has signed."""
        if self._follow is not None and file.sha256 != self._authorities:
            self._follow(fetch_file(self._door, "authority", file, MOST_TOLD))
            self._authorities = file.sha256

    def _take_catalogue(self, file: PublicFile) -> None:
        known = self._store.pinned_catalogue
        if known is not None and known.digest.hex() == file.sha256:
            return
        items = decode(fetch_file(self._door, "catalogue", file, MOST_CATALOGUE))
        if not isinstance(items, AnyCatalogue):
            raise ProtocolError(f"refused: a {type(items).__name__} is no item table")
        pinned = self._store.pin_catalogue(items)
        self._log(f"The catalogue is version {pinned.number}, {len(pinned.positions)} items.")

    def _take_task(self, file: PublicFile) -> None:
        """Agree to a task, or refuse it. Nothing is paid or sent here."""
        standing, now = self._book.standing(), self._clock()
        if self._book.knows(bytes.fromhex(file.sha256)):
            return
        if self._held[0] != file.sha256:
            got = self._door.fetch(f"task-{file.sha256}.msgpack", most_bytes(self._n_items))
            self._held = file.sha256, b"" if got is None else got[0]
        self._asked = read = read_task(self._held[1])
        if read.id.hex() != file.sha256:
            raise ProtocolError(
                "refused: the task is not the one that the index names (its id differs)"
            )
        check_period(read.task, now, standing.until)
        check_task(self._store, read)
        collector = collector_digest(read.task.collector)
        if standing.collector not in (b"", collector):
            raise ProtocolError("refused: the sums would go to somebody else than those before")
        if standing.task:
            return  # its time comes when the one under way is over
        if not self._owner_agrees(read):
            return  # looked at again when the index is, for as long as the task lasts
        begin = max(now, read.task.begin)
        moment = begin + self._uniform() * _LATEST * (read.task.end - begin)
        state = TaskState(moment=moment, run=read.id)
        standing.collector, standing.task, standing.until = collector, read.id, read.task.end
        with self._store.transaction():
            self._book.begin(read.id, state, self._held[1], read.task.end, now)
            self._book.set_standing(standing)
        self._held = "", b""
        servers = read.task.servers
        self._log(
            f"Task {read.id.hex()[:8]} for the servers of {servers.names}: reports before it ends."
        )

    def _owner_agrees(self, read: ReadTask) -> bool:
        """Whether the owner wants to take part, as far as is known; not yet is no refusal of the
        task for good.
        """
        task, servers = read.task, read.task.servers
        if read.part == "labels" and self._book.standing().counted is not None:
            return True  # the second half of what was agreed to
        asked = Asked(
            recommender=self._recommender,
            terms=read.terms,
            servers=servers.digest,
            names=servers.names,
            survey=read.survey,
            until=task.end,
        )
        try:
            require_consent(self._store, asked)
        except DeclinedError as error:
            if read.id != self._told:
                self._log(f"Task {read.id.hex()[:8]}: {error}.")
                self._keep_refusal(error, read)
            self._told = read.id
            return False
        return True

    def _take_model(self, file: PublicFile) -> None:
        """Keep new facts. Nothing is sent or paid, whatever they are."""
        model = kept_model(self._store)
        if model is not None and model.run == file.run and kept_facts(self._store) == file.sha256:
            return
        body = fetch_file(self._door, "facts", file, most_bytes(self._n_items))
        facts = decode(body)
        if not isinstance(facts, ItemFacts):
            raise ProtocolError(f"refused: a {type(facts).__name__} is no model")
        standing = self._book.standing()
        terms = kept_message(standing.terms, Terms)
        new = model_of_facts(
            self._store,
            facts,
            body,
            recommender=self._recommender,
            run=file.run,
            terms=terms,
            survey=standing.survey,
        )
        with self._store.transaction():
            keep_model(self._store, with_older_lists(new, model))
            if terms is not None:
                entry = entry_of(
                    terms,
                    "proved",
                    "received",
                    "facts about items",
                    recommender=self._recommender,
                    run=standing.run,
                    number=terms.rounds,
                )
                self._store.ledger.note(entry)
        self._log(f"A model of run {file.run[:8]} is here.")

    def _take_lists(self, file: PublicFile) -> None:
        """Keep a model for lists beside the facts that name it."""
        model = kept_model(self._store)
        if model is None or not lack_lists(model):
            return
        policy = self._store.policy
        body = fetch_file(self._door, "lists", file, most_list_bytes(policy, self._n_items))
        keep_model(self._store, with_lists(model, bytes.fromhex(model.run), body, policy))

    @property
    def _n_items(self) -> int:
        catalogue = self._store.pinned_catalogue
        if catalogue is None:
            raise ProtocolError("refused: no item table is pinned here")
        return len(catalogue.positions)
