"""The policy of a device, which bounds every choice of a recommender; people edit it as TOML."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from hdpmf.common.methods import RUN_EPSILON, federated, method_named
from hdpmf.common.protocol.federation import Terms
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.aggregation.masks import SumPolicy
    from hdpmf.common.protocol.servers import Servers

_CHOICE = f"choose from {', '.join(federated())}"


NO_LIMIT = "no limit"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms that a device agrees to.

    Attributes:
        methods: The methods that it takes part in.
        allow_nominal: Also where the epsilon is nominal, that is no guarantee.
        allow_unprotected: Also where nothing is hidden (``mf``).
        require_sums: Only where the recommender sees sums over devices.
        epsilon: Budget of a rating of weight 1 over its whole life, all recommenders and runs
            together; a rating of weight W has W times this.
        max_total: Most that all ratings of one user may spend together, ever; None or infinite sets
            no limit. It is filled exactly: the last rating enters with the weight that is left, and
            those beyond it are left out, whatever their values.
        devices: Devices of one person that share ``epsilon`` and ``max_total``: each spends its
            part at most, so that they need not hear of each other, and a rating that is on all of
            them spends no more than on one.
        max_ratings: Most ratings of one user that take part in one run; None sets no limit. In
            secure sums it is as much weight as so many ratings of weight 1 have, and those that are
            left out of a sum have no part in later ones of the same recommender.
        max_epsilon_per_run: Most that a run may ask for; None allows all of epsilon in one run.
        min_epsilon_per_run: A run that asks for less is refused: what nobody can learn from would
            only ask whether this device is there.
        min_participants: Users that every sum is over.
        min_devices: Devices that a sum is over.
        min_raters: Items with fewer raters are left out by this device.
        threshold_fraction: More than this part of a device's neighbours must survive a secure sum,
            as ``"2/3"``.
        min_neighbours: Neighbours in a secure sum.
        min_fraction: Part of the pinned roster that every sum is over, as ``"1/10"``.
        max_colluding: Part of the pinned roster that may work for the recommender: without their
            shares, too, there is enough noise in every sum.
        max_credit: Users, at most, that one device of a sum counts for. A device states its number
            itself, and nobody checks it.
        max_plans_per_day: Plans of secure sums, of one recommender within a day, that it draws for
            without sending a vector: each is another chance that those who hold shares work for the
            recommender.
        min_period: Seconds that a task for two servers is open, at least; a quarter of it must be
            left when this device takes it. Who asks at short notice asks who is there.
        max_tasks_per_day: Tasks for two servers, of one recommender within 24 hours, that it takes.
        servers: Pairs of servers, by their digests, that may sum this device's reports; with none
            it reports to nobody.
        max_list_bytes: Most that a model for lists may take on this device; for few items it is
            less.
        ask: Ask the owner before each run (see ``consent``), however well it fits the rest.
    """

    methods: tuple[str, ...] = ("hdp-sum",)
    allow_nominal: bool = False
    allow_unprotected: bool = False
    require_sums: bool = True
    epsilon: float = 1.0
    max_total: float | None = 50.0
    devices: int = 1
    max_ratings: int | None = None
    max_epsilon_per_run: float | None = RUN_EPSILON
    min_epsilon_per_run: float = 0.001
    max_rounds: int = 200
    min_participants: int = 16
    min_devices: int = 16
    min_raters: int = 1
    threshold_fraction: str = "2/3"
    min_neighbours: int = 64
    min_fraction: str = "1/10"
    max_colluding: str = "1/20"
    max_credit: int = 1
    max_plans_per_day: int = 64
    min_period: int = 3600
    max_tasks_per_day: int = 4
    servers: tuple[str, ...] = ()
    max_list_bytes: int = 16_000_000
    ask: bool = False

    def __post_init__(self) -> None:
        known = federated()
        unknown = [name for name in self.methods if name not in known]
        if unknown:
            raise ConfigError(
                f"policy: there is no method {unknown[0]!r} between machines; {_CHOICE}"
            )
        for name in ("epsilon", "max_total", "max_epsilon_per_run", "min_epsilon_per_run"):
            number = getattr(self, name)
            unlimited = name == "max_total" and number == math.inf
            if number is not None and not unlimited and not (math.isfinite(number) and number > 0):
                raise ConfigError(f"policy: {name} must be a positive number")
        for name, least in (
            ("devices", 1),
            ("max_ratings", 1),
            ("max_rounds", 1),
            ("min_participants", 2),
            ("min_devices", 2),
            ("min_raters", 1),
            ("min_neighbours", 1),
            ("max_credit", 1),
            ("max_plans_per_day", 1),
            ("min_period", 0),
            ("max_tasks_per_day", 1),
            ("max_list_bytes", 0),
        ):
            given = getattr(self, name)
            if given is not None and given < least:
                raise ConfigError(f"policy: {name} must be {least} or more")
        if not Fraction(1, 2) <= self.fraction < 1:
            raise ConfigError(
                "policy: threshold_fraction must be from 1/2 to less than 1, as '2/3'"
            )
        for name in ("min_fraction", "max_colluding"):
            if not 0 <= self._fraction(name) < 1:
                raise ConfigError(f"policy: {name} must be from 0 to less than 1, as '1/10'")

        if not all(
            len(_plain(pair)) == 32 and set(_plain(pair)) <= set("0123456789abcdef")
            for pair in self.servers
        ):
            raise ConfigError(
                "policy: servers must be digests of pairs of servers: 32 digits, as join "
                "prints them"
            )

    def _fraction(self, name: str) -> Fraction:
        try:
            return Fraction(getattr(self, name))
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"policy: {name} must be a fraction, as '2/3'") from None

    @property
    def fraction(self) -> Fraction:
        """``threshold_fraction`` as a number."""
        return self._fraction("threshold_fraction")

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
        if terms.method not in self.methods:
            raise PrivacyError(
                f"the policy does not allow {terms.method} (methods = {', '.join(self.methods)})"
            )
        worth = method_named(terms.method).claim(terms.view, labels=terms.labels).status
        if worth == "none" and not self.allow_unprotected:
            raise PrivacyError(
                f"the policy does not allow {terms.method} where the recommender sees "
                f"{terms.view}: nothing is hidden"
            )
        if worth in ("nominal", "author's claim") and not self.allow_nominal:
            raise PrivacyError(
                f"the policy does not allow {terms.method}: its epsilon is "
                f"{'nominal' if worth == 'nominal' else 'only what its author claims'}, no "
                "guarantee"
            )
        if self.require_sums and terms.view == "messages":
            raise PrivacyError(
                "the policy asks for secure sums; this run would show single messages"
            )
        if terms.rounds > self.max_rounds:
            raise PrivacyError(
                f"the run has {terms.rounds} rounds; the policy allows {self.max_rounds}"
            )
        if worth != "none" and terms.epsilon > self.epsilon_per_run:
            raise PrivacyError(
                f"the run asks for epsilon {terms.epsilon:g}; the policy allows "
                f"{self.epsilon_per_run:g} ({self._run_limit})"
            )
        if worth == "proved" and terms.epsilon < self.min_epsilon_per_run:
            raise PrivacyError(
                f"the run asks for epsilon {terms.epsilon:g}, from which nothing is learnt; the "
                f"policy asks for {self.min_epsilon_per_run:g} or more"
            )
        if terms.view != "messages" and terms.minimum < self.min_participants:
            raise PrivacyError(
                f"the run's sums may be over {terms.minimum} users; the policy asks for "
                f"{self.min_participants}"
            )

    def check_roster(self, terms: Terms, users: Sequence[int]) -> None:
        """Raise PrivacyError if sums could be over too few of a roster, or too few make the noise.

        The recommender chooses who is in a sum, so limits are relative to the roster, and every
        colluding device may be in it, those that count for most users first.

        Args:
            terms: What a run asks for.
            users: Users behind each device of the pinned roster.
        """
        if terms.view != "sums":
            return
        if terms.credit > self.max_credit:
            raise PrivacyError(
                f"the run counts {terms.credit} users on one device; the policy allows "
                f"{self.max_credit}"
            )
        credits = sorted((min(count, terms.credit) for count in users), reverse=True)
        least = self._fraction("min_fraction") * sum(credits)
        if terms.minimum < least:
            raise PrivacyError(
                f"the run's sums may be over {terms.minimum} users; the policy asks for "
                f"{self.min_fraction} of the roster, which is {math.ceil(least)}"
            )
        colluding = sum(credits[: math.ceil(self._fraction("max_colluding") * len(credits))])
        if terms.sharing > terms.minimum - colluding:
            raise PrivacyError(
                f"the run's noise is made of {terms.sharing} users' shares; of {terms.minimum} "
                f"in a sum {colluding} "
                f"may tell theirs (max_colluding = {self.max_colluding} of the roster)"
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

    def sum_policy(self) -> SumPolicy:
        """The least that this device requires of a secure sum."""
        from hdpmf.common.aggregation.masks import SumPolicy

        return SumPolicy(
            min_survivors=self.min_devices,
            min_neighbours=self.min_neighbours,
            threshold_fraction=self.fraction,
            max_colluding=self._fraction("max_colluding"),
            min_fraction=self._fraction("min_fraction"),
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
    "methods": f"Methods that this device takes part in; {_CHOICE}.",
    "allow_nominal": "Take part where the epsilon is nominal: it counts one channel of several "
    "and is no guarantee.",
    "allow_unprotected": "Take part where nothing is hidden (mf): the recommender can compute the "
    "ratings.",
    "require_sums": "Only where the recommender sees sums over devices, never single messages.",
    "epsilon": "Budget of a rating of weight 1 over its whole life, all recommenders and runs "
    "together.",
    "max_total": "Most that all ratings of one user may spend together, ever; the rest is left "
    "out. inf: no limit.",
    "devices": "Your devices, this one included, that share epsilon and max_total: each may "
    "spend its part.",
    "max_ratings": "Most ratings of one user that take part in a run, chosen blindly; in secure "
    "sums, so much weight.",
    "max_epsilon_per_run": 'Most epsilon that one run may ask for; "no limit": all of epsilon.',
    "min_epsilon_per_run": "Least epsilon of a run: with less nothing is learnt, but that this "
    "device is there.",
    "max_rounds": "Most rounds of a run.",
    "min_participants": "Users, at least, that every sum is over.",
    "min_devices": "Devices, at least, that a sum is over.",
    "min_raters": "Items with fewer raters are left out by this device.",
    "threshold_fraction": "More than this part of a device's neighbours must survive a secure sum.",
    "min_neighbours": "Neighbours of a device in a secure sum, at least (or everyone).",
    "min_fraction": "Part of the roster, at least, that every sum is over.",
    "max_colluding": "Part of the roster that may work for the recommender; noise is enough "
    "without theirs.",
    "max_credit": "Users, at most, that one device of a sum is taken for, whatever it says.",
    "max_plans_per_day": "Plans of secure sums, at most, that a recommender may break off within "
    "a day.",
    "min_period": "Seconds, at least, that a task for two servers is open; a quarter of it must be "
    "left when this device takes it.",
    "max_tasks_per_day": "Tasks for two servers, at most, that a recommender may give this device "
    "within a day.",
    "servers": "Pairs of servers, by digest, that may sum this device's reports (join "
    "--servers writes it).",
    "max_list_bytes": "Bytes, at most, of a model for lists (public numbers that order items); 0 "
    "takes none.",
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
