"""Reports to two servers: for each task made once, paid once, sent until they are taken.

Ratings pay in the commit that keeps the reports, right before the first byte leaves. From then on
the very same bytes go out, however often they are tried. What never left is given back.
"""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from hdpmf.common.aggregation.two_servers.dap.messages import REPORTS_PATH, id_to_text
from hdpmf.common.net.carrier import backoff
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.task import prio_of
from hdpmf.errors import HdpmfError, ProtocolError, TransportError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.outgoing import report_headers, sealed_report
from hdpmf.private.device.budget import (
    agreed_words,
    charge,
    choose,
    entry_of,
    participation,
    paying_ratings,
)
from hdpmf.private.device.consent import require_consent
from hdpmf.private.device.disclosures.ledger import Action, Entry
from hdpmf.private.device.disclosures.sent_bytes import record_leader_response, report_leaves
from hdpmf.private.device.errors import DeclinedError, reason_of
from hdpmf.private.device.model_update import facts_digest
from hdpmf.private.device.published_files import (
    Carrier,
    Downloads,
    PublicFile,
    ReadTask,
    check_period,
    check_task,
    most_bytes,
    pinned_items,
    read_task,
)
from hdpmf.private.device.recommender_state import RecommenderStates, TaskState, collector_digest
from hdpmf.private.device.session import Setup
from hdpmf.private.device.store.schema import CountedSurvey, Question

REFUSED = frozenset({401, 403, 409, 410, 413, 415, 422})
"""Answers of a leader after which a report is not tried again. Others may pass: it does not know
the task yet (404), a clock is wrong (400), it is busy or broken."""

LONGEST_WAIT = 3600.0
"""Seconds between two tries, about."""

_LATEST = 0.9  # of what is left of a period: the rest is for trying again
_AFTER_ERROR = 60.0
_MAY_PASS = ("storage", "busy", "unavailable")
_FIRST_WAIT = 15.0
_AT_A_TIME = 64


