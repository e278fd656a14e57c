"""Settings of a run, and the messages that state them to devices."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from hdpmf.common.methods import RUN_EPSILON, Method, View, federated, method_named
from hdpmf.common.privacy.coding import FEWEST_LABEL_EPSILON
from hdpmf.common.privacy.mechanisms import Mechanism, mechanism_of
from hdpmf.common.protocol import Plan, Survey, Terms
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.federation import MAX_BEACON, cohort_of, is_beacon
from hdpmf.common.protocol.task import MAX_PERIOD
from hdpmf.errors import ConfigError
from hdpmf.untrusted.recommender.one_round import make_survey

_NUMBERS_PER_BIT = 4

_NUMBERS_PER_ITEM = 4  # in sums of the one-round designs: score and weight, of each label

_SHORT_REPLY = 1 << 20
"""Bytes of a reply besides the numbers of items, and of the longest one without any."""

COLLUDING = 0.05
"""Part of a roster that may collude in masked sums, unless said otherwise."""

DAY = 86_400
"""Seconds that a task takes reports for, unless said otherwise."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Public settings of a run, which stay as they are until its end.

    Attributes:
        method: As on the command line.
        view: ``messages``: the recommender sees what each device sends; ``sums``: only secure sums
            over devices; ``two-servers``: only sums that two servers made.
        minimum: Fewest users whose numbers are in a round; with two servers, reports in a sum.
        credit: Most users that one device counts for.
        max_colluding: Part of the roster that may know each other's noise; the rest of ``minimum``
            makes the noise.
        epsilon: The largest budget of a rating.
        rounds: T; the one-round designs have 1, or 2 with taste labels.
        learning_rate: Initial.
        threshold: Of ``pdpmf``: ``mean``, ``min`` or ``max`` of the budgets, or a number.
        scale_steps: Divide a step by the square root of the ratings behind it.
        h_per_item: Draw h for every item, or one for all.
        design: Of ``hdp-sum``: ``A`` or ``S``.
        coding: Of the one-round designs.
        patterns: Of ``hdp-bit``: factors of who rates what with whom; None chooses by the bits.
        list_model: Of ``hdp-bit``: the model that devices order items by.
        labels: Of ``hdp-sum``: the weight of each item feature, and ``popularity``, in the public
            score by which devices draw taste labels; None for no labels. The numbers come with a
            prior, which this side cannot read itself.
        prior: Of the one-round designs: name of the shipped prior to fit vectors with.
        period: With two servers: seconds in which reports are taken; a day where not given.
        cohort: Devices of the roster that are asked; everybody where not given.
        beacon: A public text that came after the roster and chooses them.
        precision: With two servers: seconds to which the times of reports are rounded; the whole
            period where not given, so that they tell nothing.
    """

    method: str
    view: View
    minimum: int
    credit: int = 1
    max_colluding: float = COLLUDING
    epsilon: float = RUN_EPSILON
    rounds: int = 100
    factors: int = 10
    learning_rate: float = 0.01
    reg: float = 0.01
    threshold: str | float = "mean"
    scale_steps: bool = True
    h_per_item: bool = True
    design: Literal["A", "S"] = "A"
    coding: str = "auto"
    patterns: int | None = None
    list_model: str = "ease"
    labels: dict[str, float] | None = None
    prior: str | None = None
    cohort: int | None = None
    beacon: str = ""
    period: int | None = None
    precision: int | None = None

    def __post_init__(self) -> None:
        if self.method not in federated():
            raise ConfigError(
                f"a federation cannot run {self.method!r}; choose from {', '.join(federated())}"
            )
        method = self.kind
        if self.view not in method.views:
            views = " or ".join(map(repr, method.views))
            raise ConfigError(f"{self.method} is made for the view {views}, not {self.view!r}")
        if not (0 <= self.max_colluding < 1 and self.credit >= 1):
            raise ConfigError(
                "max_colluding is a part of the roster, and a device counts for at least one user"
            )
        if self.minimum < 1:
            raise ConfigError(
                f"the smallest number of users must be at least 1, not {self.minimum}"
            )
        self._check_view()
        if self.labels is not None:
            self._check_labels(self.labels)
        rounds = method.form(self.labels is not None).rounds
        if rounds not in (None, self.rounds):
            how = f"{self.method} with labels" if self.labels is not None else self.method
            raise ConfigError(
                f"{how} has {rounds} round{'s' if rounds != 1 else ''}, not {self.rounds}"
            )
        if self.prior is not None:
            method.require("prior")
        for name in ("rounds", "factors"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("epsilon", "learning_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name} must be a positive number, not {getattr(self, name)}")
        if self.patterns is not None and not 0 <= self.patterns <= 100:
            raise ConfigError(f"patterns must be from 0 to 100, not {self.patterns}")
        if "list_model" in method.options:
            method.options["list_model"].check(self.list_model)

    def _check_view(self) -> None:
        if self.cohort is None and self.beacon:
            raise ConfigError("a beacon chooses a cohort; give --cohort, or drop it")
        if self.cohort is not None and not (self.cohort >= 3 and is_beacon(self.beacon)):
            raise ConfigError(
                f"a cohort has 3 devices or more and a beacon, a line of up to {MAX_BEACON} "
                "plain characters"
            )
        if self.view != "two-servers":
            if self.period is not None or self.precision is not None:
                raise ConfigError(
                    "only sums by two servers have a period; drop it, or sum by two servers"
                )
            return
        if self.cohort is not None:
            raise ConfigError(
                "with two servers everybody reports once, when they like; drop --cohort"
            )
        if self.credit != 1 or self.max_colluding != COLLUDING:
            raise ConfigError(
                "with two servers each adds the whole noise, even if devices collude; drop credit "
                "and colluding"
            )
        if self.minimum < 2:
            raise ConfigError(
                f"a sum by two servers is over 2 reports at least, not {self.minimum}"
            )
        if not 1 <= self.seconds <= MAX_PERIOD:
            raise ConfigError(
                f"a period must have 1 to {MAX_PERIOD:,} seconds, not {self.seconds:,}"
            )
        if self.rounded < 1 or self.seconds % self.rounded:
            raise ConfigError(
                f"a period of {self.seconds:,} s is no multiple of a precision of "
                f"{self.rounded:,} s"
            )

    def _check_labels(self, score: dict[str, float]) -> None:
        self.kind.require("labels")
        if self.design != "A":
            raise ConfigError("taste labels belong to design A; drop one of them")
        if self.epsilon < FEWEST_LABEL_EPSILON:
            raise ConfigError(
                f"labels need an epsilon of at least {FEWEST_LABEL_EPSILON:g}, not {self.epsilon:g}"
            )
        if not score or not all(map(math.isfinite, score.values())):
            raise ConfigError("the score for labels must have finite weights")

    @property
    def kind(self) -> Method:
        """The method's definition."""
        return method_named(self.method)

    @property
    def one_round(self) -> bool:
        """True if devices answer a survey once instead of training rounds."""
        return self.kind.one_round

    @property
    def seconds(self) -> int:
        """Of the period in which two servers take reports."""
        return DAY if self.period is None else self.period

    @property
    def rounded(self) -> int:
        """Seconds to which the times of reports for two servers are rounded."""
        return self.seconds if self.precision is None else self.precision

    def model_params(self) -> dict[str, Any]:
        """The parameters of the library's model that the same run would give."""
        return self.kind.own(
            n_factors=self.factors,
            learning_rate=self.learning_rate,
            reg=self.reg,
            epochs=self.rounds,
            epsilon=self.epsilon,
            threshold=self.threshold,
            design=self.design,
            coding=self.coding,
            patterns=self.patterns,
            list_model=self.list_model,
            labels=self.labels is not None,
            prior=self.prior,
        )

    def mechanism(self) -> Mechanism:
        """The mechanism by which ratings enter training."""
        return mechanism_of(self.kind, self.threshold)

    def counted(self, users: Iterable[int]) -> int:
        """Return the users that devices count for: in masked sums at most ``credit`` each."""
        return (
            sum(min(count, self.credit) for count in users) if self.view == "sums" else sum(users)
        )

    def sharing(self, users: Collection[int]) -> int:
        """Return the users whose shares make the whole noise: without those that may collude.

        ``users`` are those behind each device of the roster.
        """
        if self.view == "two-servers":
            return 1  # each server adds the whole noise
        if self.view != "sums":
            return self.minimum
        credits = sorted((min(count, self.credit) for count in users), reverse=True)
        left = self.minimum - sum(credits[: math.ceil(self.max_colluding * len(credits) - 1e-9)])
        if left < 1:
            raise ConfigError(
                f"a sum over {self.minimum} users leaves nobody to make the noise where "
                f"{self.max_colluding:g} of {len(credits)} devices may collude; raise the minimum"
            )
        return left

    def longest_reply(self, n_items: int, users: Collection[int]) -> int:
        """Return the most bytes of an honest device's reply; ``users`` are behind each device."""
        if self.kind.family == "bits":
            numbers = _NUMBERS_PER_BIT * max(users, default=1)
        else:
            numbers = _NUMBERS_PER_ITEM if self.one_round else self.factors
        return _SHORT_REPLY + 8 * n_items * numbers

    def terms(
        self, catalogue: str, users: Collection[int], asked: Collection[int] | None = None
    ) -> Terms:
        """Return the terms for devices.

        Args:
            catalogue: Fingerprint of the items.
            users: Users behind each device of the roster.
            asked: Users behind each device that is asked; everyone's where not given.
        """
        reached = self.counted(users if asked is None else asked)
        if self.minimum > reached:
            raise ConfigError(
                f"the run needs {self.minimum} users and {reached} are asked; enrol more "
                "devices or lower the minimum"
            )
        return Terms(
            method=self.method,
            view=self.view,
            epsilon=self.epsilon,
            rounds=self.rounds,
            catalogue=catalogue,
            users=sum(users if asked is None else asked),
            minimum=self.minimum,
            sharing=self.sharing(users),
            credit=self.credit,
            labels=self.labels is not None,
            cohort=self.cohort,
            beacon=self.beacon,
        )

    def again(self) -> RunSettings:
        """The same for another run: a cohort is drawn anew, by this machine."""
        if self.cohort is None:
            return self
        return msgspec.structs.replace(self, beacon=secrets.token_hex(16))

    def chosen(self, devices: Collection[str]) -> tuple[str, ...]:
        """Return the devices of the roster that are asked, in its order.

        Raises:
            ConfigError: It has fewer devices than are wanted.
        """
        if self.cohort is None:
            return tuple(devices)
        if self.cohort > len(devices):
            raise ConfigError(
                f"a cohort of {self.cohort} is asked for, and {len(devices)} devices are enrolled"
            )
        among = cohort_of(self.beacon, devices, self.cohort)
        return tuple(device for device in devices if device in among)

    def plan(self, known: KnownItems) -> Plan:
        """Return the plan, for the methods that train."""
        return Plan(
            n_items=len(known.items),
            n_factors=self.factors,
            epochs=self.rounds,
            learning_rate=self.learning_rate,
            reg=self.reg,
            mechanism=self.kind.mechanism,  # type: ignore[arg-type]  # one of the registry's names
            epsilon=self.epsilon,
            scale_low=known.scale.low,
            scale_high=known.scale.high,
            scale_steps=self.scale_steps,
            fresh_noise=True,
        )

    def survey(self, known: KnownItems, sharing: int | None = None) -> Survey:
        """Return the survey, for the one-round designs; ``sharing`` users share the noise."""
        if self.labels is not None and known.features is None:
            raise ConfigError(
                "labels are drawn by a public score of item features; this catalogue's items "
                "have none"
            )
        return make_survey(
            "L" if self.kind.family == "bits" else self.design,
            self.epsilon,
            known.scale,
            n_items=len(known.items),
            catalogue=known.fingerprint,
            contributors=self.minimum if sharing is None else sharing,
            coding=self.coding,
            labels=self.labels is not None,
        )


class Pace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waiting times and numbers of tries of the recommender. No device has to agree to them.

    Attributes:
        gather: Seconds to wait for more devices to agree, once there are enough; less when all
            have.
        deadline: Seconds for one answer; a later device has dropped out of that step.
        attempts: Tries of a round with too few participants before the run stops.
        pause: Seconds between attempts, and between looks at who is there.
        neighbours: Of each device in a secure sum.
    """

    gather: float = 60.0
    deadline: float = 30.0
    attempts: int = 5
    pause: float = 2.0
    neighbours: int = 64

    def __post_init__(self) -> None:
        for name in ("gather", "deadline", "pause"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"{name} must be 0 or more seconds, not {getattr(self, name)}")
        if self.deadline == 0 or self.attempts < 1 or self.neighbours < 2 or self.neighbours % 2:
            raise ConfigError(
                "deadline must be above 0, attempts at least 1 and neighbours even and at least 2"
            )

    @property
    def poll_seconds(self) -> float:
        """Seconds between looks at who is there."""
        return min(max(self.pause, 0.1), self.deadline)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """A time like 90s, 30m, 12h or 7d, in seconds."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time; write it as 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS[found[2]]
