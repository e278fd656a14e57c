"""Files of a run: its checkpoint, and why it cannot go on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol import SumContribution, decode
from hdpmf.errors import FederationError, StorageError

RUN_BYTES = 16


class Checkpoint(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The state of a run, saved before it is acted upon, so that a restart says the same again.

    Attributes:
        document: The Task, encoded: saved before anybody gets it; empty before it is made.
        job: Id under which its sum is asked for: saved with it, so that there is one request only.
        placed: Both servers have the task.
        collection: Both servers' shares of the sum, encrypted to the recommender.
        answer: The sum, encoded.
        reports: How many are in it.
        impossible: Numbers of the sum that were clamped to what so many people can have.
    """

    document: bytes = b""
    job: bytes = b""
    placed: bool = False
    collection: bytes = b""
    answer: bytes = b""
    reports: int = 0
    impossible: int = 0

    def sum(self) -> SumContribution:
        """Return the answer; FederationError before it is there."""
        answer = decode(self.answer) if self.answer else None
        if not isinstance(answer, SumContribution):
            raise FederationError("the checkpoint holds no answer to the survey; start a new run")
        return answer


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


class RunFiles:
    """A run's folder; with None it keeps nothing, for simulations."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep the checkpoint, whole or not at all. A run that has something to save goes on."""
        if self.folder is not None:
            data = msgspec.msgpack.encode(checkpoint)
            atomic_write(self.folder / "checkpoint.msgpack", data, mode=0o600)
            self.keep_trouble(None)

    def load(self) -> Checkpoint:
        """The last one; a new one where there is none."""
        if self.folder is None:
            return Checkpoint()
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
        """Keep why the run cannot go on; None: it goes on."""
        if self.folder is None:
            return
        path = self.folder / _TROUBLE
        if trouble is None:
            path.unlink(missing_ok=True)
        else:
            atomic_write(path, msgspec.json.format(msgspec.json.encode(trouble), indent=1))

    def trouble(self) -> Trouble | None:
        """Return why the run cannot go on; None if it goes on."""
        if self.folder is None:
            return None
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


_TROUBLE = "trouble.json"
