"""Files of a run: its checkpoint, the log of the masked sum under way, and released bits."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol import decode
from hdpmf.errors import FederationError, StorageError
from hdpmf.untrusted.recommender.release import Release

M = TypeVar("M")

Stage = Literal["gather", "open", "count", "work", "fit", "done"]


class Period(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The state of a task for two servers.

    Attributes:
        document: The Task, encoded: saved before anybody gets it.
        job: Id under which its sum is asked for: saved with it, so that there is one request only.
        placed: Both servers have the task.
        collection: Both servers' shares of the sum, encrypted to the recommender.
    """

    document: bytes
    job: bytes
    placed: bool = False
    collection: bytes = b""


class Trouble(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a run cannot go on, for the operator.

    Attributes:
        remedy: What the operator can do; empty if nothing but to wait.
        at: Unix time at which it was found.
        retry: Unix time of the next attempt; None if there is none, or one is under way.
    """

    cause: str
    remedy: str = ""
    at: float
    retry: float | None = None


class Checkpoint(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The state of a run, saved before it is acted upon, so that a restart says the same again.

    Attributes:
        stage: ``gather`` (who takes part), ``open`` (the plan), ``count`` (the opening or, with
            taste labels, the survey), ``work`` (rounds, the survey, or the grouping), ``fit`` (a
            survey's model is made), ``done``.
        agreed: Devices that agreed to the terms.
        members: Devices whose ratings are counted: only these can take part in rounds.
        counted: With taste labels, the Popularity of all devices, encoded.
        round: The Round that is under way, or the Grouping, encoded.
        answer: To a survey, encoded.
        lists: The model for lists that was trained on it, encoded.
        users: Users in each completed round.
        lost: Rounds that were given up.
        seconds: Of each completed round.
        impossible: Numbers of sums that were clamped to what so many users can have.
        barred: Devices that gave or dealt wrong shares; they are asked for no more sums.
        refusals: By reason, so far.
        periods: With two servers: the tasks of this run, one or, with taste labels, two.
    """

    stage: Stage = "gather"
    agreed: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    opening: bytes = b""
    counted: bytes = b""
    round: bytes = b""
    answer: bytes = b""
    lists: bytes = b""
    users: list[int] = msgspec.field(default_factory=list)
    lost: list[int] = msgspec.field(default_factory=list)
    seconds: list[float] = msgspec.field(default_factory=list)
    impossible: int = 0
    barred: tuple[str, ...] = ()
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    periods: list[Period] = msgspec.field(default_factory=list)


def decode_as(data: bytes, kind: type[M]) -> M:
    """A message in a checkpoint."""
    message = decode(data)
    if not isinstance(message, kind):
        raise FederationError(
            f"the checkpoint holds a {type(message).__name__} where a {kind.__name__} "
            "should be; start a new run"
        )
    return message


class RunFiles:
    """Storage of a run's state. This one keeps nothing, for simulations."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep the checkpoint, whole or not at all."""

    def load(self) -> Checkpoint:
        """The last one; a new one where there is none."""
        return Checkpoint()

    def keep_trouble(self, trouble: Trouble | None) -> None:
        """Keep why the run cannot go on; None: it goes on."""

    def trouble(self) -> Trouble | None:
        """Return why the run cannot go on; None if it goes on."""
        return None

    def sum_log(self, number: int) -> SumLog:
        """The log of the secure sum of a job."""
        return SumLog()

    def drop_sum_log(self, number: int) -> None:
        """The sum is over."""

    def keep_release(self, release: Release) -> None:
        """Keep the data set that devices' bits are."""

    def token_folder(self) -> Path | None:
        """Return where the keys for tokens are, and who has one; None: in memory."""
        return None


class RunFolder(RunFiles):
    """A run's folder on disk, which exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, checkpoint: Checkpoint) -> None:
        """As in ``RunFiles``. A run that has something to save goes on."""
        atomic_write(
            self.folder / "checkpoint.msgpack", msgspec.msgpack.encode(checkpoint), mode=0o600
        )
        self.keep_trouble(None)

    def load(self) -> Checkpoint:
        """As in ``RunFiles``."""
        path = self.folder / "checkpoint.msgpack"
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=Checkpoint)
        except FileNotFoundError:
            return Checkpoint()
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{path} cannot be read ({type(error).__name__}); start a new run"
            ) from error

    def keep_trouble(self, trouble: Trouble | None) -> None:
        """As in ``RunFiles``."""
        path = self.folder / _TROUBLE
        if trouble is None:
            path.unlink(missing_ok=True)
        else:
            atomic_write(path, msgspec.json.format(msgspec.json.encode(trouble), indent=1))

    def trouble(self) -> Trouble | None:
        """As in ``RunFiles``."""
        path = self.folder / _TROUBLE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Trouble)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{path} cannot be read ({type(error).__name__}); it only says why the run waits: "
                "delete it"
            ) from error

    def sum_log(self, number: int) -> SumLog:
        """As in ``RunFiles``."""
        return SumLogFile(self._log_path(number))

    def drop_sum_log(self, number: int) -> None:
        """As in ``RunFiles``."""
        self._log_path(number).unlink(missing_ok=True)

    def keep_release(self, release: Release) -> None:
        """Keep a release, for the recommender's eyes: people are in the order of the roster."""
        release.save(self.folder / "ratings.release", mode=0o600)

    def token_folder(self) -> Path | None:
        """As in ``RunFiles``."""
        return self.folder

    def _log_path(self, number: int) -> Path:
        return self.folder / f"sum-{number}.log"


_TROUBLE = "trouble.json"

_HEADER = 12  # length, checksum, device, 4 bytes each

CLOSED = (1 << 32) - 1
"""In place of a device's number: the step was closed."""


class SumLog:
    """Storage of the messages of one sum. This one keeps nothing, for simulations."""

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
    """The log of one sum in a file, made if absent.

    A last record that was cut short is dropped: its message was not acted upon, and its device will
    be asked again.
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
        """Keep a message: safe from the death of this process, and of the machine with the step."""
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
            size = head[:4]
            device = head[8:]
            data = self._stream.read(int.from_bytes(size, "little"))
            if zlib.crc32(size + device + data) != int.from_bytes(head[4:8], "little"):
                return
            yield int.from_bytes(device, "little"), data


def _refused(error: OSError) -> StorageError:
    return StorageError(
        f"could not write the log of a secure sum: {error.strerror or type(error).__name__}; the "
        "sum is broken off and stays masked"
    )
