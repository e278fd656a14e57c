"""What a run keeps: its checkpoint and the log of the secure sum under way, to go on after a
kill; released bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol import decode
from hdpmf.errors import FederationError, StorageError
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.sum_log import SumLog, SumLogFile

M = TypeVar("M")
Stage = Literal["gather", "open", "count", "work", "deliver", "done"]


class Period(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A task that two servers sum, as far as it is.

    Attributes:
        document: The Task, encoded: written down before anybody gets it.
        job: Under which its sum is asked for: written down with it, so that there is one request
            only.
        placed: Both servers have the task.
        collection: What it gave: both servers' shares of the sum, encrypted to the recommender.
    """

    document: bytes
    job: bytes
    placed: bool = False
    collection: bytes = b""


class Checkpoint(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a run is. It is saved before what it says is sent, so that a restart says the same
    again.

    Attributes:
        stage: ``gather`` (who takes part), ``open`` (the plan), ``count`` (the opening or, with
            taste labels, the survey), ``work`` (rounds, the survey, or the grouping), ``deliver``
            (the result goes out), ``done``.
        agreed: Devices that agreed to the terms.
        members: Devices whose ratings are counted: only these can take part in rounds.
        opening: The Opening, encoded.
        counted: With taste labels, the Popularity of all devices, encoded.
        round: The Round that is under way, or the Grouping, encoded.
        answer: What came of a survey, encoded.
        lists: The model for lists that was trained on it, encoded.
        users: Users in each completed round.
        lost: Rounds that were given up.
        seconds: Of each completed round.
        delivered: Devices that have the result.
        impossible: Numbers of sums that were brought to what so many users can have.
        barred: Devices that gave or dealt wrong shares in a secure sum; they are asked for no more
            sums.
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
    delivered: tuple[str, ...] = ()
    impossible: int = 0
    barred: tuple[str, ...] = ()
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    periods: list[Period] = msgspec.field(default_factory=list)


def kept(data: bytes, kind: type[M]) -> M:
    """A message in a checkpoint."""
    message = decode(data)
    if not isinstance(message, kind):
        raise FederationError(
            f"the checkpoint holds a {type(message).__name__} where a {kind.__name__} "
            "should be; start a new run"
        )
    return message


class RunFiles:
    """Where a run keeps what it needs to go on. This one keeps nothing, for simulations."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep the checkpoint, whole or not at all."""

    def load(self) -> Checkpoint:
        """The last one; a new one where there is none."""
        return Checkpoint()

    def sum_log(self, number: int) -> SumLog:
        """The log of the secure sum of a job."""
        return SumLog()

    def drop_sum_log(self, number: int) -> None:
        """The sum is over."""

    def keep_release(self, release: Release) -> None:
        """Keep the data set that devices' bits are."""


class RunFolder(RunFiles):
    """A run's folder on disk.

    Args:
        folder: Exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, checkpoint: Checkpoint) -> None:
        """As in ``RunFiles``."""
        atomic_write(
            self.folder / "checkpoint.msgpack", msgspec.msgpack.encode(checkpoint), mode=0o600
        )

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

    def sum_log(self, number: int) -> SumLog:
        """As in ``RunFiles``."""
        return SumLogFile(self._log_path(number))

    def drop_sum_log(self, number: int) -> None:
        """As in ``RunFiles``."""
        self._log_path(number).unlink(missing_ok=True)

    def keep_release(self, release: Release) -> None:
        """As in ``RunFiles``. For the recommender's eyes: the order of people in it is that of
        the roster.
        """
        release.save(self.folder / "ratings.release", mode=0o600)

    def _log_path(self, number: int) -> Path:
        return self.folder / f"sum-{number}.log"
