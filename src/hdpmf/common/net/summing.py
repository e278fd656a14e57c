"""What a collector needs of the two servers, whether they are in this process or far away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SumServers(Protocol):
    """The pair of servers as their collector sees it. Every call may be repeated with the same
    bytes.

    All of them raise ``TransportError`` where a server could not be reached or is busy, so that
    trying again may help, and ``DapError`` where one refuses.
    """

    def add_task(self, document: bytes, devices: Sequence[tuple[str, int]]) -> None:
        """Give a task to both servers.

        Args:
            document: The task as it is published.
            devices: Who may report, by identity, and for how many users; for the leader alone.
        """

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        """Ask the leader for the sum of a task.

        Args:
            task_id: Of the task.
            job_id: Of the collection; the same again for the same request.
            request: A DAP ``CollectionReq``.
        """

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        """The DAP ``Collection`` that was asked for, or None while it is not ready."""


class LeaderHere(Protocol):
    """A leader in this process."""

    def add_task(self, document: bytes, devices: Sequence[tuple[str, int]]) -> bytes:
        """Take a task; its id."""

    def aggregate(self, limit: int = ...) -> int:
        """Prepare reports with the helper; how many were handled."""

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        """Take the request for a sum."""

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        """The sum, or None while it is not ready."""


class HelperHere(Protocol):
    """A helper in this process."""

    def add_task(self, document: bytes) -> bytes:
        """Take a task; its id."""


class ServersHere:
    """Both servers in this process: for simulations and tests.

    The leader prepares reports whenever it is asked for the sum.
    """

    def __init__(self, leader: LeaderHere, helper: HelperHere) -> None:
        self._leader, self._helper = leader, helper

    def add_task(self, document: bytes, devices: Sequence[tuple[str, int]]) -> None:
        """As in ``SumServers``."""
        self._helper.add_task(document)
        self._leader.add_task(document, devices)

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        """As in ``SumServers``."""
        self._leader.begin_collection(task_id, job_id, request)

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        """As in ``SumServers``."""
        while self._leader.aggregate():
            pass
        return self._leader.collection(task_id, job_id)
