"""The policy of a device, which bounds every choice of a recommender; people edit it as TOML."""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, ClassVar

import msgspec

from hdpmf.common.methods import RUN_EPSILON, View
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.protocol.servers import Servers

NO_LIMIT = "no limit"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks for, by this device's own reading.

    Attributes:
        method: The only one that leaves a device.
        view: What the recommender sees.
        epsilon: The largest budget of a rating.
        rounds: How often numbers are asked for.
        catalogue: Fingerprint of the items.
        minimum: Fewest reports that its sum is over.
    """

    method: ClassVar[str] = "hdp-sum"
    view: ClassVar[View] = "two-servers"
    rounds: ClassVar[int] = 1
    epsilon: float
    catalogue: str
    minimum: int


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms that a device agrees to.

    Attributes:
        epsilon: Budget of a rating of weight 1 over its whole life, all recommenders and runs
            together; a rating of weight W has W times this.
        max_total: Most that all ratings of one user may spend together, ever; None or infinite sets
            no limit. It is filled exactly: the last rating enters with the weight that is left, and
            those beyond it are left out, whatever their values.
        devices: Devices of one person that share ``epsilon`` and ``max_total``: each spends its
            part at most, so that they need not hear of each other, and a rating that is on all of
            them spends no more than on one.
        max_ratings: Most weight of one user that takes part in one run, in ratings of weight 1;
            None sets no limit. What is left out of a sum has no part in later ones of the same
            recommender.
        max_epsilon_per_run: Most that a run may ask for; None allows all of epsilon in one run.
        min_epsilon_per_run: A run that asks for less is refused: what nobody can learn from would
            only ask whether this device is there.
        min_participants: Reports that every sum is over. It keeps sums that nobody learns from
            away and protects nobody: the recommender may have sent all others.
        min_period: Seconds that a task for two servers is open, at least; a quarter of it must be
            left when this device takes it. Who asks at short notice asks who is there.
        max_tasks_per_day: Tasks for two servers, of one recommender within 24 hours, that it takes.
        servers: Pairs of servers, by their digests, that may sum this device's reports; with none
            it reports to nobody.
        ask: Ask the owner before each run (see ``consent``), however well it fits the rest.
    """

    epsilon: float = 1.0
    max_total: float | None = 50.0
    devices: int = 1
    max_ratings: int | None = None
    max_epsilon_per_run: float | None = RUN_EPSILON
    min_epsilon_per_run: float = 0.001
    min_participants: int = 16
    min_period: int = 3600
    max_tasks_per_day: int = 4
    servers: tuple[str, ...] = ()
    ask: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon", "max_total", "max_epsilon_per_run", "min_epsilon_per_run"):
            number = getattr(self, name)
            unlimited = name == "max_total" and number == math.inf
            if number is not None and not unlimited and not (math.isfinite(number) and number > 0):
                raise ConfigError(f"policy: {name} must be a positive number")
        for name, least in (
            ("devices", 1),
            ("max_ratings", 1),
            ("min_participants", 2),
            ("min_period", 0),
            ("max_tasks_per_day", 1),
        ):
            given = getattr(self, name)
            if given is not None and given < least:
                raise ConfigError(f"policy: {name} must be {least} or more")
        if not all(
            len(_plain(pair)) == 32 and set(_plain(pair)) <= set("0123456789abcdef")
            for pair in self.servers
        ):
            raise ConfigError(
                "policy: servers must be digests of pairs of servers: 32 digits, as join "
                "prints them"
            )

    @property
    def own_epsilon(self) -> float:
        """This device's part of ``epsilon``."""
        return self.epsilon / self.devices

    @property
    def own_total(self) -> float:
        """This device's part of ``max_total``; infinite where there is no limit."""
        return math.inf if self.max_total is None else self.max_total / self.devices

    @property
    def epsilon_per_run(self) -> float:
        """Most that one run may ask of a rating of weight 1."""
        if self.max_epsilon_per_run is None:
            return self.own_epsilon
        return min(self.own_epsilon, self.max_epsilon_per_run)

    @property
    def _run_limit(self) -> str:
        if self.epsilon_per_run == self.max_epsilon_per_run:
            return "max_epsilon_per_run"
        return "epsilon" if self.devices == 1 else f"epsilon / {self.devices} devices"

    def check(self, terms: Terms) -> None:
        """Raise PrivacyError, with the reason, if a run asks for more than this policy allows."""
        if terms.epsilon > self.epsilon_per_run:
            raise PrivacyError(
                f"the run asks for epsilon {terms.epsilon:g}; the policy allows "
                f"{self.epsilon_per_run:g} ({self._run_limit})"
            )
        if terms.epsilon < self.min_epsilon_per_run:
            raise PrivacyError(
                f"the run asks for epsilon {terms.epsilon:g}, from which nothing is learnt; the "
                f"policy asks for {self.min_epsilon_per_run:g} or more"
            )
        if terms.minimum < self.min_participants:
            raise PrivacyError(
                f"the run's sum may be over {terms.minimum} reports; the policy asks for "
                f"{self.min_participants}"
            )

    def check_servers(self, servers: Servers) -> None:
        """Raise PrivacyError unless this is a pair of servers that the device's owner trusts."""
        if _plain(servers.digest) not in map(_plain, self.servers):
            trusted = ", ".join(self.servers) or "none"
            raise PrivacyError(
                f"the task is for the servers of {servers.names} (digest {servers.digest}); the "
                f"policy trusts {trusted}"
            )

    def check_period(self, begin: int, end: int, now: float) -> None:
        """Raise PrivacyError if a task is open for too short a time, or soon over."""
        if end - begin < self.min_period:
            raise PrivacyError(
                f"the task is open for {end - begin:,} seconds; the policy asks for "
                f"{self.min_period:,} (min_period)"
            )
        if end - max(now, begin) < self.min_period / 4:
            raise PrivacyError(
                "the task is soon over; the policy asks that a quarter of "
                f"{self.min_period:,} seconds is left (min_period)"
            )

    def to_toml(self) -> str:
        """Return the policy as a TOML file for people."""
        lines = [
            "# What this device agrees to, whatever a recommender says. Comments say what "
            "a line means.",
            "",
        ]
        for name, meaning in _MEANINGS.items():
            value = getattr(self, name)
            lines += [
                f"# {meaning}",
                f'{name} = "{NO_LIMIT}"' if value is None else f"{name} = {_toml(value)}",
                "",
            ]
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, text: str, before: Policy | None = None) -> Policy:
        """Read such a file; what it leaves out stays as it was before, or as it is by default.

        Args:
            before: What was agreed to; a limit of it goes only by a line that says ``"no limit"``.

        Raises:
            ConfigError: It is no TOML, or has an unknown name or a bad value.
        """
        try:
            lines = {
                name: None if value == NO_LIMIT else value
                for name, value in tomllib.loads(text).items()
            }
            return msgspec.convert(msgspec.to_builtins(before or cls()) | lines, cls)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"policy: not a TOML file ({error})") from error
        except msgspec.ValidationError as error:
            raise ConfigError(f"policy: {error}") from error


_MEANINGS = {
    "epsilon": "Budget of a rating of weight 1 over its whole life, all recommenders and runs "
    "together.",
    "max_total": "Most that all ratings of one user may spend together, ever; the rest is left "
    "out. inf: no limit.",
    "devices": "Your devices, this one included, that share epsilon and max_total: each may "
    "spend its part.",
    "max_ratings": "Most ratings of one user that take part in a run, counted by their weight.",
    "max_epsilon_per_run": 'Most epsilon that one run may ask for; "no limit": all of epsilon.',
    "min_epsilon_per_run": "Least epsilon of a run: with less nothing is learnt, but that this "
    "device is there.",
    "min_participants": "Reports, at least, that a sum is over. The noise protects, not these.",
    "min_period": "Seconds, at least, that a task for two servers is open; a quarter of it must be "
    "left when this device takes it.",
    "max_tasks_per_day": "Tasks for two servers, at most, that a recommender may give this device "
    "within a day.",
    "servers": "Pairs of servers, by digest, that may sum this device's reports (join "
    "--servers writes it).",
    "ask": "Ask me before each run: once, always under these terms, or never (hdpmf "
    "device open, or consent).",
}


def _plain(digest: str) -> str:
    return "".join(digest.split())


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{word}"' for word in value) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
