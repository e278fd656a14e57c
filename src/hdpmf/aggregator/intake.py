"""Uploads of many devices, written down together: one wait for the disk serves all that came meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from hdpmf.aggregator.metrics import AggregatorMetrics
from hdpmf.aggregator.uploads import Upload
from hdpmf.errors import HdpmfError, StorageError
from hdpmf.logs import event

GROUP = 64
"""Reports of a group, at most."""

GROUP_BYTES = 16 << 20


Writer = Callable[[Sequence[Upload]], Sequence[HdpmfError | None]]


class Intake:
    """A queue of uploads and the thread that writes them down.

    Args:
        write: Writes a group, durably; for each report None, or why it was refused.
        metrics: Counts what becomes of them.
        room: Uploads that may wait.
        written: Called after each group, by the thread.
    """

    def __init__(
        self, write: Writer, metrics: AggregatorMetrics, room: int, written: Callable[[], None] = lambda: None
    ) -> None:
        self._write, self._metrics, self._room, self._written = write, metrics, room, written
        self._waiting: deque[tuple[Upload, asyncio.Future[HdpmfError | None]]] = deque()
        self._some = threading.Condition()
        self._open = True
        self._expected = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        """Begin to write; called on the event loop whose coroutines put reports in."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def reserve(self) -> bool:
        """Whether there is room for one more; it is kept until ``release``. Asked before a report is read."""
        if not self._open or self._expected >= self._room:
            return False
        self._expected += 1
        return True

    def release(self) -> None:
        """Give back the room of a report."""
        self._expected -= 1

    async def put(self, upload: Upload) -> None:
        """Returns when the report is on the disk.

        Raises:
            HdpmfError: It was refused, or the disk refused.
        """
        if self._loop is None:
            raise StorageError("the server is not writing yet")
        future: asyncio.Future[HdpmfError | None] = self._loop.create_future()
        with self._some:
            if not self._open:
                raise StorageError("the server is stopping; send the report again later")
            self._waiting.append((upload, future))
            self._some.notify()
        refused = await future
        if refused is not None:
            raise refused

    async def stop(self) -> None:
        """Write what is there, then end the thread."""
        with self._some:
            self._open = False
            self._some.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while group := self._next():
            begin = time.perf_counter()
            results = self._outcome([upload for upload, _ in group])
            self._metrics.commits.observe(time.perf_counter() - begin)
            self._metrics.grouped.observe(len(group))
            if self._loop is not None:
                self._loop.call_soon_threadsafe(_answer, [future for _, future in group], results)
            self._written()

    def _next(self) -> list[tuple[Upload, asyncio.Future[HdpmfError | None]]]:
        """The next group; empty at the end."""
        with self._some:
            while not self._waiting and self._open:
                self._some.wait()
            group: list[tuple[Upload, asyncio.Future[HdpmfError | None]]] = []
            size = 0
            while self._waiting and len(group) < GROUP and size < GROUP_BYTES:
                group.append(self._waiting.popleft())
                size += len(group[-1][0].report)
            return group

    def _outcome(self, uploads: list[Upload]) -> Sequence[HdpmfError | None]:
        try:
            return self._write(uploads)
        except HdpmfError as error:
            event("write-failed", logging.ERROR, error, reports=len(uploads))
            return [error] * len(uploads)
        except Exception as error:  # the thread must live on; the reports are not confirmed
            event("write-failed", logging.ERROR, error, reports=len(uploads))
            return [StorageError("the report could not be written down; send it again later")] * len(uploads)


def _answer(futures: list[asyncio.Future[HdpmfError | None]], results: Sequence[HdpmfError | None]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():  # who sent it may be gone
            future.set_result(result)
