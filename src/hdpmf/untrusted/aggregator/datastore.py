"""The database of a server: tables, migrations, and transactions on SQLite or PostgreSQL.

Both servers have the same tables; some stay empty at one of them. Whoever changes a table adds a
migration. All migrations that a database lacks run in one transaction with its new schema number.
What is committed is on the disk when ``write`` ends. Errors never contain what was written.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

from hdpmf.errors import ConfigError, StorageError, made_by_newer, needs
from hdpmf.untrusted.aggregator.sqlite_file import SqliteFile

with needs("sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy import event, pool
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError


class _Body(sa.types.UserDefinedType[bytes]):
    """Bytes as the driver handles them: SQLAlchemy's own type copies them twice."""

    cache_ok = True

    def get_col_spec(self, **how: object) -> str:
        return "BLOB"


_BODY = _Body().with_variant(sa.LargeBinary, "postgresql")

metadata = sa.MetaData()


class ReportState(IntEnum):
    """State of a report. Its id stays as long as its task, so that no report counts twice.

    The id is in the token of an enrolled device, so that no token counts twice either.
    """

    STORED = 0
    CLAIMED = 1
    COUNTED = 2
    REJECTED = 3


def _task() -> sa.Column[int]:
    return sa.Column("task", sa.Integer, primary_key=True)


facts = sa.Table(  # of the database itself: schema, role
    "facts",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("end", sa.BigInteger, nullable=False),
    sa.Column("purged", sa.Boolean, nullable=False),
)

reports = sa.Table(
    "reports",
    metadata,
    _task(),
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("bucket", sa.BigInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary),  # leader: of the bytes, to see a repeat
    sa.Column("job", sa.LargeBinary),  # leader: while it is claimed
    sqlite_with_rowid=False,
)

_waiting = reports.c.state < ReportState.COUNTED

sa.Index(
    "reports_waiting",
    reports.c.task,
    reports.c.state,
    reports.c.bucket,
    sqlite_where=_waiting,
    postgresql_where=_waiting,
)

_claimed = reports.c.state == ReportState.CLAIMED

sa.Index("reports_claimed", reports.c.job, sqlite_where=_claimed, postgresql_where=_claimed)

# leader: reports until they are counted, sealed; a table of its own, because rows above change
payloads = sa.Table(
    "payloads",
    metadata,
    _task(),
    sa.Column("report", sa.LargeBinary, primary_key=True),
    sa.Column("body", _BODY, nullable=False),
)

jobs = sa.Table(  # leader: what it asks the helper, until it is done
    "jobs",
    metadata,
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("task", sa.Integer, nullable=False),
    sa.Column("lease", sa.Float, nullable=False),  # until when a worker has it
)

answers = sa.Table(  # helper: what it answered, for as long as the task lives
    "answers",
    metadata,
    _task(),
    sa.Column("job", sa.LargeBinary, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("response", sa.LargeBinary),
)

accumulators = sa.Table(
    "accumulators",
    metadata,
    _task(),
    sa.Column("bucket", sa.BigInteger, primary_key=True),
    sa.Column("shard", sa.SmallInteger, primary_key=True),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.LargeBinary, nullable=False),
    sa.Column("total", sa.LargeBinary, nullable=False),  # sealed
)

rejections = sa.Table(
    "rejections",
    metadata,
    _task(),
    sa.Column("reason", sa.SmallInteger, primary_key=True),
    sa.Column("amount", sa.BigInteger, nullable=False),
)

batches = sa.Table(  # closed ones
    "batches",
    metadata,
    _task(),
    sa.Column("start", sa.BigInteger, primary_key=True),
    sa.Column("duration", sa.BigInteger, primary_key=True),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.LargeBinary, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),  # the buckets that reports are in
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column(
        "share", sa.LargeBinary, nullable=False
    ),  # noised and encrypted: what leaves, again and again
    sa.Column("other", sa.LargeBinary),  # leader: the helper's
)

collections = sa.Table(  # leader: what the collector asked for
    "collections",
    metadata,
    _task(),
    sa.Column("job", sa.LargeBinary, primary_key=True),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("duration", sa.BigInteger, nullable=False),
)