class Reports:
    """Reports to two servers for the tasks of one recommender, one task at a time.

    Args:
        setup: The participant's.
        carrier: How to reach the leader.
        downloads: The recommender's files.
    """

    def __init__(self, setup: Setup, carrier: Carrier, downloads: Downloads) -> None:
        self._setup = setup
        self._store = setup.store
        self._carrier = carrier
        self._downloads = downloads
        self.book = RecommenderStates(setup.store, setup.recommender)
        self._held: tuple[str, bytes] = ("", b"")  # a task whose time has not come
        self._rest_until = 0.0  # after the disk refused
        self._told = b""  # the task that the owner was last told to wait for an answer
        self._read: ReadTask | None = None
        self.asked: ReadTask | None = None  # the task that is looked at

    def __repr__(self) -> str:
        return f"Reports({self._store!r})"

    def due(self) -> float | None:
        """Return when there is something to do for the task under way; None where there is none."""
        opened = self._opened()
        if opened is None:
            return None
        return max(self._due(*opened, self._setup.clock()), self._rest_until)

    def go_on(self) -> None:
        """Make the report, send it, or give it up, if it is time for that."""
        known, opened, now = self.book.state(), self._opened(), self._setup.clock()
        if opened is None:
            if known.task:  # the owner has forgotten the runs under way
                self.book.end(known.task)
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

    def take_task(self, file: PublicFile) -> None:
        """Agree to a task, or refuse it. Nothing is paid or sent here."""
        known, now = self.book.state(), self._setup.clock()
        if self.book.knows(bytes.fromhex(file.sha256)):
            return
        if self._held[0] != file.sha256:
            document = self._downloads.fetch_named(
                f"task-{file.sha256}.msgpack", most_bytes(pinned_items(self._store))
            )
            self._held = file.sha256, document
        self.asked = read = read_task(self._held[1])
        if read.id.hex() != file.sha256:
            raise ProtocolError(
                "refused: the task is not the one that the index names (its id differs)"
            )
        check_period(read.task, now, known.until)
        check_task(self._store, read)
        collector = collector_digest(read.task.collector)
        if known.collector not in (b"", collector):
            raise ProtocolError("refused: the sums would go to somebody else than those before")
        if known.task:
            return  # its time comes when the one under way is over
        if not self._owner_agrees(read):
            return  # looked at again when the index is, for as long as the task lasts
        begin = max(now, read.task.begin)
        moment = begin + self._setup.uniform() * _LATEST * (read.task.end - begin)
        state = TaskState(moment=moment, run=read.id)
        with self._store.transaction():
            self.book.begin(read.id, state, self._held[1], read.task.end, now)
            self.book.change(collector=collector, task=read.id, until=read.task.end)
        self._held = "", b""
        servers = read.task.servers
        self._setup.log(
            f"Task {read.id.hex()[:8]} for the servers of {servers.names}: reports before it ends."
        )

    @staticmethod
    def _due(read: ReadTask, state: TaskState, now: float) -> float:
        """Return the time at which there is something to do for a task."""
        again = (
            state.retry_at if state.retry_at <= now + 2 * LONGEST_WAIT else now
        )  # or the clock was put back
        return min(again if state.built else max(state.moment, again), read.task.end)

    def _opened(self) -> tuple[ReadTask, TaskState] | None:
        """The task under way."""
        known = self.book.state()
        kept = self.book.load(known.task) if known.task else None
        if kept is None:
            return None
        if self._read is None or self._read.id != known.task:
            self._read = read_task(kept[1])
        return self._read, kept[0]

    def _bring_forward(self, read: ReadTask, state: TaskState, now: float) -> None:
        if now >= read.task.end:
            self._give_up(read, state, "its time is over")
            return
        if not state.built:
            try:
                self._make(read, state)
            except HdpmfError as error:
                if reason_of(error) in _MAY_PASS:
                    raise
                keep_refusal(self._setup, error, read)
                self._give_up(read, state, f"it is refused ({error})")
                return
            opened = self._opened()
            if opened is None:
                return
            read, state = opened
        if self._send(read, state, now):
            self._setup.log(
                f"Task {read.id.hex()[:8]}: reported to the servers of {read.task.servers.names}."
            )

    def _owner_agrees(self, read: ReadTask) -> bool:
        """Return True if the owner consents. No answer yet is no lasting refusal of the task."""
        task, servers = read.task, read.task.servers
        if read.part == "labels" and self.book.state().counted is not None:
            return True  # the second half of what was agreed to
        asked = Question(
            recommender=self._setup.recommender,
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
                self._setup.log(f"Task {read.id.hex()[:8]}: {error}.")
                keep_refusal(self._setup, error, read)
            self._told = read.id
            return False
        return True

    def _make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, let them pay, and keep one report for each user, all in one commit."""
        store, task = self._store, read.task
        check_task(store, read)  # its owner may have changed the policy since the task came
        counted = self.book.state().counted
        none = np.zeros(0, np.intp)
        if read.part == "labels":
            goes_on = counted is not None and counted.survey == encode(read.survey)
            run = counted.run if counted is not None and goes_on else read.id
            part = (
                paying_ratings(store, run, read.terms.epsilon)
                if goes_on
                else participation(store, none)
            )
            pays = none, np.zeros(0)
            words = (
                "drew a taste label, which stays here, and reports by it"
                if goes_on
                else "reports zeros: no counts"
            )
            counted = None  # a label is drawn once
        else:
            run = read.id
            pays = choose(store, read.terms, self._setup.recommender)
            part = participation(store, pays[0])
            words = agreed_words(read.terms, "proved", servers=task.servers)
            counted = (
                CountedSurvey(run=run, survey=encode(read.survey))
                if read.survey.labels
                else counted
            )
        client = OneRoundClient(
            part.ratings,
            part.weights,
            self._setup.noise,
            epsilon=read.terms.epsilon,
            catalogue=read.terms.catalogue,
            n_users=1,  # of no user a share of noise is added
            simulation=self._setup.simulation,
        )
        client.accept(read.survey)
        if task.grouping is not None:
            client.resume()
            client.group(task.grouping)
        prio = prio_of(task, read.id)
        waiting: dict[int, bytes] = {}
        for user, entries in enumerate(client.entries(store.users)):
            if (
                len(waiting) >= _AT_A_TIME
            ):  # a silo's need not all be in memory; none leaves before all are paid for
                self._put(read, waiting)
                waiting = {}
            # All reports carry the task's begin, so that they do not tell when they were made.
            waiting[user] = sealed_report(prio, read.id, task.servers, entries, at=task.begin)
        made = msgspec.structs.replace(state, run=run, built=True, unsent=tuple(range(store.users)))
        with store.transaction():
            self.book.require(read.id, state)
            if store.ratings() is not part.table:  # who pays is who is in the reports
                raise DeclinedError(
                    "busy", "the owner has changed ratings in this moment; the report is made anew"
                )
            entry = self._entry(read, run, "agreed", words)
            if read.part == "labels":
                store.ledger.note(entry)
            else:
                charge(store, entry, *pays)
            self._put(read, waiting)
            self.book.save(read.id, made)
            self.book.change(counted=counted)

    def _send(self, read: ReadTask, state: TaskState, now: float) -> bool:
        """Send the reports that are left; return True once the leader has taken or refused all.

        The task ends then. ``state`` is changed as the store is.
        """
        path = REPORTS_PATH.format(task_id=id_to_text(read.id))
        for user in state.unsent:
            body = self.book.report(read.id, user)
            headers = report_headers(self._store.identity, read.id, body, signed=read.task.enrolled)
            try:
                leaving = partial(self._leaves, read, state, body)
                status = self._carrier.upload(
                    read.task.servers.leader, path, headers, body, leaving
                )
            except TransportError as error:
                self._wait(read, state, now, str(error))
                return False
            if not (200 <= status < 300 or status in REFUSED):
                self._wait(read, state, now, f"its answer was {status}", (body, status))
                return False
            self._taken(read, state, user, body, status)
        with self._store.transaction():
            self.book.end(read.id)
        return True

    def _give_up(self, read: ReadTask, state: TaskState, why: str) -> None:
        """The task is over here. What provably never left is not paid."""
        with self._store.transaction():
            self.book.require(read.id, state)
            if state.built and not state.left and read.part != "labels":
                words = (
                    f"{why}, and no connection to {read.task.servers.leader.organisation} was "
                    "open until then"
                )
                self._store.ledger.give_back(self._entry(read, state.run, "returned", words), 1.0)
                counted = self.book.state().counted
                self.book.change(
                    counted=None if counted is not None and counted.run == read.id else counted
                )
            self.book.end(read.id)
        self._setup.log(f"Task {read.id.hex()[:8]}: {why}; it is not reported in any more.")

    def _put(self, read: ReadTask, reports: dict[int, bytes]) -> None:
        with self._store.transaction():
            for user, report in reports.items():
                self.book.put_report(read.id, user, report)

    def _leaves(self, read: ReadTask, state: TaskState, report: bytes) -> None:
        """A connection is open: from here on a report may have left."""
        with self._store.transaction():
            self._pay(read, state)
            report_leaves(
                self._store, state.run, read.terms, read.task.servers, read.number, report
            )

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        """Pay what was held for the reports, once."""
        if state.left:
            return
        servers = read.task.servers
        words = f"a report for each user, in shares for {servers.names} (digest {servers.digest})"
        with self._store.transaction():
            self.book.require(read.id, state)
            self._store.ledger.note(
                self._entry(read, state.run, "sent", words), first=read.part != "labels"
            )
            self._keep(read, state, left=True)
            self.book.change(
                survey=encode(read.survey),
                terms=encode(read.terms),
                reported=read.id,
                run=state.run,
                model=facts_digest(self._store),
            )

    def _taken(
        self, read: ReadTask, state: TaskState, user: int, report: bytes, status: int
    ) -> None:
        with self._store.transaction():
            self.book.require(read.id, state)
            record_leader_response(self._store, state.run, report, status, last=True)
            if status in REFUSED:
                words = (
                    f"{read.task.servers.leader.organisation} refused a report (its answer "
                    f"was {status})"
                )
                self._store.ledger.note(self._entry(read, state.run, "refused", words))
                self._setup.log(f"Task {read.id.hex()[:8]}: {words}.")
            self.book.drop_report(read.id, user)
            self._keep(
                read,
                state,
                unsent=tuple(other for other in state.unsent if other != user),
                tries=0,
            )

    def _wait(
        self,
        read: ReadTask,
        state: TaskState,
        now: float,
        why: str,
        answer: tuple[bytes, int] | None = None,
    ) -> None:
        """Try the same bytes again later (``answer``: them, and what the leader said)."""
        wait = backoff(state.tries, _FIRST_WAIT, LONGEST_WAIT, self._setup.uniform)
        with self._store.transaction():
            self.book.require(read.id, state)
            if answer is not None:
                record_leader_response(self._store, state.run, *answer, last=False)
            self._keep(read, state, tries=state.tries + 1, retry_at=now + wait)
        leader = read.task.servers.leader.organisation
        self._setup.log(f"Task {read.id.hex()[:8]}: {leader} did not take the report yet ({why}).")

    def _keep(self, read: ReadTask, state: TaskState, **changes: object) -> None:
        for name, value in changes.items():
            setattr(state, name, value)
        self.book.save(read.id, state)

    def _entry(self, read: ReadTask, run: bytes, action: Action, words: str) -> Entry:
        return entry_of(
            read.terms,
            "proved",
            action,
            words,
            recommender=self._setup.recommender,
            run=run,
            number=read.number,
        )


def keep_refusal(setup: Setup, error: HdpmfError, read: ReadTask | None = None) -> None:
    """Keep what was refused, and of which task, for the owner."""
    asked = (None, b"") if read is None else (read.terms, read.id)
    setup.refusals.note(reason_of(error), str(error), *asked)
