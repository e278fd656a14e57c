"""A device's reports for one task: made once, paid once, sent until they are taken.

Ratings pay in the commit that keeps the reports, right before the first byte leaves. From then on
the very same bytes go out, however often they are tried. What never left is given back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from hdpmf.common.aggregation.two_servers.dap import REPORTS_PATH, id_to_text
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.task import prio_of
from hdpmf.errors import TransportError
from hdpmf.private.client.contributions import OneRoundShard
from hdpmf.private.client.outgoing import report_headers, sealed_report
from hdpmf.private.device.budget import (
    agreed_words,
    charge,
    choose,
    entry_of,
    taking_part,
    who_paid,
)
from hdpmf.private.device.disclosures.ledger import Action, Entry
from hdpmf.private.device.disclosures.sent_bytes import leader_answered, report_leaves
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.model_update import kept_facts
from hdpmf.private.device.published_files import Door, ReadTask, check_task
from hdpmf.private.device.recommender_state import Counted, ReportBook, TaskState
from hdpmf.private.device.store.device_store import DeviceStore

REFUSED = frozenset({401, 403, 409, 410, 413, 415, 422})
"""Answers of a leader after which a report is not tried again. Others may pass: it does not know
the task yet (404), a clock is wrong (400), it is busy or broken."""

LONGEST_WAIT = 3600.0
"""Seconds between two tries, about."""

_FIRST_WAIT = 15.0
_AT_A_TIME = 64


@dataclass(frozen=True, slots=True, repr=False)
class TaskReports:
    """Brings the task under way forward.

    Attributes:
        store: The device's store.
        book: What is kept of the task.
        door: How to reach the leader.
        recommender: Whose task it is, for the ledger.
        noise: What labels are drawn with.
        simulation: Seeded noise is allowed.
        uniform: A random number from 0 to 1, which waits are spread by.
        log: Told what happens, in lines for the device's owner.
    """

    store: DeviceStore
    book: ReportBook
    door: Door
    recommender: str
    noise: Noise
    simulation: bool
    uniform: Callable[[], float]
    log: Callable[[str], None]

    def make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, let them pay, and keep one report for each user, all in one commit."""
        store, task, standing = self.store, read.task, self.book.standing()
        check_task(store, read)  # its owner may have changed the policy since the task came
        counted, none = standing.counted, np.zeros(0, np.intp)
        if read.part == "labels":
            goes_on = counted is not None and counted.survey == encode(read.survey)
            run = counted.run if counted is not None and goes_on else read.id
            part = who_paid(store, run, read.terms.epsilon) if goes_on else taking_part(store, none)
            pays = none, np.zeros(0)
            words = (
                "drew a taste label, which stays here, and reports by it"
                if goes_on
                else "reports zeros: no counts"
            )
            counted = None  # a label is drawn once
        else:
            run = read.id
            pays = choose(store, read.terms, self.recommender)
            part = taking_part(store, pays[0])
            words = agreed_words(read.terms, "proved", servers=task.servers)
            counted = (
                Counted(run=run, survey=encode(read.survey)) if read.survey.labels else counted
            )
        shard = OneRoundShard(
            part.ratings,
            part.weights,
            self.noise,
            epsilon=read.terms.epsilon,
            catalogue=read.terms.catalogue,
            n_users=1,  # of no user a share of noise is added
            simulation=self.simulation,
        )
        shard.accept(read.survey)
        if task.grouping is not None:
            shard.resume()
            shard.group(task.grouping)
        prio = prio_of(task, read.id)
        waiting: dict[int, bytes] = {}
        for place, entries in enumerate(shard.entries(store.users)):
            if (
                len(waiting) >= _AT_A_TIME
            ):  # a silo's need not all be in memory; none leaves before all are paid for
                self._put(read, waiting)
                waiting = {}
            # All reports say the time at which the task begins: when they were made is nobody's
            # business.
            waiting[place] = sealed_report(prio, read.id, task.servers, entries, at=task.begin)
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
            self._stand(counted=counted)

    def send(self, read: ReadTask, state: TaskState, now: float) -> bool:
        """Send what the leader has not taken; whether that was all. ``state`` is changed as the
        store is.
        """
        path = REPORTS_PATH.format(task_id=id_to_text(read.id))
        for place in state.unsent:
            body = self.book.report(read.id, place)
            headers = report_headers(self.store.identity, read.id, body, signed=read.task.enrolled)
            try:
                leaving = partial(self._leaves, read, state, body)
                status = self.door.upload(read.task.servers.leader, path, headers, body, leaving)
            except TransportError as error:
                self._wait(read, state, now, str(error))
                return False
            if not (200 <= status < 300 or status in REFUSED):
                self._wait(read, state, now, f"its answer was {status}", (body, status))
                return False
            self._taken(read, state, place, body, status)
        with self.store.transaction():
            self.book.end(read.id)
        return True

    def give_up(self, read: ReadTask, state: TaskState, why: str) -> None:
        """The task is over here. What provably never left is not paid."""
        with self.store.transaction():
            self.book.require(read.id, state)
            if state.built and not state.left and read.part != "labels":
                words = (
                    f"{why}, and no connection to {read.task.servers.leader.organisation} was "
                    "open until then"
                )
                self.store.ledger.give_back(self._entry(read, state.run, "returned", words), 1.0)
                counted = self.book.standing().counted
                self._stand(
                    counted=None if counted is not None and counted.run == read.id else counted
                )
            self.book.end(read.id)
        self.log(f"Task {read.id.hex()[:8]}: {why}; it is not reported in any more.")

    def _put(self, read: ReadTask, reports: dict[int, bytes]) -> None:
        with self.store.transaction():
            for place, report in reports.items():
                self.book.put_report(read.id, place, report)

    def _leaves(self, read: ReadTask, state: TaskState, report: bytes) -> None:
        """A connection is open: from here on a report may have left."""
        with self.store.transaction():
            self._pay(read, state)
            report_leaves(self.store, state.run, read.terms, read.task.servers, read.number, report)

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        """What was held for the reports is paid, once."""
        if state.left:
            return
        servers = read.task.servers
        words = f"a report for each user, in shares for {servers.names} (digest {servers.digest})"
        with self.store.transaction():
            self.book.require(read.id, state)
            self.store.ledger.note(
                self._entry(read, state.run, "sent", words), first=read.part != "labels"
            )
            self._keep(read, state, left=True)
            self._stand(
                survey=encode(read.survey),
                terms=encode(read.terms),
                reported=read.id,
                run=state.run,
                model=kept_facts(self.store),
            )

    def _taken(
        self, read: ReadTask, state: TaskState, place: int, report: bytes, status: int
    ) -> None:
        with self.store.transaction():
            self.book.require(read.id, state)
            leader_answered(self.store, state.run, report, status, last=True)
            if status in REFUSED:
                words = (
                    f"{read.task.servers.leader.organisation} refused a report (its answer "
                    f"was {status})"
                )
                self.store.ledger.note(self._entry(read, state.run, "refused", words))
                self.log(f"Task {read.id.hex()[:8]}: {words}.")
            self.book.drop_report(read.id, place)
            self._keep(
                read,
                state,
                unsent=tuple(other for other in state.unsent if other != place),
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
        wait = min(_FIRST_WAIT * 2 ** min(state.tries, 20), LONGEST_WAIT) * (0.5 + self.uniform())
        with self.store.transaction():
            self.book.require(read.id, state)
            if answer is not None:
                leader_answered(self.store, state.run, *answer, last=False)
            self._keep(read, state, tries=state.tries + 1, retry_at=now + wait)
        leader = read.task.servers.leader.organisation
        self.log(f"Task {read.id.hex()[:8]}: {leader} did not take the report yet ({why}).")

    def _keep(self, read: ReadTask, state: TaskState, **changes: object) -> None:
        for name, value in changes.items():
            setattr(state, name, value)
        self.book.save(read.id, state)

    def _stand(self, **changes: object) -> None:
        standing = self.book.standing()
        for name, value in changes.items():
            setattr(standing, name, value)
        self.book.set_standing(standing)

    def _entry(self, read: ReadTask, run: bytes, action: Action, words: str) -> Entry:
        return entry_of(
            read.terms,
            "proved",
            action,
            words,
            recommender=self.recommender,
            run=run,
            number=read.number,
        )
