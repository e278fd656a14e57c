"""Reports to two servers: for each task made once, paid once, sent until it is taken.

A report is made when its task is taken, and leaves at a moment that was drawn then. Its token is
asked for at an earlier moment, which is drawn as well. A step either works on ratings or sends, so
that no moment tells how many ratings there are. Ratings are held when it is made, and pay right
before the first byte leaves. Until then the owner's word counts as it is: in the commit that lets
it leave, policy, servers, membership, consent, ratings and weights are looked at again. What the
owner does not agree to any more is thrown away and given back. Where only ratings in it are others,
it is made anew. Noticed ahead of the moment, that changes nothing that can be seen; noticed at the
moment, another one is drawn from the rest of the period. Both are for what the owner did, whatever
the ratings are.

What is kept until a report leaves are its two shares. They are encrypted at that moment, to the
newest keys that the servers have signed. Once a byte has left, the very same bytes go out, however
often they are tried. Where a server has erased the key of a report that it has not taken, the same
shares are encrypted anew under the same id, which servers count once.
"""

from __future__ import annotations

import secrets
from functools import partial
from http import HTTPStatus

from hdpmf.common.aggregation.two_servers.dap.messages import (
    REPORT_ID_SIZE,
    REPORTS_PATH,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.tokens import TOKENS_PATH, BlindedToken, TokenKey
from hdpmf.common.base.backoff import backoff
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.task import prio_of, token_challenge
from hdpmf.errors import HdpmfError, ProtocolError, StorageError, TransportError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.outgoing import (
    report_headers,
    sealed_report,
    split_report,
    token_headers,
    token_request,
)
from hdpmf.private.device.budget import (
    agreed_words,
    charge,
    choose,
    entry_of,
    participation,
    paying_ratings,
    units_paid,
)
from hdpmf.private.device.consent import (
    ask_owner,
    end_consent,
    require_agreement,
    require_consent,
)
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.errors import DeclinedError, UnansweredError, reason_of
from hdpmf.private.device.outbox.server_keys import ServerKeyLists
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
from hdpmf.private.device.recommendations import facts_digest
from hdpmf.private.device.recommender_state import (
    DAY,
    RecommenderStates,
    Setup,
    TaskState,
    collector_digest,
)
from hdpmf.private.device.store.schema import RecommenderState

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
_LEAD = 10.0  # seconds between taking a task and the first moment: to make the report
_SETTLE = 2.0  # the same after looking at ratings again; no mutant: longer is as good
_AHEAD = 60.0  # seconds before its moment at which what leaves is looked at again
_SOON = 120.0  # seconds in which that leaves whose moment has passed


class OutdatedError(DeclinedError):
    """Ratings may have changed since they were looked at. Nothing has left."""


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
        self._keys = ServerKeyLists(setup.store)
        self.book = RecommenderStates(setup.store, setup.recommender)
        self._held: tuple[str, bytes] = ("", b"")  # a task whose time has not come
        self._told = b""  # the task that the owner was last told to wait for an answer
        self._rest_until = 0.0  # after the disk refused
        self._read: ReadTask | None = None
        # The task whose numbers are of the ratings at this version of the store.
        self._checked: tuple[bytes, tuple[int, ...]] | None = None

    def __repr__(self) -> str:
        return f"Reports({self._store!r})"

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
        read = read_task(self._held[1])
        if read.id.hex() != file.sha256:
            raise ProtocolError(
                "refused: the task is not the one that the index names (its id differs)"
            )
        check_period(self._store, read.task, now, known.until)
        check_task(self._store, read)
        collector = collector_digest(read.task.collector)
        if known.collector not in (b"", collector):
            raise ProtocolError("refused: the sums would go to somebody else than those before")
        if known.task or self._had_enough(read, known, now):
            return  # its time comes when the one under way, or a day, is over
        if not self._owner_agrees(read):
            return  # looked at again when the index is, for as long as the task lasts
        state = TaskState(moment=self._draw(read, now))
        first = self._first(read, now)
        # Another moment, before the report's.
        state.token_at = first + self._setup.uniform() * max(state.moment - first, 0.0)
        with self._store.transaction():
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
        self._told = read.id
        return True

    def _owner_agrees(self, read: ReadTask) -> bool:
        """Return True if the owner consents. No answer yet is no lasting refusal of the task."""
        try:
            require_consent(self._store, read.question(self._setup.recommender), read.id)
        except DeclinedError as error:
            if read.id != self._told:
                self._setup.log(f"Task {read.id.hex()[:8]}: {error}.")
            self._told = read.id
            return False
        return True

    # When

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
            state.built and (self._lacks_token(read, state) or self._is_current(read))
        )
        return now >= read.task.end or (looked_at and now >= self._due(read, state, now))

    def go_on(self) -> None:
        """Make it, send it, or give it up, if it is time for that."""
        task, opened, now = self.book.state().task, self._opened(), self._setup.clock()
        if opened is None:
            if task:  # the owner has forgotten the runs under way
                self.book.end(task)
            return
        if now < max(self._due(*opened, now), min(self._rest_until, now + _AFTER_ERROR)):
            return
        try:
            self._bring_forward(*opened, now)
        except HdpmfError:
            # the disk refused, or another process was here; what is in the store holds
            self._rest_until = now + _AFTER_ERROR
            raise

    def _draw(self, read: ReadTask, now: float) -> float:
        """Draw a moment from the rest of a task's period."""
        first = self._first(read, now)
        return first + self._setup.uniform() * _LATEST * (read.task.end - first)

    def _first(self, read: ReadTask, now: float) -> float:
        """Return the first moment that may be drawn: until then everything is made."""
        begin = max(now, read.task.begin)
        lead = 0.0 if self._setup.simulation else min(_LEAD, (read.task.end - begin) / 20)
        return begin + lead

    def _due(self, read: ReadTask, state: TaskState, now: float) -> float:
        """Return the time at which there is something to do for a task."""
        # Or the clock was put back.
        again = state.retry_at if state.retry_at <= now + 2 * LONGEST_WAIT else now
        if state.built and self._lacks_token(read, state):
            again = max(state.token_at, again)
        elif state.built and not state.left:
            again = max(state.moment, again) - (0.0 if self._is_current(read) else _AHEAD)
        return min(again, read.task.end)

    def _opened(self) -> tuple[ReadTask, TaskState] | None:
        """The task under way."""
        task = self.book.state().task
        kept = self.book.load(task) if task else None
        if kept is None:
            return None
        if self._read is None or self._read.id != task:
            self._read = read_task(kept[1])
        return self._read, kept[0]

    # What

    def _bring_forward(self, read: ReadTask, state: TaskState, now: float) -> None:
        if now >= read.task.end:
            self._give_up(read, state, "its time is over")
            return
        try:
            if state.left:
                self._tell_what_left(read)
            else:
                self._require_agreement(read)
                if state.built and self._lacks_token(read, state):
                    self._ask_for_token(read, state, now)
                    return
                if not (state.built and self._is_current(read)):
                    self._prepare(read, state)
                first = max(state.moment, state.retry_at)
                if self._lacks_token(read, state) or self._setup.clock() < first:
                    return
            self._send(read, state, now)
        except HdpmfError as error:
            if state.left:
                raise
            if isinstance(error, UnansweredError):
                self._ask_again(read, state)
                return
            if reason_of(error) in _MAY_PASS:
                raise
            self._give_up(read, state, f"it is refused ({error})")

    def _tell_what_left(self, read: ReadTask) -> None:
        """Tell an owner who has changed their mind that it is too late for this task."""
        try:
            self._require_agreement(read)
        except DeclinedError as error:
            self._setup.log(
                f"Task {read.id.hex()[:8]}: {error}; but its report had left before, and is paid."
            )

    def _require_agreement(self, read: ReadTask) -> None:
        """Raise DeclinedError unless the owner agrees now."""
        check_servers(self._store, read.task.servers)
        require_agreement(self._store, read.question(self._setup.recommender), read.id)

    def _ask_again(self, read: ReadTask, state: TaskState) -> None:
        """Put a task before the owner that was taken before the owner wanted to be asked."""
        with self._store.transaction():
            self.book.require(read.id, state)
            self._return_held(read, state, "the owner wants to be asked, and nothing had left")
            self.book.release(read.id, read.task.begin)
            ask_owner(self._store, read.question(self._setup.recommender))
        self._setup.log(f"Task {read.id.hex()[:8]}: it waits for the owner's answer.")

    def _is_current(self, read: ReadTask) -> bool:
        """Return True if nobody has written to the store since the ratings were looked at."""
        return self._checked == (read.id, self._store.ratings_version())

    def _prepare(self, read: ReadTask, state: TaskState) -> None:
        """Make it, or see that it is of the ratings and weights as they are now.

        ``state`` is changed as the store is. This takes longer for more ratings, so that nothing
        leaves right after it.
        """
        version, made_anew = self._store.ratings_version(), False
        if state.built:
            now_paying = paying_ratings(self._store, read.id, read.terms)
            if now_paying.content != state.content:
                self._discard(read, state)
                made_anew = True
        if not state.built:
            self._make(read, state)
        self._checked = read.id, version
        after = self._setup.clock() + (0.0 if self._setup.simulation else _SETTLE)
        lacks = self._lacks_token(read, state)
        if (state.token_at if lacks else max(state.moment, state.retry_at)) >= after:
            return
        shortly = min(_SOON, read.task.end - after) * self._setup.uniform()
        moment = self._draw(read, after) if made_anew else after + _LATEST * shortly
        with self._store.transaction():
            self.book.require(read.id, state)
            self._keep(read, state, **{"token_at" if lacks else "moment": moment}, retry_at=0.0)

    def _make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, hold what they cost, and keep the report, in one commit.

        ``state`` is changed as the store is.
        """
        store, task = self._store, read.task
        check_task(store, read)  # its owner may have changed the policy since the task came
        taken = choose(store, read.terms, self._setup.recommender)
        part = participation(store, taken.positions, units_paid(taken.pays, read.terms))
        client = OneRoundClient(
            part.ratings,
            part.weights,
            self._setup.noise,
            epsilon=read.terms.epsilon,
            catalogue=read.terms.catalogue,
            simulation=self._setup.simulation,
        )
        client.accept(read.survey)
        (entries,) = client.entries(1)
        # The report carries the task's begin, so that it does not tell when it was made.
        blinded = self._blinded(read)
        name = secrets.token_bytes(REPORT_ID_SIZE) if blinded is None else blinded.report_id
        shares = split_report(prio_of(task, read.id), entries, name, at=task.begin)
        with store.transaction():
            self.book.require(read.id, state)
            if store.ratings() is not part.table:  # who pays is who is in the report
                raise DeclinedError(
                    "busy", "the owner has just changed ratings; the report is made again"
                )
            words = agreed_words(read.terms, task.servers)
            charge(store, self._entry(read, "agreed", words), taken)
            self.book.put_shares(read.id, shares)
            if blinded is not None:
                self.book.put_blinded(read.id, blinded)
            self._keep(read, state, built=True, content=part.content)

    def _discard(self, read: ReadTask, state: TaskState) -> None:
        """Throw away what nothing has left of; what was held for it is given back."""
        words = "the owner has changed ratings of the report, not sent yet; it is made again"
        with self._store.transaction():
            self.book.require(read.id, state)
            self._return_held(read, state, words)
            self.book.drop_report(read.id)
            self._keep(read, state, built=False, content=b"")

    def _return_held(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give back what is held for a report that has not left."""
        if state.built:
            self._store.ledger.give_back(self._entry(read, "returned", words), 1.0)

    def _give_up(self, read: ReadTask, state: TaskState, why: str) -> None:
        """The task is over here. What provably never left is not paid."""
        with self._store.transaction():
            self.book.require(read.id, state)
            if not state.left:
                leader = read.task.servers.leader.organisation
                words = f"{why}, and no connection to {leader} was open until then"
                self._return_held(read, state, words)
            self._end(read)
        self._setup.log(f"Task {read.id.hex()[:8]}: {why}; it is not reported in any more.")

    def _end(self, read: ReadTask) -> None:
        """Drop a task, and an agreement for once."""
        self.book.end(read.id)
        end_consent(self._store, read.id)

    # Tokens

    def _blinded(self, read: ReadTask) -> BlindedToken | None:
        """Return the request for a token: one in a task, also for a report made anew."""
        if not read.task.token_key:
            return None
        return self.book.blinded(read.id) or token_request(read.task, read.id)

    def _lacks_token(self, read: ReadTask, state: TaskState) -> bool:
        return bool(read.task.token_key) and not (state.left or state.has_token)

    def _ask_for_token(self, read: ReadTask, state: TaskState, now: float) -> None:
        """Ask the recommender for the report's token, always by the same bytes.

        This depends on no rating, and comes in a step of its own. Nothing leaves soon after it: of
        two who compare times one should not know the other's.

        Raises:
            ProtocolError: The recommender refuses, or gives something that is no token.
        """
        task = read.task
        blinded = self.book.blinded(read.id)
        if blinded is None:
            raise StorageError("a request for a token is not in the store: it is damaged")
        path = TOKENS_PATH.format(task_id=id_to_text(read.id))
        headers = token_headers(self._store.identity, read.id, blinded.request)
        try:
            status, body = self._carrier.request_token(path, headers, blinded.request)
        except TransportError as error:
            self._wait(read, state, now, str(error))
            return
        if status in REFUSED:
            raise ProtocolError(f"refused: the recommender gives no token (answer {status})")
        if status != HTTPStatus.OK:
            self._wait(read, state, now, f"its answer was {status}")
            return
        token = blinded.finish(TokenKey(task.token_key), token_challenge(task, read.id), body)
        with self._store.transaction():
            self.book.require(read.id, state)
            self.book.put_token(read.id, token)
            moment = self._draw(read, now) if state.moment <= now else state.moment
            self._keep(read, state, has_token=True, moment=moment, tries=0, retry_at=0.0)
        self._setup.log(
            f"Task {read.id.hex()[:8]}: {self._setup.recommender} gave a token, signed blindly: it "
            "knows that this device takes part, and not which report is its."
        )

    # Sending

    def _send(self, read: ReadTask, state: TaskState, now: float) -> None:
        """Send it. The task ends once it was taken or refused.

        ``state`` is changed as the store is.
        """
        if not state.left and not self._is_current(read):
            return
        kept = self.book.report(read.id)
        servers = read.task.servers
        try:
            body = kept
            if body is None:  # to the newest keys; TransportError while there are none that hold
                configs = self._keys.configs(servers, self._setup.clock())
                body = sealed_report(self.book.shares(read.id), read.id, configs)
            path = REPORTS_PATH.format(task_id=id_to_text(read.id))
            headers = report_headers(self.book.token(read.id) if read.task.token_key else None)
            leaving = partial(self._leaves, read, state, body, fresh=kept is None)
            status = self._carrier.upload(servers.leader, path, headers, body, leaving)
        except OutdatedError:
            return  # it is looked at again in the next step
        except TransportError as error:
            self._wait(read, state, now, str(error))
            return
        if not (200 <= status < 300 or status in REFUSED):
            self._wait(read, state, now, f"its answer was {status}")
            if status == _BAD_REQUEST and not self._keys.can_open(servers, body):
                self.book.seal_anew(read.id)
            return
        self._taken(read, state, status)

    def _leaves(self, read: ReadTask, state: TaskState, body: bytes, *, fresh: bool) -> None:
        """A connection is open: from here on bytes may have left, if the owner still agrees.

        Bytes that were just sealed (``fresh``) are kept.
        """
        with self._store.transaction():
            if not state.left:
                self._require_agreement(read)
                if not self._is_current(read):
                    raise OutdatedError("busy", "something was changed here in this moment")
                self._pay(read, state)
            if fresh:
                self.book.put_report(read.id, body)

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        """Pay what was held, in the commit after which the first byte leaves."""
        servers = read.task.servers
        words = f"a report, in shares for {servers.names} (digest {servers.digest})"
        self.book.require(read.id, state)
        self._store.ledger.note(self._entry(read, "sent", words), first=True)
        self._keep(read, state, left=True)
        self.book.change(
            survey=encode(read.survey),
            terms=read.terms,
            reported=read.id,
            model=facts_digest(self._store),
        )

    def _taken(self, read: ReadTask, state: TaskState, status: int) -> None:
        servers = read.task.servers
        said = f"reported to the servers of {servers.names}"
        with self._store.transaction():
            self.book.require(read.id, state)
            if status in REFUSED:
                leader = servers.leader.organisation
                said = f"{leader} refused a report (its answer was {status})"
                self._store.ledger.note(self._entry(read, "refused", said))
            self._end(read)
        self._setup.log(f"Task {read.id.hex()[:8]}: {said}.")

    def _wait(self, read: ReadTask, state: TaskState, now: float, why: str) -> None:
        """Try the same bytes again later."""
        wait = backoff(state.tries, _FIRST_WAIT, LONGEST_WAIT, self._setup.uniform)
        with self._store.transaction():
            self.book.require(read.id, state)
            self._keep(read, state, tries=state.tries + 1, retry_at=now + wait)
        who = f"{read.task.servers.leader.organisation} did not take the report"
        if self._lacks_token(read, state):
            who = f"{self._setup.recommender} did not give a token"
        self._setup.log(f"Task {read.id.hex()[:8]}: {who} yet ({why}).")

    def _keep(self, read: ReadTask, state: TaskState, **changes: object) -> None:
        for name, value in changes.items():
            setattr(state, name, value)
        self.book.save(read.id, state)

    def _entry(self, read: ReadTask, action: Action, words: str) -> Entry:
        return entry_of(read.terms, action, words, recommender=self._setup.recommender, run=read.id)


def _within_a_day(taken: tuple[float, ...], now: float) -> tuple[float, ...]:
    """Return the times of the last day; where the clock was put back they are of now."""
    return tuple(min(at, now) for at in taken if at > now - DAY)
