"""The database of a server: tables and transactions on SQLite or PostgreSQL.

Both servers have the same tables; some stay empty at one of them. What is committed is on the disk
when ``write`` ends. Errors never contain what was written.

An old copy of a SQLite file is refused: a file beside it says how many transactions it had. With
PostgreSQL nobody but its operator knows of a restore. After any restore they begin a new *epoch*,
which ends all open tasks, here and at the other server: what was counted or released in them may be
forgotten here.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

from hdpmf.errors import ConfigError, StorageError, made_by_newer, needs

with needs("sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy import event, pool
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import SQLAlchemyError


_BYTES, _INT, _BIG = sa.LargeBinary(), sa.Integer(), sa.BigInteger()
_PLAIN = sa.types.NullType()  # bytes as the driver has them: LargeBinary copies them twice


class ReportState(IntEnum):
    """State of a report. Its id stays as long as its task, so that no report counts twice.

    The id is in the token of an enrolled device, so that no token counts twice either.
    """

    STORED = 0
    CLAIMED = 1
    COUNTED = 2
    REJECTED = 3


def _table(name: str, **columns: Any) -> sa.TableClause:
    """A table as statements know it; ``migrations`` make it, with its keys."""
    return sa.table(name, *(sa.column(column, kind) for column, kind in columns.items()))


# one row; partner_epoch: as the other server said it last; changes: SQLite's transactions
server = _table("server", role=sa.String(), epoch=_BIG, partner_epoch=_BIG, changes=_BIG)

tasks = _table("tasks", number=_INT, id=_BYTES, document=_BYTES, end=_BIG, purged=sa.Boolean())

# leader: the digest shows a repeat, the job is there while it is claimed
reports = _table(
    "reports", task=_INT, id=_BYTES, bucket=_BIG, state=_INT, digest=_BYTES, job=_BYTES
)

# leader: reports until they are counted, sealed; a table of its own, because rows above change
payloads = _table("payloads", task=_INT, report=_BYTES, body=_PLAIN)

# leader: what it asks the helper, until it is done; the lease is until when a worker has it
jobs = _table("jobs", id=_BYTES, task=_INT, lease=sa.Float())

# helper: what it answered, for as long as the task lives
answers = _table("answers", task=_INT, job=_BYTES, digest=_BYTES, response=_BYTES)

# the total is sealed
accumulators = _table(
    "accumulators", task=_INT, bucket=_BIG, shard=_INT, amount=_BIG, checksum=_BYTES, total=_BYTES
)

rejections = _table("rejections", task=_INT, reason=_INT, amount=_BIG)

# closed ones; first and last: the buckets that reports are in; share: noised and encrypted, what
# leaves, again and again; other: the helper's, at the leader
batches = _table(
    "batches",
    task=_INT,
    start=_BIG,
    duration=_BIG,
    amount=_BIG,
    checksum=_BYTES,
    first=_BIG,
    last=_BIG,
    share=_BYTES,
    other=_BYTES,
)

# leader: what the collector asked for
collections = _table(
    "collections", task=_INT, job=_BYTES, request=_BYTES, start=_BIG, duration=_BIG
)

_IN_MEMORY = "sqlite://"

_WAIT_MS = 60_000  # for another process that writes

_PAGE = 32_768  # reports are large: fewer pages to link

_LOG_PAGES = 4096  # 128 MiB: most reports are counted and gone before they are copied to the file

_POSTGRES_SHARDS = 8

_SCHEMA_LOCK = 0x68_64_70_6D_66  # any number that others do not lock


Timer = Callable[[str], AbstractContextManager[object]]


class ServerDatabase:
    """A server's database, which several processes may open.

    Args:
        url: ``sqlite:///path``, ``postgresql+psycopg://user:password@host/name``, or ``sqlite://``
            in memory.
        timer: Called with ``read`` or ``write``; what it returns is around each transaction.
        restored: Open an old copy of a SQLite file, too, in which a new epoch is about to begin.

    Attributes:
        shards: Rows that a sum is spread over, so that workers do not wait for each other.
    """

    def __init__(
        self, url: str = _IN_MEMORY, timer: Timer = nullcontext, *, restored: bool = False
    ) -> None:
        self._timer = timer
        parsed = sa.make_url(url)
        self._sqlite = parsed.drivername == "sqlite"
        self.in_memory = self._sqlite and parsed.database in (None, "", ":memory:")
        self._counter = None
        if self._on_disk:
            self._counter = _Counter(Path(parsed.database or ""), restored=restored)
        self.shards = 1 if self._sqlite else _POSTGRES_SHARDS
        self._turn = threading.RLock()
        options: dict[str, Any] = {"poolclass": pool.StaticPool} if self.in_memory else {}
        if self._sqlite:
            options["connect_args"] = {"check_same_thread": False, "timeout": _WAIT_MS / 1e3}
        else:
            options["pool_pre_ping"] = True
        with needs("psycopg", "servers"):
            if not self._sqlite:
                options["connect_args"] = {"cursor_factory": _binary_cursor()}
            self._engine = sa.create_engine(parsed, hide_parameters=True, **options)
        if self._sqlite:
            event.listen(self._engine, "connect", self._connected)
            event.listen(self._engine, "begin", _begin)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"ServerDatabase({self._engine.dialect.name})"

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Begin a durable transaction."""
        changes = None
        with (
            self._timer("write"),
            self._connection(writes=True) as connection,
            connection.begin(),
        ):
            if self._counter is None:
                yield connection
                return
            raw = _raw(connection.connection)
            before = raw.total_changes
            yield connection
            if raw.total_changes != before:
                one_more = sa.update(server).values(changes=server.c.changes + 1)
                changes = connection.execute(one_more.returning(server.c.changes)).scalar()
        self._counter.committed(changes)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Begin a read-only transaction."""
        with (
            self._timer("read"),
            self._connection(writes=False) as connection,
            connection.begin(),
        ):
            yield connection

    def insert(self, table: sa.TableClause) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that supports ON CONFLICT."""
        return sqlite.insert(table) if self._sqlite else postgresql.insert(table)

    def _lock(self, connection: sa.Connection, number: int) -> None:
        if not self._sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))

    def add_rejections(
        self, connection: sa.Connection, task: int, reason: int, amount: int
    ) -> None:
        """Add to the count of a task's rejected reports, within the caller's transaction."""
        made = self.insert(rejections)
        more = made.on_conflict_do_update(
            index_elements=[rejections.c.task, rejections.c.reason],
            set_={"amount": rejections.c.amount + made.excluded.amount},
        )
        connection.execute(more, {"task": task, "reason": reason, "amount": amount})

    def delete_sealed(self, connection: sa.Connection, statement: sa.Delete) -> None:
        """Delete rows whose contents are sealed, without overwriting their pages.

        Whoever finds them has no key. Zeros would be written twice, as much as the reports.
        """
        if self._sqlite:
            connection.exec_driver_sql("PRAGMA secure_delete = FAST")
        try:
            connection.execute(statement)
        finally:
            if self._sqlite:
                connection.exec_driver_sql("PRAGMA secure_delete = ON")

    def empty_log(self) -> None:
        """Move SQLite's log into the database and cut it to nothing, if nobody is reading."""
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def claim_role(self, role: str) -> None:
        """Record the role of this database; raise ConfigError if it is another one's."""
        row = {"role": role, "epoch": int(time.time()), "changes": 0}
        with self.write() as connection:
            found = connection.execute(sa.select(server.c.role)).scalar()
            if found is None:
                connection.execute(self.insert(server).on_conflict_do_nothing(), row)
                found = role
        if found != role:
            raise ConfigError(
                f"this database is of a {found}, not of a {role}; name another database"
            )

    def begin_epoch(self, connection: sa.Connection) -> None:
        """Begin a new epoch, within the caller's transaction. An old copy is the newest now."""
        now = connection.execute(sa.select(server).with_for_update()).one()
        seen = 0 if self._counter is None else self._counter.read()
        # By the time, so that two copies of one database do not begin the same epoch.
        epoch = max(now.epoch + 1, int(time.time()))
        changes = max(now.changes, seen)
        connection.execute(sa.update(server), {"epoch": epoch, "changes": changes})

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[sa.Connection]:
        if self._counter is not None:
            self._counter.check_file()  # a new connection would make an empty file
        if self.in_memory:
            self._turn.acquire()  # one connection for all threads
        try:
            with self._engine.connect() as connection:
                yield connection.execution_options(hdpmf_writes=writes)
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StorageError(
                f"the database refused: {_reason(error)}. What was not confirmed is not written; "
                "free space or bring the database back, then try again"
            ) from None
        finally:
            if self.in_memory:
                self._turn.release()

    @property
    def _on_disk(self) -> bool:
        return self._sqlite and not self.in_memory

    def _run(self, statement: str) -> None:
        """Run a statement of SQLite's, outside of transactions; nothing with another database."""
        if not self._on_disk:
            return
        with closing(self._engine.raw_connection()) as pooled:
            try:
                _raw(pooled).execute(statement).fetchall()
            except sqlite3.Error as error:
                raise StorageError(f"the database refused: {error}; try again") from None

    def _connected(self, raw: Any, record: Any) -> None:
        raw.isolation_level = None  # we begin transactions ourselves
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA page_size = {_PAGE}")
        cursor.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        cursor.execute("PRAGMA secure_delete = ON")
        if not self.in_memory:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        cursor.close()

    def _prepare(self) -> None:
        """Make or migrate the tables; refuse a database of a newer version, or an old copy."""
        with self.write() as connection:
            self._lock(connection, _SCHEMA_LOCK)
            _upgrade(connection)
            if self._counter is not None:
                self._counter.check(connection.execute(sa.select(server.c.changes)).scalar() or 0)


