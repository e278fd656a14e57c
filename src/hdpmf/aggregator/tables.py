"""What a server writes down. Both servers have the same tables; some stay empty at one of them.

Whoever changes one adds a step to ``migrations``.
"""

from __future__ import annotations

from enum import IntEnum

from hdpmf.transport.extras import needs

with needs("sqlalchemy"):
    import sqlalchemy as sa


class _Body(sa.types.UserDefinedType[bytes]):
    """Bytes as the driver takes and gives them: SQLAlchemy's own type copies them twice."""

    cache_ok = True

    def get_col_spec(self, **how: object) -> str:
        return "BLOB"


_BODY = _Body().with_variant(sa.LargeBinary(), "postgresql")

metadata = sa.MetaData()


class ReportState(IntEnum):
    """What became of a report. Its id stays for as long as the task does, so that nothing counts twice."""

    STORED = 0
    CLAIMED = 1
    COUNTED = 2
    REJECTED = 3


def _task() -> sa.Column[int]:
    return sa.Column("task", sa.Integer, primary_key=True, autoincrement=False)


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
    sa.Column("id", sa.LargeBinary(32), nullable=False, unique=True),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("devices", sa.LargeBinary(32), nullable=False),  # digest of the list, to see a repeat
    sa.Column("end", sa.BigInteger, nullable=False),
    sa.Column("purged", sa.Boolean, nullable=False, default=False),
)

devices = sa.Table(  # leader: who may report, and how many different reports came
    "devices",
    metadata,
    _task(),
    sa.Column("identity", sa.String(64), primary_key=True),
    sa.Column("users", sa.Integer, nullable=False),
    sa.Column("taken", sa.Integer, nullable=False, default=0),
    sqlite_with_rowid=False,
)

reports = sa.Table(
    "reports",
    metadata,
    _task(),
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("bucket", sa.BigInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary(32)),  # leader: of the bytes, to see a repeat
    sa.Column("job", sa.LargeBinary(16)),  # leader: while it is claimed
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

payloads = sa.Table(  # leader: reports until they are counted; a table of its own, because rows above change
    "payloads",
    metadata,
    _task(),
    sa.Column("report", sa.LargeBinary(16), primary_key=True),
    sa.Column("body", _BODY, nullable=False),
)

jobs = sa.Table(  # leader: what it asks the helper, until it is done
    "jobs",
    metadata,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("task", sa.Integer, nullable=False),
    sa.Column("lease", sa.Float, nullable=False),  # until when a worker has it
    sa.Column("request", _BODY),
)

answers = sa.Table(  # helper: what it answered, for as long as the task lives
    "answers",
    metadata,
    _task(),
    sa.Column("job", sa.LargeBinary(16), primary_key=True),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("response", sa.LargeBinary),
)

accumulators = sa.Table(
    "accumulators",
    metadata,
    _task(),
    sa.Column("bucket", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.LargeBinary(32), nullable=False),
    sa.Column("total", sa.LargeBinary, nullable=False),
)

rejections = sa.Table(
    "rejections",
    metadata,
    _task(),
    sa.Column("reason", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
)

batches = sa.Table(  # closed ones
    "batches",
    metadata,
    _task(),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("duration", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.LargeBinary(32), nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),  # the buckets that reports are in
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("share", sa.LargeBinary, nullable=False),  # noised and encrypted: what leaves, again and again
    sa.Column("other", sa.LargeBinary),  # leader: the helper's
)

collections = sa.Table(  # leader: what the collector asked for
    "collections",
    metadata,
    _task(),
    sa.Column("job", sa.LargeBinary(16), primary_key=True),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("duration", sa.BigInteger, nullable=False),
)
