"""Reports to two servers: for each task made once, paid once, sent until they are taken.

A report is made when its task is taken, and leaves at a moment that was drawn then. A step either
works on ratings or sends, so that no moment tells how many ratings there are. Ratings are held for
the report when it is made, and pay right before the first byte leaves. Until then the owner's word
counts as it is: in the commit that lets the report leave, policy, servers, membership, consent,
ratings and weights are looked at again. What the owner does not agree to any more is thrown away
and given back. Where only ratings in the report are others, it is made anew. Noticed ahead of the
moment, that changes nothing that can be seen; noticed at the moment, another one is drawn from the
rest of the period. Both are for what the owner did, whatever the ratings are. Once a byte has left,
the very same bytes go out, however often they are tried.
"""

from __future__ import annotations

from functools import partial

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
from hdpmf.private.device.consent import (
    ask_owner,
    end_consent,
    require_agreement,
    require_consent,
)
from hdpmf.private.device.disclosures.ledger import Action, Entry
from hdpmf.private.device.disclosures.sent_bytes import record_leader_response, report_leaves
from hdpmf.private.device.errors import DeclinedError, UnansweredError, reason_of
from hdpmf.private.device.model_update import facts_digest
from hdpmf.private.device.published_files import (
    Carrier,
    Downloads,
    PublicFile,
    ReadTask,
    check_period,
    check_servers,
    check_task,
    most_bytes,
    pinned_items,
    read_task,
)
from hdpmf.private.device.recommender_state import RecommenderStates, TaskState, collector_digest
from hdpmf.private.device.session import DAY, Setup
from hdpmf.private.device.store.schema import CountedSurvey, Question, RecommenderState

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
_LEAD = 10.0  # seconds between taking a task and the first moment: to make reports, however many
_SETTLE = 2.0  # the same after looking at ratings again
_AHEAD = 60.0  # seconds before its moment at which a report is looked at again
_SOON = 120.0  # seconds in which a report leaves whose moment has passed


