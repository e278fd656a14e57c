"""The inbox of ratings that people show, beside the sums of a task.

One message for each device of the roster, signed by it. It is on the disk when its answer goes out:
the device does not send it again. Answers are HTTP's:

======  =========================================================================
status  meaning
======  =========================================================================
201     it is kept; also for the same bytes again
401     a stranger, or a signature that does not hold
404     no such task is under way
409     the device sent other bytes before
410     the task is over
413     more than all ratings of its users would be
======  =========================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from hdpmf.common.aggregation.masks.primitives import verifies
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.common.protocol.task import signed_shared


class SharedInbox:
    """Takes the messages of one task at a time, from the thread of a web server or a test."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._task = b""  # that takes messages now
        self._last = b""  # that the messages are of
        self._longest: Mapping[str, int] = {}
        self._folder: Path | None = None
        self._messages: dict[str, bytes] = {}
        self._over: set[str] = set()
        self._sending: set[str] = set()

    def open(self, task: bytes, longest: Mapping[str, int], folder: Path | None = None) -> None:
        """Take messages for a task from now on; those that came before a restart are there.

        Args:
            longest: By device of the roster, the most bytes of its message.
            folder: Where messages are kept; in memory only where not given.
        """
        with self._guard:
            if task != self._last:
                self._messages = _kept(folder, longest)
            self._task = self._last = task
            self._longest, self._folder = longest, folder

    def close(self) -> None:
        """Take no more messages for the task."""
        with self._guard:
            if self._task:
                self._over.add(id_to_text(self._task))
            self._task = b""

    def messages(self) -> dict[str, bytes]:
        """Return the messages of the last task that was opened, by device."""
        with self._guard:
            return dict(self._messages)

    def drop(self) -> None:
        """Forget the messages: what they say is in the run's checkpoint."""
        with self._guard:
            self._messages, self._last = {}, b""
            if self._folder is not None:
                rmtree(self._folder, ignore_errors=True)

    def take(self, task: str, device: str, signature: bytes, body: bytes) -> int:
        """Take a message, and return the status that says so.

        Raises:
            StorageError: The disk refused; the device will send it again.
        """
        refused = self.refusal(task, device, len(body))
        if refused:
            return refused
        with self._guard:
            if task != id_to_text(self._task):
                return 410
            said = signed_shared(self._task, sha256(body).digest())
            if not verifies(bytes.fromhex(device), signature, said):
                return 401
            before = self._messages.get(device)
            if before is not None:
                return 201 if before == body else 409
            if self._folder is not None:
                self._folder.mkdir(exist_ok=True)
                atomic_write(self._folder / f"{device}.msgpack", body, mode=0o600)
            self._messages[device] = body
        return 201

    def refusal(self, task: str, device: str, length: int) -> int:
        """Return the status of a refusal before any of so many bytes is read, or 0."""
        if task in self._over:
            return 410
        if not self._task or task != id_to_text(self._task):
            return 404
        if device not in self._longest:
            return 401
        return 413 if length > self._longest[device] else 0


def _kept(folder: Path | None, devices: Container[str]) -> dict[str, bytes]:
    if folder is None or not folder.is_dir():
        return {}
    with storage_errors(f"cannot read {folder}"):
        return {
            path.stem: path.read_bytes()
            for path in sorted(folder.glob("*.msgpack"))
            if path.stem in devices
        }
