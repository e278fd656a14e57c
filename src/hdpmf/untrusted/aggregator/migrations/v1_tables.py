"""The tables of version 2.0."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_BLOB = sa.LargeBinary()


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "server",
        sa.Column("role", sa.String(10), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("partner_epoch", sa.BigInteger()),
        sa.Column("changes", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "tasks",
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("id", _BLOB, nullable=False, unique=True),
        sa.Column("document", _BLOB, nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("purged", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "reports",
        _task(),
        sa.Column("id", _BLOB, primary_key=True),
        sa.Column("bucket", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("digest", _BLOB),
        sa.Column("job", _BLOB),
        sqlite_with_rowid=False,
    )
    _index("reports_waiting", ["task", "state", "bucket"], "state < 2")
    _index("reports_claimed", ["job"], "state = 1")
    op.create_table(
        "payloads",
        _task(),
        sa.Column("report", _BLOB, primary_key=True),
        sa.Column("body", _BLOB, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _BLOB, primary_key=True),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("lease", sa.Float(), nullable=False),
    )
    op.create_table(
        "answers",
        _task(),
        sa.Column("job", _BLOB, primary_key=True),
        sa.Column("digest", _BLOB, nullable=False),
        sa.Column("response", _BLOB),
    )
    op.create_table(
        "accumulators",
        _task(),
        sa.Column("bucket", sa.BigInteger(), primary_key=True),
        sa.Column("shard", sa.SmallInteger(), primary_key=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("checksum", _BLOB, nullable=False),
        sa.Column("total", _BLOB, nullable=False),
    )
    op.create_table(
        "rejections",
        _task(),
        sa.Column("reason", sa.SmallInteger(), primary_key=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "batches",
        _task(),
        sa.Column("start", sa.BigInteger(), primary_key=True),
        sa.Column("duration", sa.BigInteger(), primary_key=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("checksum", _BLOB, nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("share", _BLOB, nullable=False),
        sa.Column("other", _BLOB),
    )
    op.create_table(
        "collections",
        _task(),
        sa.Column("job", _BLOB, primary_key=True),
        sa.Column("request", _BLOB, nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("duration", sa.BigInteger(), nullable=False),
    )


def _task() -> sa.Column[int]:
    return sa.Column("task", sa.Integer(), primary_key=True)


def _index(name: str, columns: list[str], where: str) -> None:
    """Make an index of some reports only."""
    some = sa.text(where)
    op.create_index(name, "reports", columns, sqlite_where=some, postgresql_where=some)