released = sa.Table(  # the log of releases (released_batches): this server's, and the other's
    "released",
    metadata,
    sa.Column("server", sa.SmallInteger, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("task", sa.LargeBinary, nullable=False),  # its id: the task may be unknown here
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("duration", sa.BigInteger, nullable=False),
    sa.Column("share", sa.LargeBinary, nullable=False),  # digest; empty if the task is void
    sa.Column("statement", sa.LargeBinary, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
)

sa.Index("released_tasks", released.c.server, released.c.task)

key_rows = sa.Table(  # keys of a server on several hosts, sealed (key_table)
    "keys",
    metadata,
    sa.Column("store", sa.String(40), primary_key=True),
    sa.Column("name", sa.LargeBinary, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)

_UNSEALED = "unsealed"


def _begin_to_seal(connection: sa.Connection) -> None:
    """Mark rows that a server has to seal when it opens the database: it has the keys.

    Requests of jobs go: they are made again from the reports, byte for byte.
    """
    connection.execute(facts.insert(), {"name": _UNSEALED, "value": "yes"})
    connection.execute(sa.text("ALTER TABLE jobs DROP COLUMN request"))


_IDENTITY = "identity"


def _give_identity(connection: sa.Connection) -> None:
    """Name the database, so that its server knows it from another one."""
    connection.execute(facts.insert(), {"name": _IDENTITY, "value": secrets.token_hex(16)})


def _make_log(connection: sa.Connection) -> None:
    """Make the log of releases, which was a file; a server takes it in when it starts."""
    released.create(connection)


def _make_key_table(connection: sa.Connection) -> None:
    """Make the table for keys of a server on several hosts."""
    key_rows.create(connection)


def _drop_devices(connection: sa.Connection) -> None:
    """Delete who may report, and who has: devices show tokens, and the leader knows none of them.

    Tasks that had such a list take no more reports. Those that are here are counted.
    """
    connection.execute(sa.text("DROP TABLE devices"))
    connection.execute(sa.text("ALTER TABLE tasks DROP COLUMN devices"))


MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (
    _begin_to_seal,
    _give_identity,
    _make_log,
    _make_key_table,
    _drop_devices,
)
"""The first brings a database from schema 1 to 2, the second from 2 to 3, and so on, in SQLite and
in PostgreSQL. None may forget a report's id, a closed batch or a share that has left: what was
counted or released stays so."""

_IN_MEMORY = "sqlite://"

_WAIT_MS = 60_000  # for another process that writes

_PAGE = 32_768  # reports are large: fewer pages to link

_LOG_PAGES = 4096  # 128 MiB: most reports are counted and gone before they are copied to the file

_POSTGRES_SHARDS = 8

_SCHEMA_LOCK = 0x68_64_70_6D_66  # any number that others do not lock
_LOG_LOCK = _SCHEMA_LOCK + 1
_KEY_LOCK = _SCHEMA_LOCK + 2


Timer = Callable[[str], AbstractContextManager[object]]


class ServerDatabase:
    """A server's database, which several processes may open.

    Args:
        url: ``sqlite:///path``, ``postgresql+psycopg://user:password@host/name``, or ``sqlite://``
            in memory.
        timer: Called with ``read`` or ``write``; what it returns is around each transaction.

    Attributes:
        shards: Rows that a sum is spread over, so that workers do not wait for each other.
        made_now: It had no tables before.
    """

    def __init__(self, url: str = _IN_MEMORY, timer: Timer = nullcontext) -> None:
        self._timer = timer
        try:
            parsed = sa.make_url(url)
            kind = parsed.drivername
            if kind not in ("sqlite", "postgresql+psycopg"):
                raise ArgumentError
        except ArgumentError:
            raise ConfigError(
                "the database must be sqlite:///path or "
                "postgresql+psycopg://user:password@host/name"
            ) from None
        self._sqlite = kind == "sqlite"
        self.in_memory = self._sqlite and parsed.database in (None, "", ":memory:")
        self._file = SqliteFile(Path(parsed.database or "")) if self._on_disk else None
        self.shards = 1 if self._sqlite else _POSTGRES_SHARDS
        self._turn = threading.RLock()
        options: dict[str, Any] = {"poolclass": pool.StaticPool} if self.in_memory else {}
        if self._sqlite:
            options["connect_args"] = {"check_same_thread": False, "timeout": _WAIT_MS / 1e3}
        else:
            options["pool_pre_ping"] = True
        with needs("psycopg", "postgres"):
            if not self._sqlite:
                options["connect_args"] = {"cursor_factory": _binary_cursor()}
            self._engine = sa.create_engine(parsed, hide_parameters=True, **options)
        if self._sqlite:
            event.listen(self._engine, "connect", self._connected)
            event.listen(self._engine, "begin", _begin)
        try:
            self.made_now = self._prepare()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"ServerDatabase({self._engine.dialect.name})"

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Begin a durable transaction."""
        number: int | None = None
        with (
            self._timer("write"),
            self._connection(writes=True) as connection,
            connection.begin(),
        ):
            if self._file is None:
                yield connection
                return
            raw = _raw(connection.connection)
            before = raw.total_changes
            yield connection
            if raw.total_changes != before:
                number = self._file.count(raw)
        self._file.check(number)  # what is committed into another file is lost

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Begin a read-only transaction."""
        with (
            self._timer("read"),
            self._connection(writes=False) as connection,
            connection.begin(),
        ):
            yield connection

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that supports ON CONFLICT."""
        return sqlite.insert(table) if self._sqlite else postgresql.insert(table)

    def lock_log(self, connection: sa.Connection) -> None:
        """Let nobody else add to the log of releases until the transaction ends.

        SQLite needs no such lock: it has one writer.
        """
        self._lock(connection, _LOG_LOCK)

    def lock_keys(self, connection: sa.Connection) -> None:
        """Let nobody else make or erase keys until the transaction ends."""
        self._lock(connection, _KEY_LOCK)

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

    def rewrite(self) -> None:
        """Rewrite the whole file, without its free pages. PostgreSQL does so by itself."""
        self._run("VACUUM")
        self.empty_log()

    def take_over(self) -> None:
        """Notice from now on if a copy is written over a SQLite file.

        Only if no other process serves the database.
        """
        if self._file is not None:
            self._outside_transaction(self._file.watch)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        if self._file is not None:
            self._file.close()

    @property
    def identity(self) -> str:
        """The random name of this database, which its copies have, too."""
        with self.read() as connection:
            here = sa.select(facts.c.value).where(facts.c.name == _IDENTITY)
            return str(connection.execute(here).scalar_one())

    def claim_role(self, role: str) -> None:
        """Record the role of this database; raise ConfigError if it is another one's."""
        with self.write() as connection:
            connection.execute(
                self.insert(facts).on_conflict_do_nothing(), {"name": "role", "value": role}
            )
            found = connection.execute(
                sa.select(facts.c.value).where(facts.c.name == "role")
            ).scalar_one()
        if found != role:
            raise ConfigError(
                f"this database is of a {found}, not of a {role}; name another database"
            )

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[sa.Connection]:
        if self._file is not None:
            self._file.check()  # a new connection would make an empty file, or open another one
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
        self._outside_transaction(lambda raw: raw.execute(statement).fetchall())

    def _outside_transaction(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do something with SQLite's own connection to a file; nothing with another database."""
        if not self._on_disk:
            return
        with closing(self._engine.raw_connection()) as pooled:
            try:
                work(_raw(pooled))
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

    def _prepare(self) -> bool:
        """Create or migrate the tables in one transaction; refuse a newer schema.

        Returns True if there were none.
        """
        newest = 1 + len(MIGRATIONS)
        with self.write() as connection:
            self._lock(connection, _SCHEMA_LOCK)
            present = set(sa.inspect(connection).get_table_names())
            if facts.name not in present:
                if present & set(metadata.tables):
                    raise ConfigError("this database is another program's; name an empty one")
                metadata.create_all(connection)
                connection.execute(facts.insert(), {"name": "schema", "value": str(newest)})
                _give_identity(connection)
                return True
            schema = facts.c.name == "schema"
            found = connection.execute(sa.select(facts.c.value).where(schema)).scalar() or ""
            if not (found.isdigit() and int(found)):
                raise ConfigError(
                    f"this database has schema {found!r}, which no version of hdpmf makes; name "
                    "another"
                )
            if int(found) > newest:
                raise ConfigError(made_by_newer("this database"))
            if int(found) < newest:
                for step in MIGRATIONS[int(found) - 1 :]:
                    step(connection)
                connection.execute(facts.update().where(schema), {"value": str(newest)})
        return False


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


def has_unsealed(connection: sa.Connection) -> bool:
    """Return True if a version before seals has written rows, and nobody has sealed them yet."""
    here = sa.select(facts.c.value).where(facts.c.name == _UNSEALED)
    return connection.execute(here.with_for_update()).first() is not None


def clear_unsealed(connection: sa.Connection) -> None:
    """Record that all rows are sealed."""
    connection.execute(sa.delete(facts).where(facts.c.name == _UNSEALED))


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
