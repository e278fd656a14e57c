"""Protocol state that outlives a process: runs, report tasks, and what is kept per recommender.

A kill at any moment neither pays twice nor sends two different reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec

from hdpmf.common.aggregation.two_servers.tokens import BlindedToken, Token
from hdpmf.common.protocol import Message, Terms, decode
from hdpmf.common.protocol.servers import Collector
from hdpmf.errors import StorageError
from hdpmf.private.client.outgoing import SplitReport
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import AgreedTask, RecommenderState
from hdpmf.private.device.store.tables import decoded

MAX_OPEN = 8
"""Runs under way with a recommender at a time. Terms cost nothing, so that a recommender could
send any number.
"""

M = TypeVar("M")


class RunState(msgspec.Struct, kw_only=True):
    """The progress of a run. PRIVATE.

    No rating, weight or item is in it; the client's part has the user vectors.

    Attributes:
        terms: What was agreed to, encoded.
        plan: The Plan or the Survey, encoded.
        opening: The Opening or the Grouping, encoded.
        labels: The taste labels that were drawn, a byte for each user.
        seed: Of the first user vectors.
        charged: The ratings that take part have paid.
        taking_part: Digest of which ones they are.
        number: The last round that was answered.
        summed: The last job whose numbers went into a secure sum; -1 for none.
    """

    recommender: str
    terms: bytes
    plan: bytes | None = None
    opening: bytes | None = None
    labels: bytes | None = None
    seed: int = 0
    charged: bool = False
    taking_part: bytes = b""
    number: int = 0
    summed: int = -1
    client: bytes | None = None
    over: bool = False

    def __repr__(self) -> str:
        return f"RunState(number {self.number}, {'over' if self.over else 'under way'})"

    def encode(self) -> bytes:
        """Return the state as bytes."""
        return msgspec.msgpack.encode(self)


def read_state(data: bytes) -> RunState:
    """Decode a state that was kept."""
    return decoded(data, RunState, "runs")


def kept(data: bytes | None, kind: type[M]) -> M | None:
    """A message that was kept, if it is of this kind."""
    message: Message | None = None if data is None else decode(data)
    return message if isinstance(message, kind) else None


def view_of(state: RunState) -> str:
    """Return the view of a run's recommender."""
    terms = kept(state.terms, Terms)
    return "nothing" if terms is None else terms.view


def open_runs(store: DeviceStore) -> list[bytes]:
    """Return the runs under way, oldest first."""
    return list(store.device.open_runs)


def set_open(store: DeviceStore, runs: list[bytes]) -> None:
    """Keep which runs are under way."""
    store.change_device(open_runs=tuple(runs))


_TASK, _USERS = b"task", b"users"


class TaskState(msgspec.Struct, kw_only=True):
    """The progress of a task. The reports themselves are kept beside it, sealed. PRIVATE.

    Attributes:
        moment: When the report leaves, drawn when the task came.
        token_at: When tokens are asked for, drawn with it: earlier, and by ratings neither.
        tokens: Tokens that are here, of users from the first on.
        run: The run that ratings pay in.
        built: Ratings are held for it, and the reports are kept here.
        content: Of what they were made (`Participation.content`).
        unsent: Which of the reports (one for each user) the leader has not taken.
        left: A connection was open, so that a report may have left.
        begun: Users, from the first on, whose reports may have left. With ``left`` and none it was
            written by a version that did not tell them apart: then all of them may have.
        tries: How often the leader could not be reached, or was not ready, one after another.
        retry_at: Not before this time again.
    """

    moment: float
    run: bytes
    token_at: float = 0.0
    tokens: int = 0
    built: bool = False
    content: bytes = b""
    unsent: tuple[int, ...] = ()
    left: bool = False
    begun: int = 0
    tries: int = 0
    retry_at: float = 0.0

    def may_have_left(self, user: int) -> bool:
        """Return True if bytes of a user's report may have left."""
        return self.left and (not self.begun or user < self.begun)

    @property
    def is_out(self) -> bool:
        """True if bytes of all reports may have left, so that nothing can be taken back."""
        return self.left and all(map(self.may_have_left, self.unsent))


