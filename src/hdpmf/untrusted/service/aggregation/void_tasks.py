"""Tasks of runs that were given up, until both servers have signed that nothing is released.

The list is in the recommender's folder (``void-tasks.msgpack``) and outlives a kill. What both have
signed is published, and devices get back what their reports have cost.
"""

from __future__ import annotations

from hdpmf.common.base.files import atomic_write
from hdpmf.common.net.sum_servers import SumServers
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.task import (
    MOST_VOID,
    VoidTask,
    encode_void_tasks,
    read_void_tasks,
)
from hdpmf.errors import DapError, ProtocolError, StorageError, TransportError
from hdpmf.untrusted.service.folder import ServiceFolder

_FILE = "void-tasks.msgpack"


class VoidTasks:
    """The tasks that a recommender has given up, the oldest first."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._path = folder.path / _FILE

    def add(self, tasks: list[bytes]) -> None:
        """Give these tasks up; the servers are asked later."""
        known = self._load()
        names = {void.task for void in known}
        new = [VoidTask(task=task) for task in tasks if task not in names]
        if new:
            self._save((*known, *new))

    def ask(self, servers: SumServers, pair: Servers) -> tuple[bool, list[str]]:
        """Ask for signatures that are missing.

        Returns True if there are new ones, and why others are not to be had. A task that a server
        will not sign is not asked for again.
        """
        known = list(self._load())
        problems = []
        changed = dropped = False
        for void in [void for void in known if not void.leader]:
            place = known.index(void)
            try:
                found = servers.void_task(void.task)
                found.check(pair)
                known[place] = found
                changed = True
            except TransportError as error:
                problems.append(f"{error}; it is asked again to give task {_name(void)} up")
            except (DapError, ProtocolError) as error:
                problems.append(f"task {_name(void)} stays paid: {error}")
                del known[place]
                dropped = True
        if changed or dropped:
            self._save(tuple(known))
        return changed, problems

    def signed(self) -> bytes | None:
        """Return what devices are shown; None if there is nothing."""
        found = tuple(void for void in self._load() if void.leader)
        return encode_void_tasks(found) if found else None

    @property
    def waiting(self) -> bool:
        """True if signatures are missing."""
        return any(not void.leader for void in self._load())

    def _load(self) -> tuple[VoidTask, ...]:
        try:
            return read_void_tasks(self._path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ProtocolError) as error:
            raise StorageError(f"{self._path} cannot be read ({error}); delete it") from error

    def _save(self, tasks: tuple[VoidTask, ...]) -> None:
        atomic_write(self._path, encode_void_tasks(tasks[-MOST_VOID:]))


def _name(void: VoidTask) -> str:
    return void.task.hex()[:12]