def _upgrade(connection: sa.Connection) -> None:
    """Bring a database to the newest revision, in the caller's transaction."""
    with needs("alembic", "servers"):
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory
        from alembic.util import CommandError

    folder = str(Path(__file__).with_name("migrations"))
    scripts = ScriptDirectory(folder, version_locations=[folder])
    with EnvironmentContext(
        Config(), scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)
    ) as environment:
        environment.configure(connection=connection)
        try:
            environment.run_migrations()
        except CommandError:  # it has a revision that is not here
            raise ConfigError(made_by_newer("this database")) from None


class _Counter:
    """The file beside a SQLite file that says how many transactions it had.

    It is written after the commit, and may be behind after a loss of power, but never ahead.
    """

    def __init__(self, database: Path, *, restored: bool) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}.counter")
        self._restored = restored
        if not database.exists() and self.read() and not restored:
            raise self._refusal("is gone")
        try:
            os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(database, 0o600)  # SQLite's log has the same mode
            self._known = self._look()
        except OSError as error:
            raise StorageError(
                f"cannot open {database}: {error.strerror or error}; the server needs a database "
                "that it can write"
            ) from error

    def check(self, changes: int) -> None:
        """Raise ConfigError if the database has fewer transactions than it had."""
        if changes < self.read() and not self._restored:
            raise self._refusal("is an old copy")

    def check_file(self) -> None:
        """Raise StorageError if the file was deleted or replaced while it was open."""
        try:
            same = self._look() == self._known
        except OSError:
            same = False
        if not same:
            raise StorageError(
                f"{self._database} was deleted or replaced while the server runs. Nothing is "
                "confirmed any more. Stop the server and bring back the newest copy of the file"
            )

    def committed(self, changes: int | None) -> None:
        """Remember the number of transactions; None if there was none to count."""
        self.check_file()  # what is committed into a file that is gone is lost
        if changes is not None and changes > self.read():
            self._path.write_text(f"{changes}\n", "ascii")

    def read(self) -> int:
        """Return the number; 0 if there is none yet."""
        try:
            return int(self._path.read_text("ascii") or 0)
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            raise StorageError(
                f"{self._path} is damaged or cannot be read. It says how many transactions the "
                "database had; if the database is the newest copy, remove the file"
            ) from None

    def _look(self) -> tuple[int, int]:
        stat = self._database.stat()
        return stat.st_dev, stat.st_ino

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self._database} {what}: it does not know all reports that were counted, and all "
            "batches that were released. Bring back the newest copy. If there is none, end all "
            "open tasks: hdpmf aggregator epoch FOLDER"
        )


def _binary_cursor() -> type[Any]:
    """Return the class of cursors that get bytes as they are: hexadecimal costs 0.4 ms a report."""
    import psycopg

    class BinaryCursor(psycopg.Cursor[Any]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.format = psycopg.pq.Format.BINARY

    return BinaryCursor


def _raw(pooled: sa.PoolProxiedConnection) -> sqlite3.Connection:
    """Return SQLite's own connection."""
    return cast(sqlite3.Connection, pooled.driver_connection)


def lock_task(connection: sa.Connection, number: int, *, alone: bool = False) -> bool:
    """Lock a task until the transaction ends: no batch of it closes meanwhile, or only here.

    Returns False if the task was purged, so that nothing may be added to it. SQLite needs no such
    lock: it has one writer.
    """
    here = sa.select(tasks.c.purged).where(tasks.c.number == number)
    return not connection.execute(here.with_for_update(read=not alone)).scalar()


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("hdpmf_writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _reason(error: SQLAlchemyError | sqlite3.Error) -> str:
    """Return the first line of the database's message: it names tables, never their contents."""
    original = getattr(error, "orig", None) if isinstance(error, SQLAlchemyError) else error
    return (str(original).splitlines() or [""])[0] if original is not None else type(error).__name__
