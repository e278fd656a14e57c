"""The tasks of a server, its keys, and its rules for accepting tasks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from hdpmf.common.aggregation.two_servers.dap.hpke import is_supported
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HpkeConfig,
    Problem,
    ReportError,
    Role,
    TaskConfiguration,
)
from hdpmf.common.aggregation.two_servers.prio import SEED_SIZE, Prio3
from hdpmf.common.aggregation.two_servers.tokens import TokenKey
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.identity import PartyKey, verify_key
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.common.protocol.task import (
    Pairs,
    Task,
    configuration_of,
    prio_of,
    read_task,
    task_id,
    token_challenge,
)
from hdpmf.errors import ConfigError, DapError, HdpmfError, ProtocolError, needs
from hdpmf.untrusted.aggregator.datastore import (
    ReportState,
    ServerDatabase,
    accumulators,
    answers,
    batches,
    collections,
    jobs,
    lock_task,
    payloads,
    reports,
    tasks,
)
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing

with needs("sqlalchemy"):
    import sqlalchemy as sa


ServerRole = Literal["leader", "helper"]


@dataclass(frozen=True)
class ServerKeys:
    """A server's keys and the two cards.

    Attributes:
        party: Authenticates it to servers and collectors.
        hpke: Decrypt shares.
        own: Its card.
        partner: The other server's card, as it was pinned.
    """

    role: ServerRole
    party: PartyKey = field(repr=False)
    hpke: HpkeKeyRing = field(repr=False)
    own: Server
    partner: Server

    def __post_init__(self) -> None:
        if self.own.identity != self.party.public or not self.hpke.is_on(self.own):
            raise ConfigError("the card of this server does not show its keys; write it again")
        _ = self.servers  # raises unless they are two

    @cached_property
    def servers(self) -> Servers:
        """The pair, as devices pin it."""
        leader, helper = (
            (self.own, self.partner) if self.role == "leader" else (self.partner, self.own)
        )
        return Servers(leader=leader, helper=helper)

    @property
    def dap_role(self) -> Role:
        """The role in DAP's numbers."""
        return Role.LEADER if self.role == "leader" else Role.HELPER

    @property
    def index(self) -> int:
        """Index of this server's share."""
        return 0 if self.role == "leader" else 1

    def verify_key(self, task_id: bytes, size: int) -> bytes:
        """Derive a task's verify key; only the partner can derive the same one."""
        return verify_key(self.party, self.partner.identity, task_id, size)


MOST_HEADS = 300
"""Of a task: participants take no more."""

