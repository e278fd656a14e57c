"""Settings of a run, and its files: its checkpoint, and why it cannot go on."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.protocol import SumContribution, Survey, decode
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.task import MAX_PERIOD
from hdpmf.errors import ConfigError, FederationError, StorageError
from hdpmf.untrusted.recommender.sums import make_survey

METHOD = "hdp-sum"
"""The method that devices take part in."""

VIEW = "two-servers"
"""What its recommender sees."""

DAY = 86_400
"""Seconds that a task takes reports for, unless said otherwise."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Public settings of a run, which stay as they are until its end.

    Attributes:
        minimum: Fewest reports in a sum.
        epsilon: The largest budget of a rating.
        coding: The curve that ratings are coded by.
        prior: Name of the shipped prior to fit vectors with.
        period: Seconds in which reports are taken.
        precision: Seconds to which the times of reports are rounded; the whole period where not
            given, so that they tell nothing.
    """

    minimum: int
    epsilon: float = RUN_EPSILON
    coding: str = "auto"
    prior: str | None = None
    period: int = DAY
    precision: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ConfigError(
                f"a sum by two servers is over 2 reports at least, not {self.minimum}"
            )
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ConfigError(f"epsilon must be a positive number, not {self.epsilon}")
        if not 1 <= self.period <= MAX_PERIOD:
            raise ConfigError(
                f"a period must have 1 to {MAX_PERIOD:,} seconds, not {self.period:,}"
            )
        if self.rounded < 1 or self.period % self.rounded:
            raise ConfigError(
                f"a period of {self.period:,} s is no multiple of a precision of {self.rounded:,} s"
            )

    @property
    def rounded(self) -> int:
        """Seconds to which the times of reports are rounded."""
        return self.period if self.precision is None else self.precision

    def model_params(self) -> dict[str, Any]:
        """The parameters of the library's model that the same run would give."""
        return {"epsilon": self.epsilon, "coding": self.coding, "prior": self.prior}

    def survey(self, known: KnownItems) -> Survey:
        """Return the survey; each server adds the whole noise."""
        return make_survey(
            "A",
            self.epsilon,
            known.scale,
            n_items=len(known.items),
            catalogue=known.fingerprint,
            contributors=1,
            coding=self.coding,
        )


class Pace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waiting times and numbers of tries of the recommender.

    Attributes:
        attempts: Tries to reach the servers before a run waits.
        pause: Seconds between attempts.
        retry: Seconds, at least, before a run that could not go on is tried again.
    """

    attempts: int = 5
    pause: float = 2.0
    retry: float = 60.0

    def __post_init__(self) -> None:
        for name in ("pause", "retry"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"{name} must be 0 or more seconds, not {getattr(self, name)}")
        if self.attempts < 1:
            raise ConfigError("attempts must be at least 1")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """A time like 90s, 30m, 12h or 7d, in seconds."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time; write it as 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS[found[2]]


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
        path = self.folder / "trouble.json"
        if trouble is None:
            path.unlink(missing_ok=True)
        else:
            atomic_write(path, msgspec.json.format(msgspec.json.encode(trouble), indent=1))

    def trouble(self) -> Trouble | None:
        """Return why the run cannot go on; None if it goes on."""
        if self.folder is None:
            return None
        path = self.folder / "trouble.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Trouble)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{path} cannot be read ({type(error).__name__}); it only says why the run waits: "
                "delete it"
            ) from error
