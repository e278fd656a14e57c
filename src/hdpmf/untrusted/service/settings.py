"""Settings of a run, and its files: its checkpoint, and why it cannot go on."""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.methods import method_named
from hdpmf.common.privacy.pairs import PairsPlan, plan_for
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.task import EVERYBODY, MAX_PERIOD
from hdpmf.errors import ConfigError, StorageError

METHOD = "hdp-pairs"
"""The method that devices take part in."""

VIEW = "two-servers"
"""What its recommender sees."""

MOST_HEADS = 300
"""Of a task: devices take no more. A report of 300 heads has 390 kB."""

DAY = 86_400
"""Seconds that a task takes reports for, unless said otherwise."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Public settings of a run, which stay as they are until its end.

    Attributes:
        minimum: Fewest reports in a sum.
        epsilon: The budget of a person for all that is sent about them.
        delta: Goes with it.
        heads: How many items have pairs, at most; None: by public numbers.
        cap: One rating is at most one part in so many of what is sent of a person.
        asked: The share of people who are asked, in parts of ``EVERYBODY``.
        period: Seconds in which each of the run's two tasks takes reports.
        precision: Seconds to which the times of reports are rounded; the whole period where not
            given, so that they tell nothing.
    """

    minimum: int
    epsilon: float = method_named(METHOD).default("epsilon")
    delta: float = method_named(METHOD).default("delta")
    heads: int | None = None
    cap: int = 16
    asked: int = EVERYBODY
    period: int = DAY
    precision: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ConfigError(
                f"a sum by two servers is over 2 reports at least, not {self.minimum}"
            )
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 < self.delta <= 0.1):
            raise ConfigError(
                f"epsilon must be a positive number and delta at most 0.1, not {self.epsilon} and "
                f"{self.delta}"
            )
        if self.heads is not None and not 2 <= self.heads <= MOST_HEADS:
            raise ConfigError(f"there are 2 to {MOST_HEADS} heads, not {self.heads}")
        if self.cap < 1 or not 1 <= self.asked <= EVERYBODY:
            raise ConfigError("a cap is one part in 1 or more, and 1 to all people are asked")
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
        heads = "auto" if self.heads is None else self.heads
        return {"epsilon": self.epsilon, "delta": self.delta, "heads": heads, "cap": 1 / self.cap}

    def plan(self, known: KnownItems, people: int) -> PairsPlan:
        """Return the public parameters of a run over these items with so many people enrolled."""
        live = len(known.items) - len(known.retired)
        asked = max(1, people * self.asked // EVERYBODY)

        def plan(heads: int | None) -> PairsPlan:
            return plan_for(
                self.epsilon,
                self.delta,
                asked,
                len(known.items),
                stars=known.scale != IMPLICIT_SCALE,
                heads=heads,
                kappa=1 / self.cap,
            )

        most = min(MOST_HEADS, live) if self.heads is None else min(self.heads, live)
        by_rule = plan(self.heads)
        return by_rule if by_rule.heads <= most else plan(most)


ATTEMPTS = 5
"""Tries to reach the servers before a run waits."""


class Pace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waiting times of the recommender.

    Attributes:
        pause: Seconds between attempts.
        retry: Seconds, at least, before a run that could not go on is tried again.
    """

    pause: float = 2.0
    retry: float = 60.0

    def __post_init__(self) -> None:
        for name in ("pause", "retry"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"{name} must be 0 or more seconds, not {getattr(self, name)}")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """A time like 90s, 30m, 12h or 7d, in seconds."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time; write it as 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS[found[2]]


RUN_BYTES = 16


class Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One of a run's two tasks, as far as it is.

    Attributes:
        document: The Task, encoded: saved before anybody gets it; empty before it is made.
        placed: Both servers have the task.
        collection: Both servers' shares of the sum, encrypted to the recommender.
        numbers: The sum with both noises, as little-endian whole numbers of 64 bits.
        reports: How many are in it.
    """

    document: bytes = b""
    placed: bool = False
    collection: bytes = b""
    numbers: bytes = b""
    reports: int = 0

    @property
    def sum(self) -> np.ndarray:
        """The sum; empty before it is there."""
        return np.frombuffer(self.numbers, "<i8").astype(np.int64)


class Checkpoint(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The state of a run, saved before it is acted upon, so that a restart says the same again."""

    linear: Part = msgspec.field(default_factory=Part)
    pairs: Part = msgspec.field(default_factory=Part)

    @property
    def current(self) -> Part:
        """The task that is under way, or was the last."""
        return self.pairs if self.linear.numbers else self.linear

    @property
    def done(self) -> bool:
        """Both sums are there."""
        return bool(self.pairs.numbers)


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
