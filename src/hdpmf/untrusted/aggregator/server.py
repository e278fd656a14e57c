"""The base class of leader and helper: tasks, batches, counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from hdpmf.common.privacy.sampling import Noise, ReleasedNoise
from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.collection import Batches
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.garbage_collector import TaskCounts, count, purge
from hdpmf.untrusted.aggregator.tasks import OpenTask, Rules, ServerKeys, ServerRole, TaskBook


class Aggregator:
    """Configuration of one of the two servers.

    Args:
        keys: Whose it is.
        database: Where it writes.
        clock: Seconds since 1970.
        noise: What it adds to sums.
        marks: The file of closed batches, outside the database; None if that is in memory.
        rules: What its operator decides.
    """

    role: ClassVar[ServerRole]

    def __init__(
        self,
        keys: ServerKeys,
        database: ServerDatabase,
        *,
        clock: Callable[[], float] = time.time,
        noise: Noise | None = None,
        marks: Path | None = None,
        rules: Rules | None = None,
    ) -> None:
        if keys.role != self.role:
            raise ConfigError(f"these keys are the {keys.role}'s")
        rules = Rules() if rules is None else rules
        database.claim_role(keys.role)
        self._keys, self._database, self._clock, self._rules = keys, database, clock, rules
        self._book = TaskBook(database, keys, rules, clock)
        self._batches = Batches(
            database, keys, rules, ReleasedNoise() if noise is None else noise, marks
        )

    def task(self, task_id: bytes) -> OpenTask:
        """A task that this server takes part in."""
        return self._book.get(task_id)

    def task_ids(self) -> list[bytes]:
        """Return the ids of all tasks."""
        return self._book.ids()

    def counts(self, task_id: bytes) -> TaskCounts:
        """Return the numbers of reports of a task, by state."""
        return count(self._database, self._book.get(task_id))

    def purge(self) -> int:
        """Delete what expired tasks left; report ids and closed batches stay.

        Returns:
            Tasks that were purged.
        """
        return purge(self._database, self._clock() - self._rules.keep)