_LATE = 86_400  # seconds after a task's begin
_METADATA = 16 + 8 + 2 + 4  # report id, time, no extensions, length of the public share
_CIPHERTEXT = 1 + 2 + 32 + 4 + 16  # config id, key of X25519, length, tag of AES-GCM
_PLAINTEXT = 2 + 4  # no extensions, length
_SMALLEST_SKEW = 5.0


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions for the tasks that a server accepts; the ``[tasks]`` of its configuration file."""

    simulation: ClassVar[bool] = False
    minimum: Annotated[
        int, Meta(description="Fewest reports of any sum, for its use; the noise protects people.")
    ] = 10
    most_items: Annotated[int, Meta(description="Most items of a task.")] = 200_000
    skew: Annotated[float, Meta(description="Seconds that devices' clocks may be ahead.")] = 300.0
    partner_skew: Annotated[
        float,
        Meta(description="Seconds that the two servers' clocks may differ; beyond: no reports."),
    ] = 60.0
    keep: Annotated[
        float, Meta(description="Seconds after its end in which a task can be collected.")
    ] = 30 * 86_400.0
    lease: Annotated[
        float, Meta(description="Seconds after which another worker takes over a job.")
    ] = 60.0

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ConfigError(
                "minimum must be 2 or more: of one report a sum says little but noise"
            )
        if not self.partner_skew >= _SMALLEST_SKEW:
            raise ConfigError(
                f"partner_skew must be {_SMALLEST_SKEW:.0f} seconds or more: clocks are compared "
                "by HTTP, to the second"
            )


class SimulationRules(Rules, frozen=True, kw_only=True):
    """Rules with which noise may be seeded. Nothing of a simulation may leave the machine."""

    simulation: ClassVar[bool] = True


@dataclass(frozen=True)
class AggregatorTask:
    """A task that a server takes part in.

    Attributes:
        number: Row number in the database.
        key: The servers' verify key.
        collector: The key that sums are encrypted to.
    """

    number: int
    id: bytes
    document: Task = field(repr=False)
    prio: Prio3 = field(repr=False)
    key: bytes = field(repr=False)
    collector: HpkeConfig = field(repr=False)

    @cached_property
    def token_key(self) -> TokenKey:
        """The key that tokens of enrolled devices are checked with."""
        return TokenKey(from_base64(self.document.token_key))

    @cached_property
    def token_challenge(self) -> bytes:
        """The digest in tokens for this task."""
        return token_challenge(self.document, self.id)

    @cached_property
    def configuration(self) -> TaskConfiguration:
        """What DAP calls its configuration."""
        return configuration_of(self.document, self.id)

    @cached_property
    def report_size(self) -> int:
        """Size of every report in bytes, whatever its content."""
        return _METADATA + self.public_share_size + self._share_size(0) + self._share_size(1)

    @cached_property
    def verify_init_size(self) -> int:
        """Size of every report in an aggregation job, in bytes."""
        message = 4 + 1 + 4 + self.prio.prepare_share_size
        return _METADATA + self.public_share_size + self._share_size(1) + message

    def _share_size(self, server: int) -> int:
        return _CIPHERTEXT + _PLAINTEXT + self.prio.input_share_size(server)

    @property
    def public_share_size(self) -> int:
        """Size of the public share in bytes."""
        return self.prio.public_share_size


class TaskStore:
    """The tasks in a server's database."""

    def __init__(
        self, database: ServerDatabase, keys: ServerKeys, rules: Rules, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._open: dict[bytes, AggregatorTask] = {}
        self._purged: set[int] = set()

    def add(self, document: bytes) -> bytes:
        """Add a task and return its id. Idempotent."""
        found_id = task_id(document)
        with self._database.read() as connection:
            found = connection.execute(
                sa.select(tasks.c.number).where(tasks.c.id == found_id)
            ).scalar()
        if found is None:
            task = self._accept(document)
            row = {"id": found_id, "document": document, "end": task.end, "purged": False}
            with self._database.write() as connection:
                connection.execute(self._database.insert(tasks).on_conflict_do_nothing(), row)
        return found_id

    def get(self, found_id: bytes) -> AggregatorTask:
        """Return a task by its id; raise DapError if it is unknown."""
        found = self._open.get(found_id)
        if found is None:
            with self._database.read() as connection:
                row = connection.execute(
                    sa.select(tasks).where(tasks.c.id == found_id)
                ).one_or_none()
            if row is None:
                raise DapError(
                    "this server does not take part in the task", Problem.UNRECOGNIZED_TASK
                )
            found = self._open[found_id] = self._load(row)
        return found

    def by_number(self, number: int, connection: sa.Connection) -> AggregatorTask:
        """Return a task by its row number."""
        for task in list(self._open.values()):
            if task.number == number:
                return task
        row = connection.execute(sa.select(tasks).where(tasks.c.number == number)).one()
        found = self._open[row.id] = self._load(row)
        return found

    def ids(self) -> list[bytes]:
        """Return the ids of all tasks, oldest first."""
        with self._database.read() as connection:
            return list(
                connection.execute(sa.select(tasks.c.id).order_by(tasks.c.number)).scalars()
            )

    def row_numbers(self, connection: sa.Connection) -> list[int]:
        """Return the row numbers of tasks that are not purged."""
        live = sa.select(tasks.c.number).where(tasks.c.purged.is_(False)).order_by(tasks.c.number)
        return list(connection.execute(live).scalars())

    def expired(self, task: AggregatorTask) -> bool:
        """Return True if the task can no longer be collected, or was purged by this process."""
        late = self._clock() >= task.document.end + self._rules.keep
        return late or task.number in self._purged

    def require_open(self, task: AggregatorTask) -> None:
        """Raise DapError if the task can no longer be collected."""
        purged = sa.select(tasks.c.purged).where(tasks.c.number == task.number)
        with self._database.read() as connection:
            over = connection.execute(purged).scalar()
        if over or self.expired(task):
            raise DapError("the task is over, and its reports are gone", Problem.BATCH_INVALID)

    def purge(self, connection: sa.Connection, number: int) -> None:
        """Delete all of a task but report ids, and take nothing of it any more."""
        lock_task(connection, number, alone=True)
        unchecked = sa.and_(reports.c.task == number, reports.c.state < ReportState.COUNTED)
        rejected = {"state": ReportState.REJECTED, "job": None}
        lost = connection.execute(sa.update(reports).where(unchecked), rejected).rowcount
        if lost:
            self._database.add_rejections(connection, number, int(ReportError.TASK_EXPIRED), lost)
        for table in (payloads, jobs, accumulators, answers, collections):
            connection.execute(sa.delete(table).where(table.c.task == number))
        released = {"checksum": b"", "share": b"", "other": None}
        connection.execute(sa.update(batches).where(batches.c.task == number), released)
        connection.execute(sa.update(tasks).where(tasks.c.number == number), {"purged": True})
        self._purged.add(number)

    def _load(self, row: Any) -> AggregatorTask:
        if row.purged:
            self._purged.add(row.number)
        task = read_task(row.document)
        prio = prio_of(task, row.id)
        key = self._keys.verify_key(row.id, SEED_SIZE)
        collector = HpkeConfig.decode(from_base64(task.collector.hpke))
        return AggregatorTask(row.number, row.id, task, prio, key, collector)

    def _accept(self, document: bytes) -> Task:
        task = read_task(document)
        rules = self._rules
        now = self._clock()
        items, most, what = _size(task, rules)
        late = now >= task.end or now >= task.begin + _LATE
        ours = task.servers == self._keys.servers
        _require(ours, "the task is for another pair of servers; compare their digests")
        enough = f"this server sums {rules.minimum} reports or more; ask for as many"
        _require(task.minimum >= rules.minimum, enough)
        _require(not late, "the task is over, or has begun more than a day ago; make a new one")
        _require(items <= most, f"this server takes {most:,} {what} at most")
        try:
            prio_of(task, task_id(document))
            supported = is_supported(HpkeConfig.decode(from_base64(task.collector.hpke)))
        except HdpmfError as error:
            raise ProtocolError(f"refused: {error}") from None
        _require(supported, "nothing can be encrypted to the collector's key; use X25519")
        return task


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise ProtocolError(f"refused: {why}")


def _size(task: Task, rules: Rules) -> tuple[int, int, str]:
    """Return how large a task is, how large it may be, and the unit."""
    if isinstance(task.sums, Pairs):
        return len(task.sums.heads), MOST_HEADS, "heads"
    return task.sums.items, rules.most_items, "items"
