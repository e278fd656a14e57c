"""Settings of a run."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.protocol import Survey
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.task import MAX_PERIOD
from hdpmf.errors import ConfigError
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