class _OutdatedError(DeclinedError):
    """Ratings may have changed since the report was looked at. Nothing has left."""


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
        # The task whose reports are of the ratings at this version of the store.
        self._checked: tuple[bytes, tuple[int, ...]] | None = None
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
        check_period(self._store, read.task, now, known.until)
        run = self._run_of(read, known)
        check_task(self._store, read)
        collector = collector_digest(read.task.collector)
        if known.collector not in (b"", collector):
            raise ProtocolError("refused: the sums would go to somebody else than those before")
        if known.task or self._had_enough(read, known, now):
            return  # its time comes when the one under way, or a day, is over
        if not self._owner_agrees(read, run):
            return  # looked at again when the index is, for as long as the task lasts
        state = TaskState(moment=self._draw(read, now), run=run)
        with self._store.transaction():
            if known.counted is not None and known.counted.run != run:
                end_consent(self._store, known.counted.run)  # it got no labels
            self.book.begin(read.id, state, self._held[1], read.task.end, now)
            self.book.change(
                collector=collector,
                task=read.id,
                until=read.task.end,
                taken=(*_within_a_day(known.taken, now), now),
            )
        self._held = "", b""
        servers = read.task.servers
        self._setup.log(
            f"Task {read.id.hex()[:8]} for the servers of {servers.names}: reports before it ends."
        )

    def _had_enough(self, read: ReadTask, known: RecommenderState, now: float) -> bool:
        """Return True if the recommender had its tasks of this day."""
        most = self._store.policy.max_tasks_per_day
        if len(_within_a_day(known.taken, now)) < most:
            return False
        if read.id != self._told:
            words = f"there were {most} tasks within a day (max_tasks_per_day in the policy)"
            self._setup.log(f"Task {read.id.hex()[:8]}: {words}.")
            keep_refusal(self._setup, DeclinedError("busy", words), read)
        self._told = read.id
        return True

    @staticmethod
    def _run_of(read: ReadTask, known: RecommenderState) -> bytes:
        """Return the run that ratings pay in: labels go on with the survey that was counted."""
        if read.part != "labels":
            return read.id
        if known.counted is None or known.counted.survey != encode(read.survey):
            raise ProtocolError(
                "refused: the task is for the labels of a survey that was not counted here"
            )
        return known.counted.run

    def _draw(self, read: ReadTask, now: float) -> float:
        """Draw a moment from the rest of a task's period."""
        begin = max(now, read.task.begin)
        rest = read.task.end - begin
        lead = 0.0 if self._setup.simulation else min(_LEAD, rest / 20)
        return begin + lead + self._setup.uniform() * _LATEST * (rest - lead)

    def _due(self, read: ReadTask, state: TaskState, now: float) -> float:
        """Return the time at which there is something to do for a task."""
        again = (
            state.retry_at if state.retry_at <= now + 2 * LONGEST_WAIT else now
        )  # or the clock was put back
        if state.built and not state.left:
            again = max(state.moment, again) - (0.0 if self._is_current(read) else _AHEAD)
        return min(again, read.task.end)

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
        try:
            if state.left:
                self._tell_what_left(read, state)
            else:
                self._require_agreement(read, state)
                if not (state.built and self._is_current(read)):
                    self._prepare(read, state)
                if self._setup.clock() < max(state.moment, state.retry_at):
                    return
            sent = self._send(read, state, now)
        except HdpmfError as error:
            if state.left:
                raise
            if isinstance(error, UnansweredError):
                self._ask_again(read, state)
                return
            if reason_of(error) in _MAY_PASS:
                raise
            keep_refusal(self._setup, error, read)
            self._give_up(read, state, f"it is refused ({error})")
            return
        if sent:
            self._setup.log(
                f"Task {read.id.hex()[:8]}: reported to the servers of {read.task.servers.names}."
            )

    def _tell_what_left(self, read: ReadTask, state: TaskState) -> None:
        """Tell an owner who has changed their mind that it is too late for this task."""
        try:
            self._require_agreement(read, state)
        except DeclinedError as error:
            self._setup.log(
                f"Task {read.id.hex()[:8]}: {error}; but its report had left before, and is paid."
            )

    def _require_agreement(self, read: ReadTask, state: TaskState) -> None:
        """Raise DeclinedError unless the owner agrees now."""
        check_servers(self._store, read.task.servers)
        require_agreement(self._store, self._question(read), state.run)

    def _is_current(self, read: ReadTask) -> bool:
        """Return True if nobody has written to the store since the reports were looked at."""
        return self._checked == (read.id, self._store.ratings_version())

    def _prepare(self, read: ReadTask, state: TaskState) -> None:
        """Make the reports, or see that they are of the ratings and weights as they are now.

        ``state`` is changed as the store is. This takes longer for more ratings, so that nothing
        leaves right after it.
        """
        version, made_anew = self._store.ratings_version(), False
        if state.built:
            now = paying_ratings(self._store, state.run, read.terms.epsilon)
            if now.content != state.content:
                self._discard(read, state)
                made_anew = True
        if not state.built:
            self._make(read, state)
        self._checked = read.id, version
        after = self._setup.clock() + (0.0 if self._setup.simulation else _SETTLE)
        if max(state.moment, state.retry_at) >= after:
            return
        shortly = min(_SOON, read.task.end - after) * self._setup.uniform()
        moment = self._draw(read, after) if made_anew else after + _LATEST * shortly
        with self._store.transaction():
            self.book.require(read.id, state)
            self._keep(read, state, moment=moment, retry_at=0.0)

    def _discard(self, read: ReadTask, state: TaskState) -> None:
        """Throw reports away that nothing has left of; what was held for them is given back."""
        words = "the owner has changed ratings of the report, which had not left; it is made anew"
        with self._store.transaction():
            self.book.require(read.id, state)
            self._return_held(read, state, words)
            for user in state.unsent:
                self.book.drop_report(read.id, user)
            self._keep(read, state, built=False, content=b"", unsent=())

    def _ask_again(self, read: ReadTask, state: TaskState) -> None:
        """Put a task before the owner that was taken before the owner wanted to be asked."""
        with self._store.transaction():
            self.book.require(read.id, state)
            self._return_held(read, state, "the owner wants to be asked, and nothing had left")
            self.book.release(read.id, read.task.begin)
            ask_owner(self._store, self._question(read))
        self._setup.log(f"Task {read.id.hex()[:8]}: it waits for the owner's answer.")

    def _question(self, read: ReadTask) -> Question:
        servers = read.task.servers
        return Question(
            recommender=self._setup.recommender,
            terms=read.terms,
            servers=servers.digest,
            names=servers.names,
            survey=read.survey,
            until=read.task.end,
        )

    def _owner_agrees(self, read: ReadTask, run: bytes) -> bool:
        """Return True if the owner consents. No answer yet is no lasting refusal of the task."""
        try:
            require_consent(self._store, self._question(read), run)
        except DeclinedError as error:
            if read.id != self._told:
                self._setup.log(f"Task {read.id.hex()[:8]}: {error}.")
                keep_refusal(self._setup, error, read)
            self._told = read.id
            return False
        return True

    def _make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, hold what they cost, and keep one report for each user, in one commit.

        ``state`` is changed as the store is.
        """
        store, task = self._store, read.task
        check_task(store, read)  # its owner may have changed the policy since the task came
        pays = np.zeros(0, np.intp), np.zeros(0)
        if read.part == "labels":
            part = paying_ratings(store, state.run, read.terms.epsilon)
            words = "drew a taste label, which stays here, and reports by it"
        else:
            pays = choose(store, read.terms, self._setup.recommender)
            part = participation(store, pays[0])
            words = agreed_words(read.terms, "proved", servers=task.servers)
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
        with store.transaction():
            self.book.require(read.id, state)
            if store.ratings() is not part.table:  # who pays is who is in the reports
                raise DeclinedError(
                    "busy", "the owner has changed ratings in this moment; the report is made anew"
                )
            entry = self._entry(read, state.run, "agreed", words)
            if read.part == "labels":
                store.ledger.note(entry)
            else:
                charge(store, entry, *pays)
            self._put(read, waiting)
            self._keep(
                read, state, built=True, content=part.content, unsent=tuple(range(store.users))
            )

    def _send(self, read: ReadTask, state: TaskState, now: float) -> bool:
        """Send the reports that are left; return True once the leader has taken or refused all.

        The task ends then. ``state`` is changed as the store is.
        """
        path = REPORTS_PATH.format(task_id=id_to_text(read.id))
        for user in state.unsent:
            if not state.left and not self._is_current(read):
                return False
            body = self.book.report(read.id, user)
            headers = report_headers(self._store.identity, read.id, body, signed=read.task.enrolled)
            try:
                leaving = partial(self._leaves, read, state, body)
                status = self._carrier.upload(
                    read.task.servers.leader, path, headers, body, leaving
                )
            except _OutdatedError:
                return False  # it is looked at again in the next step
            except TransportError as error:
                self._wait(read, state, now, str(error))
                return False
            if not (200 <= status < 300 or status in REFUSED):
                self._wait(read, state, now, f"its answer was {status}", (body, status))
                return False
            self._taken(read, state, user, body, status)
        with self._store.transaction():
            self._end(read, state)
        return True

    def _give_up(self, read: ReadTask, state: TaskState, why: str) -> None:
        """The task is over here. What provably never left is not paid."""
        with self._store.transaction():
            self.book.require(read.id, state)
            if not state.left:
                leader = read.task.servers.leader.organisation
                words = f"{why}, and no connection to {leader} was open until then"
                self._return_held(read, state, words)
            self._end(read, state)
        self._setup.log(f"Task {read.id.hex()[:8]}: {why}; it is not reported in any more.")

    def _return_held(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give back what is held for reports that have not left; labels cost nothing more."""
        if state.built and read.part != "labels":
            self._store.ledger.give_back(self._entry(read, state.run, "returned", words), 1.0)

    def _end(self, read: ReadTask, state: TaskState) -> None:
        """Drop a task, and an agreement for once unless labels are to follow."""
        self.book.end(read.id)
        if not (read.part == "counts" and state.left):
            end_consent(self._store, state.run)

    def _put(self, read: ReadTask, reports: dict[int, bytes]) -> None:
        with self._store.transaction():
            for user, report in reports.items():
                self.book.put_report(read.id, user, report)

    def _leaves(self, read: ReadTask, state: TaskState, report: bytes) -> None:
        """A connection is open: from here on a report may have left, if the owner still agrees."""
        with self._store.transaction():
            if not state.left:
                self._require_agreement(read, state)
                if not self._is_current(read):
                    raise _OutdatedError("busy", "something was changed here in this moment")
                self._pay(read, state)
            report_leaves(
                self._store, state.run, read.terms, read.task.servers, read.number, report
            )

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        """Pay what was held for the reports."""
        servers = read.task.servers
        words = f"a report for each user, in shares for {servers.names} (digest {servers.digest})"
        # A label is drawn once: what was counted is gone with it.
        counted = (
            CountedSurvey(run=state.run, survey=encode(read.survey))
            if read.part == "counts"
            else None
        )
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
            counted=counted,
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


def _within_a_day(taken: tuple[float, ...], now: float) -> tuple[float, ...]:
    """Return the times of the last day; where the clock was put back they are of now."""
    return tuple(min(at, now) for at in taken if at > now - DAY)


def keep_refusal(setup: Setup, error: HdpmfError, read: ReadTask | None = None) -> None:
    """Keep what was refused, and of which task, for the owner."""
    asked = (None, b"") if read is None else (read.terms, read.id)
    setup.refusals.note(reason_of(error), str(error), *asked)