class RecommenderStates:
    """The state of one recommender and its task under way, in the device's store.

    It is read anew each time.
    """

    def __init__(self, store: DeviceStore, recommender: str) -> None:
        self._store = store
        self._recommender = recommender

    def state(self) -> RecommenderState:
        """Return the recommender's state."""
        found = self._store.tables.recommender_states.find(self._recommender)
        return RecommenderState(recommender=self._recommender) if found is None else found

    def change(self, **changes: object) -> None:
        """Change fields of the recommender's state."""
        with self._store.transaction():
            changed = msgspec.structs.replace(self.state(), **changes)
            self._store.tables.recommender_states.put(changed)

    def begin(
        self, task_id: bytes, state: TaskState, document: bytes, end: int, now: float
    ) -> None:
        """Keep a task that was agreed to, and its id at least as long as it may come again."""
        agreed = self._store.tables.agreed_tasks
        for task in agreed.rows():
            if task.end <= now:
                agreed.delete(task.id)
        agreed.put(AgreedTask(id=task_id, end=end))
        self._store.runs.put_part(task_id, _TASK, document)
        self.save(task_id, state)

    def knows(self, task_id: bytes) -> bool:
        """Return True if a task was agreed to before, whichever recommender published it."""
        return self._store.tables.agreed_tasks.find(task_id) is not None

    def load(self, task_id: bytes) -> tuple[TaskState, bytes] | None:
        """A task that was agreed to, and its document; None if the owner forgot it."""
        data, document = self._store.runs.load(task_id), self._store.runs.get_part(task_id, _TASK)
        if data is None or document is None:
            return None
        return (decoded(data, TaskState, "runs"), document)

    def save(self, task_id: bytes, state: TaskState) -> None:
        """Keep how far it is."""
        self._store.runs.save(task_id, msgspec.msgpack.encode(state))

    def require(self, task_id: bytes, state: TaskState) -> None:
        """Raise DeclinedError if the task was changed or dropped meanwhile.

        The caller is inside a transaction.
        """
        found = self._store.runs.load(task_id)  # maybe of a version that had fewer fields
        if found is None or decoded(found, TaskState, "runs") != state:
            raise DeclinedError("busy", "another process, or the owner, has changed this task")

    def release(self, task_id: bytes, begin: int) -> None:
        """Drop a task that no report left for, so that it is asked about again while it lasts.

        Its tokens stay: there are no others.
        """
        self._drop(task_id)
        self._store.tables.agreed_tasks.delete(task_id)
        self.change(until=begin)  # no earlier task was agreed to beyond that

    def end(self, task_id: bytes) -> None:
        """Drop a task and what is left of its reports."""
        self._store.runs.drop(_tokens(task_id))
        self._drop(task_id)

    def _drop(self, task_id: bytes) -> None:
        self._store.runs.drop(task_id)
        if self.state().task == task_id:
            self.change(task=b"")

    def blinded(self, task_id: bytes, user: int) -> BlindedToken | None:
        """The request for the token of a user's report; None if there is none yet."""
        data = self._store.runs.get_part(_tokens(task_id), _blinded(user))
        return None if data is None else decoded(data, BlindedToken, "runs")

    def put_blinded(self, task_id: bytes, user: int, blinded: BlindedToken) -> None:
        """Keep the request for a token, so that no other is ever asked for."""
        self._store.runs.put_part(_tokens(task_id), _blinded(user), msgspec.msgpack.encode(blinded))

    def put_token(self, task_id: bytes, user: int, token: Token) -> None:
        """Keep a token."""
        self._store.runs.put_part(_tokens(task_id), _token(user), token.encode())

    def token(self, task_id: bytes, user: int) -> Token:
        """The token of a user's report."""
        data = self._store.runs.get_part(_tokens(task_id), _token(user))
        if data is None:
            raise StorageError("a token that is to be used is not in the store: it is damaged")
        return Token.decode(data)

    def put_shares(self, task_id: bytes, user: int, shares: SplitReport) -> None:
        """Keep a user's report before it is encrypted."""
        self._store.runs.put_part(task_id, _shares(user), msgspec.msgpack.encode(shares))

    def shares(self, task_id: bytes, user: int) -> SplitReport:
        """A user's report before it is encrypted."""
        data = self._store.runs.get_part(task_id, _shares(user))
        if data is None:
            raise StorageError("a report that is to be sent is not in the store: it is damaged")
        return decoded(data, SplitReport, "runs")

    def put_report(self, task_id: bytes, user: int, report: bytes) -> None:
        """Keep a user's report as it leaves."""
        self._store.runs.put_part(task_id, _report(user), report)

    def report(self, task_id: bytes, user: int) -> bytes | None:
        """A user's report as it has left before; None if it has not, or is to be sealed anew."""
        return self._store.runs.get_part(task_id, _report(user))

    def seal_anew(self, task_id: bytes, user: int) -> None:
        """Forget how a report was encrypted. One of version 1.0.0 stays: it has no shares here."""
        with self._store.transaction():
            if self._store.runs.get_part(task_id, _shares(user)) is not None:
                self._store.runs.delete_part(task_id, _report(user))

    def put_users(self, task_id: bytes, users: Sequence[str]) -> None:
        """Keep whose reports they are, by their numbers."""
        self._store.runs.put_part(task_id, _USERS, msgspec.msgpack.encode(users))

    def users(self, task_id: bytes) -> list[str]:
        """Return the users that have ratings, by the numbers of their reports."""
        data = self._store.runs.get_part(task_id, _USERS)
        return [] if data is None else decoded(data, list[str], "runs")

    def drop_report(self, task_id: bytes, user: int) -> None:
        """A report is not needed any more."""
        self._store.runs.delete_part(task_id, _shares(user))
        self._store.runs.delete_part(task_id, _report(user))


def collector_digest(collector: Collector) -> bytes:
    """Return the digest of a collector."""
    return sha256(b"hdpmf collector " + msgspec.json.encode(collector)).digest()


def _report(user: int) -> bytes:
    return b"report" + user.to_bytes(8, "big")


def _shares(user: int) -> bytes:
    return b"shares" + user.to_bytes(8, "big")


def _tokens(task_id: bytes) -> bytes:
    """Return the run that tokens of a task are kept under: they outlive a question to the owner."""
    return sha256(b"hdpmf tokens " + task_id).digest()


def _blinded(user: int) -> bytes:
    return b"blinded" + user.to_bytes(8, "big")


def _token(user: int) -> bytes:
    return b"token" + user.to_bytes(8, "big")
