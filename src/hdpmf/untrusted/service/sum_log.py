"""The messages of a secure sum as they came, on disk, so that a recommender that was killed goes on
in the middle.

What the recommender does in a sum follows from the plan, the messages that it has taken and the
moments at which it closed a step (``SecureSumServer`` draws nothing at random). The log holds just
these, so reading it again leads to the same state and to the same bytes for devices.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hdpmf.errors import StorageError

_HEADER = 12  # length, checksum, device, 4 bytes each
CLOSED = (1 << 32) - 1
"""In place of a device's number: the step was closed."""


class SumLog:
    """Where the messages of one sum are kept. This one keeps nothing, for a simulation that is
    not resumed.
    """

    def begin(self, plan: bytes) -> None:
        """Keep the plan: the first record."""

    def read(self) -> tuple[bytes | None, list[tuple[int, bytes]]]:
        """The plan, if there is one, and what followed it."""
        return None, []

    def take(self, device: int, data: bytes) -> None:
        """Keep a message that was taken in."""

    def close_step(self) -> None:
        """Keep that the step is closed; after this everything before it is safe."""

    def close(self) -> None:
        """Let go of the file."""


class SumLogFile(SumLog):
    """The log of one sum in a file.

    Args:
        path: The file; made if it is not there. A last record that was cut short is dropped: its
            message was not acted upon, and its device will be asked again.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._stream: BinaryIO = path.open("r+b" if path.exists() else "x+b", buffering=0)
            self._end = sum(_HEADER + len(data) for _, data in self._records())
            self._stream.truncate(self._end)
            self._stream.seek(self._end)
        except OSError as error:
            raise _refused(error) from error

    def begin(self, plan: bytes) -> None:
        """As in ``SumLog``."""
        self._write(0, plan)
        self._sync()

    def read(self) -> tuple[bytes | None, list[tuple[int, bytes]]]:
        """As in ``SumLog``."""
        records = list(self._records())
        self._stream.seek(self._end)
        return (records[0][1], records[1:]) if records else (None, [])

    def take(self, device: int, data: bytes) -> None:
        """Keep a message; it survives the death of this process at once, and that of the machine
        with the step.
        """
        self._write(device, data)

    def close_step(self) -> None:
        """As in ``SumLog``."""
        self._write(CLOSED, b"")
        self._sync()

    def close(self) -> None:
        """As in ``SumLog``."""
        self._stream.close()

    def _write(self, device: int, data: bytes) -> None:
        head = len(data).to_bytes(4, "little") + device.to_bytes(4, "little")
        record = head[:4] + zlib.crc32(head + data).to_bytes(4, "little") + head[4:] + data
        try:
            self._stream.write(record)
        except OSError as error:
            raise _refused(error) from error
        self._end += len(record)

    def _sync(self) -> None:
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise _refused(error) from error

    def _records(self) -> Iterator[tuple[int, bytes]]:
        self._stream.seek(0)
        while len(head := self._stream.read(_HEADER)) == _HEADER:
            size, device = head[:4], head[8:]
            data = self._stream.read(int.from_bytes(size, "little"))
            if zlib.crc32(size + device + data) != int.from_bytes(head[4:8], "little"):
                return
            yield int.from_bytes(device, "little"), data


def _refused(error: OSError) -> StorageError:
    return StorageError(
        "could not write the log of a secure sum: "
        f"{error.strerror or type(error).__name__}; the sum is broken off and "
        "stays masked"
    )
