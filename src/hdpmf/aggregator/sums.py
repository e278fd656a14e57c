"""Sums of output shares: of one job in memory, of all in the database."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy as np

from hdpmf.aggregator.store import ServerDatabase
from hdpmf.aggregator.tables import accumulators, rejections
from hdpmf.aggregator.tasks import OpenTask
from hdpmf.dap import CHECKSUM_SIZE, PrepareError
from hdpmf.transport.extras import needs

with needs("sqlalchemy"):
    import sqlalchemy as sa


@dataclass
class _Bucket:
    total: np.ndarray = field(repr=False)
    count: int = 0
    checksum: int = 0


class JobSums:
    """What one job adds: for each time its reports' sum, and for each reason how many were rejected."""

    def __init__(self, opened: OpenTask) -> None:
        self._opened = opened
        self._buckets: dict[int, _Bucket] = {}
        self._rejected: dict[PrepareError, int] = {}

    def add(self, report_id: bytes, time: int, output: np.ndarray) -> None:
        """Count a report."""
        field_ = self._opened.prio.field
        bucket = self._buckets.get(time)
        if bucket is None:
            zeros = np.zeros(self._opened.prio.circuit.output_length, field_.dtype)
            bucket = self._buckets[time] = _Bucket(zeros)
        bucket.total = field_.add(bucket.total, output)
        bucket.count += 1
        bucket.checksum ^= int.from_bytes(hashlib.sha256(report_id).digest(), "big")

    def reject(self, reason: PrepareError) -> None:
        """Count a report that does not count."""
        self._rejected[reason] = self._rejected.get(reason, 0) + 1

    @property
    def counted(self) -> int:
        """Reports that count."""
        return sum(bucket.count for bucket in self._buckets.values())

    def write(self, connection: sa.Connection, database: ServerDatabase) -> None:
        """Add it to what is in the database, within the caller's transaction."""
        shard = secrets.randbelow(database.shards)
        for time in sorted(self._buckets):  # in one order, so that no two workers wait for each other
            self._write_bucket(connection, database, time, shard)
        for reason, amount in sorted(self._rejected.items()):
            made = database.insert(rejections)
            more = made.on_conflict_do_update(
                index_elements=[rejections.c.task, rejections.c.reason],
                set_={"amount": rejections.c.amount + made.excluded.amount},
            )
            connection.execute(more, {"task": self._opened.number, "reason": int(reason), "amount": amount})

    def _write_bucket(self, connection: sa.Connection, database: ServerDatabase, time: int, shard: int) -> None:
        prio, bucket = self._opened.prio, self._buckets[time]
        place = {"task": self._opened.number, "bucket": time, "shard": shard}
        empty = {"amount": 0, "checksum": bytes(CHECKSUM_SIZE), "total": b""}
        connection.execute(database.insert(accumulators).on_conflict_do_nothing(), place | empty)
        here = sa.and_(*(accumulators.c[name] == value for name, value in place.items()))
        row = connection.execute(sa.select(accumulators).where(here).with_for_update()).one()
        total = bucket.total
        if row.total:
            total = prio.field.add(total, prio.field.decode(row.total, prio.circuit.output_length))
        checksum = (bucket.checksum ^ int.from_bytes(row.checksum, "big")).to_bytes(CHECKSUM_SIZE, "big")
        connection.execute(
            sa.update(accumulators).where(here),
            {"amount": row.amount + bucket.count, "checksum": checksum, "total": prio.field.encode(total)},
        )
