"""Answer a recommender's offers one by one; state is on the disk before each reply.

Every message is checked against the owner's policy, what was agreed before (terms, plan, pinned
item table and roster) and the remaining budget (ledger). What does not pass is refused with one
word and changes nothing. A run ends with the model that is published of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from hdpmf.common.methods import method_named
from hdpmf.common.protocol import (
    Accepted,
    Envelope,
    Grouping,
    Message,
    Opening,
    Plan,
    Ready,
    Reply,
    Round,
    Survey,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.federation import Reason
from hdpmf.errors import HdpmfError, ProtocolError
from hdpmf.private.client.outgoing import compose
from hdpmf.private.device.budget import charge, check_policy
from hdpmf.private.device.consent import ask_owner, end_consent, require_agreement, require_consent
from hdpmf.private.device.disclosures.sent_bytes import message_leaves
from hdpmf.private.device.errors import DeclinedError, OutOfTurnError, UnansweredError, reason_of
from hdpmf.private.device.messages import (
    check_number,
    opened,
    pack,
    refusal,
    request_tag,
    sealed,
    terms_in,
    unpack,
)
from hdpmf.private.device.model_update import PublishedModel
from hdpmf.private.device.recommender_state import (
    MAX_OPEN,
    RunState,
    kept,
    open_runs,
    read_state,
    set_open,
    view_of,
)
from hdpmf.private.device.session import Outcome, Plans, Session, Setup
from hdpmf.private.device.store.schema import LocalModel, Question
from hdpmf.private.device.survey import SurveySession
from hdpmf.private.device.training import TrainingSession

T = TypeVar("T")

_FINAL = ("protocol", "policy")
"""Reasons that end a run. Others may pass: a full disk, numbers that were lost in a restart."""


class Conversation:
    """Answers the offers of one recommender that come one at a time: for bits, rounds and masks.

    Args:
        setup: The participant's.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store = setup.store
        self._plans = Plans(setup.store, setup.recommender, setup.clock)
        self._lock = threading.Lock()
        self._sessions: dict[bytes, Session] = {}

    def __repr__(self) -> str:
        return f"Conversation({self._store!r})"

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a message.

        Every message gets a reply. Errors become refusals; nothing is raised.
        """
        with self._lock:
            envelope: Envelope | None = None
            session: Session | None = None
            try:
                envelope = opened(data)
                session = self._sessions.get(envelope.run)
                if envelope.part == "sum":
                    return self._sum(envelope)
                return self._step(envelope, request_tag(data))
            except HdpmfError as error:
                if isinstance(error, UnansweredError):  # for the owner that is no refusal
                    self._setup.log(f"asks, and waits for the owner's answer: {error}")
                    reply = refusal(envelope, error.reason)
                else:
                    reply = self._refuse(envelope, session, reason_of(error), str(error))
                if envelope is not None:
                    self._forget_half_done(envelope.run)
                return reply
            # not ours, so that nobody knows how far it got: only what is on the disk counts
            except Exception as error:
                reply = self._refuse(
                    envelope, session, "unavailable", f"{type(error).__name__} in this program"
                )
                if envelope is not None:
                    self._sessions.pop(envelope.run, None)
                return reply

    def suspend(self) -> dict[bytes, bytes]:
        """Return the secure sums under way, by their runs. PRIVATE."""
        return {
            run: session.sum.suspend()
            for run, session in self._sessions.items()
            if session.sum is not None
        }

    def resume(self, sums: Mapping[bytes, bytes]) -> None:
        """Resume the sums that `suspend` returned, over the same store."""
        for run, job in sums.items():
            session = self._session(run)
            if session is not None:
                session.resume_sum(job)

    def _refuse(
        self, envelope: Envelope | None, session: Session | None, reason: Reason, words: str
    ) -> bytes:
        """A word for the recommender, the details for the owner."""
        self._setup.log(f"refused ({reason}): {words}")
        if envelope is None:
            self._setup.refusals.note(reason, words)
        else:
            terms = terms_in(envelope) if session is None else kept(session.state.terms, Terms)
            self._setup.refusals.note(reason, words, terms, envelope.run)
        return refusal(envelope, reason)

    def _step(self, envelope: Envelope, tag: bytes) -> bytes:
        """A message that brings a run forward; an exact repeat gets the reply that was given."""
        message = decode(envelope.body)
        if not isinstance(message, Terms | Plan | Opening | Round | Survey | Grouping):
            raise ProtocolError(f"a {type(message).__name__} is nothing that a device is sent")
        check_number(envelope, message)
        session = self._session(envelope.run)
        if session is not None and envelope.number <= session.state.number:
            before = self._store.runs.reply_to(envelope.run, envelope.number, tag)
            if before is not None:
                return self._repeated(session, envelope, unpack(before))
        if session is not None and session.state.over:
            raise ProtocolError("refused: this run is over")
        if isinstance(message, Terms):
            if session is not None:
                raise OutOfTurnError("refused: terms are agreed on once in a run")
            session, outcome = self._agree(envelope, message)
        else:
            if session is None:
                raise ProtocolError("refused: no terms were agreed on for this run")
            agreed = session
            outcome = self._broken_off_by_error(
                session, lambda: agreed.take(message, envelope.body)
            )
        reply = sealed(envelope.run, envelope.number, outcome.message)
        with self._ended_by_owner(session):
            self._commit(session, envelope, tag, outcome, reply)
        return reply

    def _broken_off_by_error(self, session: Session, take: Callable[[], T]) -> T:
        """Return what comes of a message or a model. The first wrong one ends the run here."""
        try:
            return take()
        except HdpmfError as error:
            if not isinstance(error, OutOfTurnError) and reason_of(error) in _FINAL:
                self._break_off(session.run)
            raise

    def finish(self, published: PublishedModel) -> LocalModel | None:
        """End the run that a published model is of, in one transaction.

        Returns:
            The model with what this device knows of its run; None where it was no part of it.
        """
        run = bytes.fromhex(published.run)
        with self._lock:
            session = self._session(run)
            if session is None or session.state.over:
                return None
            try:
                ended = self._broken_off_by_error(session, lambda: session.finish(published))
                with self._store.transaction():
                    if ended.entry is not None:
                        self._store.ledger.note(ended.entry)
                    self._give_back(session)
                    self._store.runs.drop_replies(run)
                    self._keep(session)
            except HdpmfError:
                self._forget_half_done(run)
                raise
            return ended.model

    def _break_off(self, run: bytes) -> None:
        """End a run as the store has it, without what was begun in memory."""
        self._sessions.pop(run, None)
        session = self._session(run)
        if session is None:
            return
        with self._store.transaction():
            session.state.over, session.state.client = True, None
            self._give_back(session)
            self._keep(session)
        self._sessions.pop(run, None)

    def _give_back(self, session: Session) -> None:
        """Return to the ledger the cost of a finished run that never left, with the reason."""
        state = session.state
        part = session.unsent() if state.charged else 0.0
        if part > 0:
            last = "no job" if state.summed < 0 else f"job {state.summed}"
            words = f"the run is over here, and the last masked numbers that left were of {last}"
            self._store.ledger.give_back(
                session.entry("returned", max(state.summed, 0), words), part
            )
        if part >= 1:
            state.charged = False

    def _give_back_rest(self, session: Session) -> None:
        """Return the cost of what will never leave: the run goes on without its ratings."""
        part, number = session.let_go(), max(session.state.summed, 0)
        if part > 0:
            words = "the owner has changed ratings of the run; it continues without them"
            self._store.ledger.give_back(session.entry("returned", number, words), part)

    def _agree(self, envelope: Envelope, terms: Terms) -> tuple[Session, Outcome]:
        store = self._store
        # Here its numbers would leave as they are, and pay as if they were in a sum.
        if terms.view == "two-servers":
            raise ProtocolError(
                "refused: for two servers a device makes a report; it answers no terms"
            )
        check_policy(store.policy, terms)
        if terms.catalogue != store.fingerprint:
            raise DeclinedError(
                "catalogue", "the terms are about another item table than the pinned one"
            )
        roster = store.roster
        if roster is None and terms.view == "sums":
            raise DeclinedError("unavailable", "no roster is pinned here; enrolment brings one")
        if roster is not None and terms.users > roster.n_users:
            raise ProtocolError("refused: the terms speak of more users than the pinned roster has")
        if terms.cohort and (
            roster is None or store.identity.public.hex() not in roster.asked(terms)
        ):
            raise ProtocolError("refused: this device is not in the cohort that the beacon chooses")
        check_policy(store.policy, terms, roster)
        require_consent(store, self._question(terms), envelope.run)
        self._make_room()
        # What an earlier run holds and never took is free for this one.
        for run in self._own_runs():
            state = self._state(run)
            if (
                state is not None
                and state.charged
                and state.summed < 0
                and view_of(state) == "sums"
            ):
                self._break_off(run)
        kind = SurveySession if method_named(terms.method).one_round else TrainingSession
        state = RunState(recommender=self._setup.recommender, terms=envelope.body)
        session = kind(self._setup, envelope.run, state)
        return session, Outcome(compose(Accepted))

    def _repeated(self, session: Session, envelope: Envelope, message: Message) -> bytes:
        """Return the same reply again; that numbers are ready, only while they are."""
        if isinstance(message, Ready):
            if session.state.summed >= envelope.number:
                raise DeclinedError("secure-sum", "the numbers of this job are in a sum already")
            if session.sum is None:
                session.revive(envelope.number)
            if session.sum is None or session.sum.number != envelope.number:
                raise DeclinedError(
                    "unavailable", "the numbers of this round were lost in a restart"
                )
        return sealed(envelope.run, envelope.number, message)

    def _commit(
        self, session: Session, envelope: Envelope, tag: bytes, outcome: Outcome, reply: bytes
    ) -> None:
        """Everything that follows from a message, in one transaction, before the reply leaves."""
        store = self._store
        with store.transaction():
            if outcome.entry is not None and outcome.entry.action == "sent":
                self._require_agreement(session)
            if outcome.table is not None and outcome.table is not store.ratings():
                raise DeclinedError("busy", "the owner has changed ratings in this moment")
            if outcome.entry is not None and outcome.pays is not None:
                charge(store, outcome.entry, outcome.pays)
            elif outcome.entry is not None:
                store.ledger.note(outcome.entry)
            if outcome.entry is not None and outcome.entry.action == "sent":
                self._note_leaving(session, envelope, reply)
            if session.run not in self._sessions:
                runs = [run for run in open_runs(store) if run != session.run]
                set_open(store, [*runs, session.run])
            session.save()
            store.runs.put_reply(envelope.run, envelope.number, tag, pack(outcome.message))
        session.touched = False
        self._sessions[session.run] = session

    def _question(self, terms: Terms) -> Question:
        return Question(recommender=self._setup.recommender, terms=terms)

    def _require_agreement(self, session: Session) -> None:
        """Raise DeclinedError unless the owner agrees now: in what lets something leave."""
        require_agreement(self._store, self._question(session.agreed()), session.run)

    @contextmanager
    def _ended_by_owner(self, session: Session) -> Iterator[None]:
        """End a run here that its owner does not agree to any more; what never left is free."""
        try:
            yield
        except DeclinedError as error:
            if isinstance(error, UnansweredError):
                ask_owner(self._store, self._question(session.agreed()))
            elif error.reason != "policy":
                raise
            self._break_off(session.run)
            raise

    def _keep(self, session: Session) -> None:
        """Keep a run that is over; inside the transaction of what it belongs to."""
        store = self._store
        end_consent(store, session.run)
        set_open(store, [run for run in open_runs(store) if run != session.run])
        if session.state.charged:
            session.save()
            session.touched = False
        else:  # nothing was sent or paid, so that nothing has to be remembered
            store.runs.drop(session.run)
            self._sessions.pop(session.run, None)

    def _sum(self, envelope: Envelope) -> bytes:
        session = self._session(envelope.run)
        if session is None or session.state.over:
            raise ProtocolError("refused: there is no such run here")
        if session.state.summed < envelope.number and session.sum is None:
            session.revive(envelope.number)
        if session.sum is None or session.sum.number != envelope.number:
            raise DeclinedError("secure-sum", "there are no numbers of this job for a sum")

        def reply(body: bytes) -> bytes:
            return encode(
                compose(Reply, run=envelope.run, number=envelope.number, part="sum", body=body)
            )

        waiting = session.sum

        def vector_leaves(body: bytes) -> None:
            first = session.state.summed < 0
            with self._store.transaction():
                self._require_agreement(session)
                same = waiting.content == session.content()
                if same:
                    self._give_back_rest(session)
                    self._store.ledger.note(session.summed(envelope.number), first=first)
                    self._note_leaving(session, envelope, reply(body))
                    self._plans.sent()
                    session.save()
            if not same:  # another plan of this job gets numbers of the ratings as they are
                session.sum = None
                session.choose_anew()
                raise DeclinedError("secure-sum", "the owner has changed ratings of this job")
            session.touched = False

        with self._ended_by_owner(session):
            return reply(waiting.answer(self._store, envelope.body, self._plans, vector_leaves))

    def _note_leaving(self, session: Session, envelope: Envelope, reply: bytes) -> None:
        """For a receipt; in a simulation nothing leaves."""
        if not self._setup.simulation:
            message_leaves(self._store, envelope.run, session.agreed(), envelope.number, reply)

    def _session(self, run: bytes) -> Session | None:
        """The run's session, made anew from the store after a restart."""
        session = self._sessions.get(run)
        if session is None:
            saved = self._store.runs.load(run)
            if saved is None:
                return None
            state = read_state(saved)
            if state.recommender != self._setup.recommender:
                raise ProtocolError("refused: this run was agreed on with another recommender")
            terms = kept(state.terms, Terms)
            one_round = terms is not None and method_named(terms.method).one_round
            session = self._sessions[run] = (SurveySession if one_round else TrainingSession)(
                self._setup, run, state, saved
            )
        return session

    def _state(self, run: bytes) -> RunState | None:
        session = self._session(run)
        return None if session is None else session.state

    def _forget_half_done(self, run: bytes) -> None:
        """Drop a session that is ahead of the store; the next message makes it anew from there."""
        session = self._sessions.get(run)
        if session is not None and session.touched:
            del self._sessions[run]

    def _make_room(self) -> None:
        """End one of a recommender's runs if it has ``MAX_OPEN``, so that a new one can begin.

        It is the oldest that has charged nothing or, if all have, the oldest.
        """
        runs = self._own_runs()
        if len(runs) < MAX_OPEN:
            return
        for run in runs:
            state = self._state(run)
            if state is None or not state.charged:
                self._break_off(run)
                return
        self._break_off(runs[0])

    def _own_runs(self) -> list[bytes]:
        """The runs under way with this recommender, oldest first."""
        states = ((run, self._store.runs.load(run)) for run in open_runs(self._store))
        return [
            run
            for run, saved in states
            if saved and read_state(saved).recommender == self._setup.recommender
        ]
