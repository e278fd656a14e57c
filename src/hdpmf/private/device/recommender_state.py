"""Protocol state that outlives a process: tasks, and what is kept per recommender.

A kill at any moment neither pays twice nor sends two different reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from hdpmf.common.aggregation.two_servers.tokens import BlindedToken, Token
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.protocol.servers import Collector
from hdpmf.errors import StorageError
from hdpmf.private.client.outgoing import SplitReport
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import AgreedTask, RecommenderState
from hdpmf.private.device.store.tables import decoded

DAY = 86_400.0


@dataclass(frozen=True, slots=True, repr=False)
class Setup:
    """The setup that a participant gives to its parts.

    Attributes:
        recommender: Whose tasks these are, for the ledger.
        noise: Where noise comes from; only ``ReleasedNoise`` where anything leaves this process.
        simulation: Seeded noise is allowed; nothing leaves this process.
        log: Called with lines for the owner. They hold no rating.
        clock: What time it is (Unix).
        uniform: A random number from 0 to 1, which moments and waits are drawn by.
    """

    store: DeviceStore
    recommender: str
    noise: Noise
    simulation: bool
    log: Callable[[str], None]
    clock: Callable[[], float]
    uniform: Callable[[], float]


_TASK = b"task"
_TOKEN, _BLINDED, _SHARES, _REPORT = b"token", b"blinded", b"shares", b"report"


class TaskState(msgspec.Struct, kw_only=True):
    """The progress of a task. The report itself is kept beside it, sealed. PRIVATE.

    Attributes:
        moment: When the report leaves, drawn when the task came.
        token_at: When its token is asked for, drawn with it: earlier, and by ratings neither.
        has_token: The token is here.
        built: Ratings are held for it, and the report is kept here.
        content: Of what it was made (`Participation.content`).
        left: A connection was open, so that the report may have left.
        tries: How often the leader could not be reached, or was not ready, one after another.
        retry_at: Not before this time again.
    """

    moment: float
    token_at: float = 0.0
    has_token: bool = False
    built: bool = False
    content: bytes = b""
    left: bool = False
    tries: int = 0
    retry_at: float = 0.0


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
        found = self._store.runs.load(task_id)
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

    def blinded(self, task_id: bytes) -> BlindedToken | None:
        """The request for the report's token; None if there is none yet."""
        data = self._store.runs.get_part(_tokens(task_id), _BLINDED)
        return None if data is None else decoded(data, BlindedToken, "runs")

    def put_blinded(self, task_id: bytes, blinded: BlindedToken) -> None:
        """Keep the request for a token, so that no other is ever asked for."""
        data = msgspec.msgpack.encode(blinded)
        self._store.runs.put_part(_tokens(task_id), _BLINDED, data)

    def put_token(self, task_id: bytes, token: Token) -> None:
        """Keep the token."""
        self._store.runs.put_part(_tokens(task_id), _TOKEN, token.encode())

    def token(self, task_id: bytes) -> Token:
        """The token of the report."""
        data = self._store.runs.get_part(_tokens(task_id), _TOKEN)
        if data is None:
            raise StorageError("a token that is to be used is not in the store: it is damaged")
        return Token.decode(data)

    def put_shares(self, task_id: bytes, shares: SplitReport) -> None:
        """Keep the report before it is encrypted."""
        self._store.runs.put_part(task_id, _SHARES, msgspec.msgpack.encode(shares))

    def shares(self, task_id: bytes) -> SplitReport:
        """The report before it is encrypted."""
        data = self._store.runs.get_part(task_id, _SHARES)
        if data is None:
            raise StorageError("a report that is to be sent is not in the store: it is damaged")
        return decoded(data, SplitReport, "runs")

    def put_report(self, task_id: bytes, report: bytes) -> None:
        """Keep the report as it leaves."""
        self._store.runs.put_part(task_id, _REPORT, report)

    def report(self, task_id: bytes) -> bytes | None:
        """The report as it has left before; None if it has not, or is to be sealed anew."""
        return self._store.runs.get_part(task_id, _REPORT)

    def seal_anew(self, task_id: bytes) -> None:
        """Forget how the report was encrypted."""
        with self._store.transaction():
            self._store.runs.delete_part(task_id, _REPORT)

    def drop_report(self, task_id: bytes) -> None:
        """The report is not needed any more."""
        self._store.runs.delete_part(task_id, _SHARES)
        self._store.runs.delete_part(task_id, _REPORT)


def collector_digest(collector: Collector) -> bytes:
    """Return the digest of a collector."""
    return sha256(b"hdpmf collector " + msgspec.json.encode(collector)).digest()


def _tokens(task_id: bytes) -> bytes:
    """Return the run that tokens of a task are kept under: they outlive a question to the owner."""
    return sha256(b"hdpmf tokens " + task_id).digest()
