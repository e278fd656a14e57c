"""Something that leaves for a task: made once, paid once, sent until it is taken.

It is made when its task is taken, and leaves at a moment that was drawn then. Where it needs a
token, this is asked for at an earlier moment, which is drawn as well. A step either works
on ratings or sends, so that no moment tells how many ratings there are. Ratings are held when it is
made, and pay right before the first byte leaves. Until then the owner's word counts as it is: in
the commit that lets it leave, policy, servers, membership, consent, ratings, weights and levels are
looked at again. What the owner does not agree to any more is thrown away and given back. Where only
ratings in it are others, it is made anew. Noticed ahead of the moment, that changes nothing that
can be seen; noticed at the moment, another one is drawn from the rest of the period. Both are for
what the owner did, whatever the ratings are. Once a byte has left, the very same bytes go out,
however often they are tried, unless who gets them has said that they cannot be opened any more:
then the same thing is sealed anew. Where several users' reports leave one after another, each is
looked at before its own first byte; what the rest was to cost is given back where it stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from hdpmf.common.net.carrier import backoff
from hdpmf.errors import HdpmfError, StorageError, TransportError
from hdpmf.private.device.budget import entry_of
from hdpmf.private.device.consent import require_agreement
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.errors import DeclinedError, UnansweredError, reason_of
from hdpmf.private.device.published_files import Carrier, ReadTask, check_servers, read_task
from hdpmf.private.device.recommender_state import RecommenderStates, TaskState
from hdpmf.private.device.session import Setup
from hdpmf.private.device.store.schema import Question, RecommenderState

REFUSED = frozenset({401, 403, 409, 410, 413, 415, 422})
"""Answers after which nothing is tried again. Others may pass: the task is not known yet (404), a
clock is wrong (400), the server is busy or broken."""

LONGEST_WAIT = 3600.0
"""Seconds between two tries, about."""

_BAD_REQUEST = 400  # among others DAP's outdatedConfig
_LATEST = 0.9  # of what is left of a period: the rest is for trying again
_AFTER_ERROR = 60.0
_MAY_PASS = ("storage", "busy", "unavailable")
_FIRST_WAIT = 15.0
_LEAD = 10.0  # seconds between taking a task and the first moment: to make reports, however many
_SETTLE = 2.0  # the same after looking at ratings again; no mutant: longer is as good
_AHEAD = 60.0  # seconds before its moment at which what leaves is looked at again
_SOON = 120.0  # seconds in which that leaves whose moment has passed


class OutdatedError(DeclinedError):
    """Ratings may have changed since they were looked at. Nothing has left."""


class Sending(ABC):
    """Messages for the tasks of one recommender, one task at a time.

    Args:
        setup: The participant's.
        carrier: How to reach who gets it.
    """

    what = "report"

    def __init__(self, setup: Setup, carrier: Carrier) -> None:
        self._setup = setup
        self._store = setup.store
        self._carrier = carrier
        self.book = RecommenderStates(setup.store, setup.recommender)
        self._rest_until = 0.0  # after the disk refused
        self._read: ReadTask | None = None
        # The task whose numbers are of the ratings at this version of the store.
        self._checked: tuple[bytes, tuple[int, ...]] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    @abstractmethod
    def _under_way(self, known: RecommenderState) -> bytes:
        """Return the key in the store of what is under way; empty if nothing is."""

    @abstractmethod
    def _key(self, read: ReadTask) -> bytes:
        """Return the key in the store of what leaves for this task."""

    @abstractmethod
    def _receiver(self, read: ReadTask) -> str:
        """Return who gets it, for people."""

    @abstractmethod
    def _receivers(self, read: ReadTask) -> str:
        """Return all who get a part of it, for people."""

    @abstractmethod
    def _content(self, read: ReadTask, state: TaskState) -> bytes:
        """Return the digest of what has paid, as it is now (`Participation.content`)."""

    @abstractmethod
    def _make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, hold what they cost, and keep what is to leave, in one commit.

        ``state`` is changed as the store is.
        """

    def _seal(self, read: ReadTask, user: int) -> bytes:
        """Return the bytes that leave for a user, where none are kept that have left before.

        Raises:
            TransportError: They cannot be sealed now.
        """
        raise StorageError(f"a {self.what} that is to be sent is not in the store: it is damaged")

    def _is_outdated(self, read: ReadTask, body: bytes) -> bool:
        """Return True if who gets these bytes has said that they cannot be opened any more."""
        return False

    def _lacks_tokens(self, read: ReadTask, state: TaskState) -> bool:
        """Return True if tokens have to be asked for before anything can leave."""
        return False

    def _ask_for_tokens(self, read: ReadTask, state: TaskState, now: float) -> None:
        """Ask for tokens. This depends on no rating, and comes in a step of its own."""
        raise StorageError(f"a {self.what} needs no tokens: the store is damaged")

    @abstractmethod
    def _post(self, read: ReadTask, user: int, body: bytes, leaving: Callable[[], None]) -> int:
        """Send bytes of a user, and return the status of the answer.

        ``leaving`` is called when a connection is open, before any of them is given to it.

        Raises:
            TransportError: Nobody could be reached, or answered.
        """

    @abstractmethod
    def _pay(self, read: ReadTask, state: TaskState) -> None:
        """Pay what was held, in the commit after which the first byte leaves."""

    @abstractmethod
    def _note_leaving(self, read: ReadTask, state: TaskState, body: bytes) -> None:
        """Write down for a receipt that these bytes may leave, in the same commit."""

    @abstractmethod
    def _note_answer(self, state: TaskState, body: bytes, status: int, *, last: bool) -> None:
        """Write down for a receipt what was answered; ``last``: it is not sent again."""

    @abstractmethod
    def _return_held(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give back what is held for that which has not left."""

    @abstractmethod
    def _return_rest(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give back what users were to pay of whom nothing has left, where others' has."""

    @abstractmethod
    def _end(self, read: ReadTask, state: TaskState) -> None:
        """Drop what is kept of a task that is over here."""

    @abstractmethod
    def _ask_again(self, read: ReadTask, state: TaskState) -> None:
        """Go on where the owner wants to be asked and has not answered; nothing has left."""

    def due(self) -> float | None:
        """Return when there is something to do for the task under way; None where there is none."""
        opened = self._opened()
        if opened is None:
            return None
        return max(self._due(*opened, self._setup.clock()), self._rest_until)

    def ready(self) -> bool:
        """Return True if the next step sends or gives up, and does not work on ratings."""
        opened, now = self._opened(), self._setup.clock()
        if opened is None:
            return False
        read, state = opened
        looked_at = state.left or (
            state.built and (self._lacks_tokens(read, state) or self._is_current(read))
        )
        return now >= read.task.end or (looked_at and now >= self._due(read, state, now))

    def go_on(self) -> None:
        """Make it, send it, or give it up, if it is time for that."""
        key, opened, now = self._under_way(self.book.state()), self._opened(), self._setup.clock()
        if opened is None:
            if key:  # the owner has forgotten the runs under way
                self.book.end(key)
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

    def _draw(self, read: ReadTask, now: float) -> float:
        """Draw a moment from the rest of a task's period."""
        first = self._first(read, now)
        return first + self._setup.uniform() * _LATEST * (read.task.end - first)

    def _draw_before(self, read: ReadTask, now: float, moment: float) -> float:
        """Draw another moment, before one that was drawn."""
        first = self._first(read, now)
        return first + self._setup.uniform() * max(moment - first, 0.0)

    def _first(self, read: ReadTask, now: float) -> float:
        """Return the first moment that may be drawn: until then everything is made."""
        begin = max(now, read.task.begin)
        lead = 0.0 if self._setup.simulation else min(_LEAD, (read.task.end - begin) / 20)
        return begin + lead

    def _due(self, read: ReadTask, state: TaskState, now: float) -> float:
        """Return the time at which there is something to do for a task."""
        # Or the clock was put back.
        again = state.retry_at if state.retry_at <= now + 2 * LONGEST_WAIT else now
        if state.built and self._lacks_tokens(read, state):
            again = max(state.token_at, again)
        elif state.built and not state.is_out:
            again = max(state.moment, again) - (0.0 if self._is_current(read) else _AHEAD)
        return min(again, read.task.end)

    def _opened(self) -> tuple[ReadTask, TaskState] | None:
        """The task under way."""
        key = self._under_way(self.book.state())
        kept = self.book.load(key) if key else None
        if kept is None:
            return None
        if self._read is None or self._key(self._read) != key:
            self._read = read_task(kept[1])
        return self._read, kept[0]

    def _bring_forward(self, read: ReadTask, state: TaskState, now: float) -> None:
        if now >= read.task.end:
            self._give_up(read, state, "its time is over")
            return
        if read.task.enrolled and not read.task.token_key:
            self._give_up(read, state, "its leader has a list of devices, as version 1.0.0 had")
            return
        try:
            if state.is_out:
                self._tell_what_left(read, state)
            else:
                self._require_agreement(read, state)
                if state.built and self._lacks_tokens(read, state):
                    self._ask_for_tokens(read, state, now)
                    return
                if not (state.built and self._is_current(read)):
                    self._prepare(read, state)
                first = max(state.moment, state.retry_at)
                if self._lacks_tokens(read, state) or self._setup.clock() < first:
                    return
            self._send(read, state, now)
        except HdpmfError as error:
            if state.is_out:
                raise
            unanswered = isinstance(error, UnansweredError)
            if unanswered and not state.left:
                self._ask_again(read, state)
                return
            if reason_of(error) in _MAY_PASS and not unanswered:
                raise
            keep_refusal(self._setup, error, read)
            self._give_up(read, state, f"it is refused ({error})")

    def _tell_what_left(self, read: ReadTask, state: TaskState) -> None:
        """Tell an owner who has changed their mind that it is too late for this task."""
        try:
            self._require_agreement(read, state)
        except DeclinedError as error:
            self._setup.log(
                f"Task {read.id.hex()[:8]}: {error}; but its {self.what} had left before, and is "
                "paid."
            )

    def _require_agreement(self, read: ReadTask, state: TaskState) -> None:
        """Raise DeclinedError unless the owner agrees now."""
        check_servers(self._store, read.task.servers)
        require_agreement(self._store, self._question(read), self._agreed_run(read, state))

    def _agreed_run(self, read: ReadTask, state: TaskState) -> bytes:
        return state.run

    def _is_current(self, read: ReadTask) -> bool:
        """Return True if nobody has written to the store since the ratings were looked at."""
        return self._checked == (read.id, self._store.ratings_version())

    def _prepare(self, read: ReadTask, state: TaskState) -> None:
        """Make it, or see that it is of the ratings and weights as they are now.

        ``state`` is changed as the store is. This takes longer for more ratings, so that nothing
        leaves right after it.
        """
        version, made_anew = self._store.ratings_version(), False
        if state.built and self._content(read, state) != state.content:
            if state.left:  # who has reported could be in a second report that is made anew
                raise DeclinedError("policy", f"the owner has changed ratings of the {self.what}s")
            self._discard(read, state)
            made_anew = True
        if not state.built:
            self._make(read, state)
        self._checked = read.id, version
        after = self._setup.clock() + (0.0 if self._setup.simulation else _SETTLE)
        lacks = self._lacks_tokens(read, state)
        if (state.token_at if lacks else max(state.moment, state.retry_at)) >= after:
            return
        shortly = min(_SOON, read.task.end - after) * self._setup.uniform()
        moment = self._draw(read, after) if made_anew else after + _LATEST * shortly
        with self._store.transaction():
            self.book.require(self._key(read), state)
            self._keep(read, state, **{"token_at" if lacks else "moment": moment}, retry_at=0.0)

    def _discard(self, read: ReadTask, state: TaskState) -> None:
        """Throw away what nothing has left of; what was held for it is given back."""
        words = f"the owner has changed ratings of the {self.what}, not sent yet; it is made again"
        with self._store.transaction():
            self.book.require(self._key(read), state)
            self._return_held(read, state, words)
            for user in state.unsent:
                self.book.drop_report(self._key(read), user)
            self._keep(read, state, built=False, content=b"", unsent=())

    def _question(self, read: ReadTask) -> Question:
        return read.question(self._setup.recommender)

    def _give_up(self, read: ReadTask, state: TaskState, why: str) -> None:
        """The task is over here. What provably never left is not paid."""
        with self._store.transaction():
            self.book.require(self._key(read), state)
            if not state.left:
                words = f"{why}, and no connection to {self._receiver(read)} was open until then"
                self._return_held(read, state, words)
            elif not state.is_out:
                n = sum(not state.may_have_left(user) for user in state.unsent)
                words = f"{why}, and of {n} users no {self.what} had left by then"
                self._return_rest(read, state, words)
            self._end(read, state)
        self._setup.log(f"Task {read.id.hex()[:8]}: {why}; it is not reported in any more.")

    def _send(self, read: ReadTask, state: TaskState, now: float) -> None:
        """Send what is left. The task ends once all of it was taken or refused.

        ``state`` is changed as the store is.
        """
        for user in state.unsent:
            if not state.may_have_left(user) and not self._is_current(read):
                return
            kept = self.book.report(self._key(read), user)
            try:
                body = self._seal(read, user) if kept is None else kept
                leaving = partial(self._leaves, read, state, user, body, fresh=kept is None)
                status = self._post(read, user, body, leaving)
            except OutdatedError:
                return  # it is looked at again in the next step
            except TransportError as error:
                self._wait(read, state, now, str(error))
                return
            if not (200 <= status < 300 or status in REFUSED):
                self._wait(read, state, now, f"its answer was {status}", (body, status))
                if status == _BAD_REQUEST and self._is_outdated(read, body):
                    self.book.seal_anew(self._key(read), user)
                return
            self._taken(read, state, user, body, status)
        with self._store.transaction():
            self._end(read, state)
        if state.left:
            self._setup.log(f"Task {read.id.hex()[:8]}: reported to {self._receivers(read)}.")

    def _leaves(
        self, read: ReadTask, state: TaskState, user: int, body: bytes, *, fresh: bool
    ) -> None:
        """A connection is open: from here on bytes may have left, if the owner still agrees.

        Bytes that were just sealed (``fresh``) are kept.
        """
        with self._store.transaction():
            if not state.may_have_left(user):
                self._require_agreement(read, state)
                if not self._is_current(read):
                    raise OutdatedError("busy", "something was changed here in this moment")
                if state.left:
                    self.book.require(self._key(read), state)
                else:
                    self._pay(read, state)
                self._keep(read, state, begun=user + 1)
            if fresh:
                self.book.put_report(self._key(read), user, body)
            self._note_leaving(read, state, body)

    def _taken(self, read: ReadTask, state: TaskState, user: int, body: bytes, status: int) -> None:
        with self._store.transaction():
            self.book.require(self._key(read), state)
            self._note_answer(state, body, status, last=True)
            if status in REFUSED:
                words = f"{self._receiver(read)} refused a {self.what} (its answer was {status})"
                self._store.ledger.note(self._entry(read, state.run, "refused", words))
                self._setup.log(f"Task {read.id.hex()[:8]}: {words}.")
            self.book.drop_report(self._key(read), user)
            self._keep(
                read, state, unsent=tuple(other for other in state.unsent if other != user), tries=0
            )

    def _wait(
        self,
        read: ReadTask,
        state: TaskState,
        now: float,
        why: str,
        answer: tuple[bytes, int] | None = None,
    ) -> None:
        """Try the same bytes again later (``answer``: them, and what was said to them)."""
        wait = backoff(state.tries, _FIRST_WAIT, LONGEST_WAIT, self._setup.uniform)
        with self._store.transaction():
            self.book.require(self._key(read), state)
            if answer is not None:
                self._note_answer(state, *answer, last=False)
            self._keep(read, state, tries=state.tries + 1, retry_at=now + wait)
        who = f"{self._receiver(read)} did not take the {self.what}"
        if self._lacks_tokens(read, state):
            who = f"{self._setup.recommender} did not give a token"
        self._setup.log(f"Task {read.id.hex()[:8]}: {who} yet ({why}).")

    def _keep(self, read: ReadTask, state: TaskState, **changes: object) -> None:
        for name, value in changes.items():
            setattr(state, name, value)
        self.book.save(self._key(read), state)

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
    """Keep what was refused, and of which task, for the owner.

    What waits for the owner's own answer is not refused.
    """
    if isinstance(error, UnansweredError):
        return
    asked = (None, b"") if read is None else (read.terms, read.id)
    setup.refusals.note(reason_of(error), str(error), *asked)
