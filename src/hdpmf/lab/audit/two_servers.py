"""The distinguishing game against one of two servers and the recommender, on what they really hold.

The server that works with the recommender drops everybody's report but the audited person's and one
of its own, so that the other's noise is all that is left to hide behind. Each rating of the audited
person is a canary, as in ``on_devices``. From the honest server's sum, which the recommender
decrypts, the attacker subtracts what it knows; the score is the exact log-likelihood ratio of the
item's entries. The size of the noise is measured, too.

Shares are attacked by themselves (``shares``): so many persons report, each with one rating that is
not known.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, Claim
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.coding import make_coding, sum_channels, weight_units
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.common.protocol import Grouping, Survey
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.cohort import SCALE
from hdpmf.lab.audit.devices import ENDS, HIGH, LOW, judge
from hdpmf.lab.audit.game import STANDS
from hdpmf.lab.audit.scores import (
    CONFIDENCE,
    CanaryNumbers,
    ObservedCanaries,
    one_run_bound,
    one_run_ceiling,
)
from hdpmf.lab.audit.server_pair import (
    AuditedServers,
    Fault,
    Held,
    Look,
    ServerName,
    look_at_shares,
)
from hdpmf.lab.audit.world import LessNoise
from hdpmf.private.client.contributions import OneRoundShard
from hdpmf.untrusted.recommender.one_round import make_survey

SHARES_TELL = "shares tell"
_METHOD, _CATALOGUE = "hdp-sum", "audit"
_ITEMS = 4  # of a report whose shares are looked at


@dataclass(frozen=True, slots=True)
class ServerAudit:
    """What is put to the test.

    Attributes:
        corrupt: The server that works with the recommender.
        adjacency: What the coins are about: the ``value`` of a rating, lowest or highest, or its
            ``presence``, highest or none.
        labels: By taste labels: two tasks.
        canaries: Ratings of the audited person, and items.
        reports: Persons whose shares are looked at, each with one unknown rating.
        epsilon: Of the survey.
        weight: Privacy weight of all ratings.
        noise_factor: 1 audits servers as they are. Less plants a fault into the honest one: a
            control.
        fault: Planted into devices: their shares or proofs are not random. A control, too.
        confidence: Of the bounds.
        seed: Of the coins. Noise and shares come from the operating system: no two audits are the
            same.
    """

    corrupt: ServerName
    adjacency: str = "value"
    labels: bool = False
    canaries: int = 2_000
    reports: int = 500
    epsilon: float = 1.0
    weight: float = 1.0
    noise_factor: float = 1.0
    fault: Fault | None = None
    confidence: float = CONFIDENCE
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("corrupt", get_args(ServerName)),
            ("adjacency", ("value", "presence")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
                )
        if self.reports < 16:
            raise ConfigError(f"so few reports tell nothing: {self.reports}; take 16 or more")

    @property
    def promise(self) -> Claim:
        """What is claimed."""
        return METHODS[_METHOD].claim("two-servers", labels=self.labels)

    @property
    def claimed(self) -> float:
        """Epsilon of a rating."""
        factor = self.promise.presence if self.adjacency == "presence" else self.promise.value
        return self.epsilon * self.weight * (factor or 0.0)


@dataclass(frozen=True, slots=True)
class ServerAuditResult:
    """What came out of the sums.

    Attributes:
        audit: What was put to the test.
        status: Of the claim.
        epsilon_claimed: What is claimed.
        epsilon_lower_bound: What the guesses prove.
        verdict: ``claim broken``, ``too little noise`` or ``not contradicted``.
        noise: Mean size of the noise that was seen, over that of the proof's law.
        noise_deviation: Standard deviation of that, if the law is right.
        right: Right guesses.
        guesses: Of so many.
        ceiling: The largest bound that so many canaries can prove.
        seconds: Time taken.
    """

    audit: ServerAudit
    status: str
    epsilon_claimed: float
    epsilon_lower_bound: float
    verdict: str
    noise: float
    noise_deviation: float
    right: int
    guesses: int
    ceiling: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SharesResult:
    """What came out of single shares.

    Attributes:
        audit: What was put to the test.
        verdict: ``shares tell`` or ``not contradicted``.
        looks: What each rule came to.
        deviation: Standard deviation of a rule's right guesses, if nothing is told.
        seconds: Time taken.
    """

    audit: ServerAudit
    verdict: str
    looks: dict[str, Look]
    deviation: float
    seconds: float

    @property
    def best(self) -> Look:
        """Of the rule that was farthest from a coin."""
        return max(self.looks.values(), key=lambda look: abs(look.right - 0.5))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def server_cells(**chosen: Any) -> list[ServerAudit]:
    """An audit of each server, for value and presence, with and without labels."""
    return [
        ServerAudit(corrupt, adjacency, labels, **chosen)
        for labels in (False, True)
        for adjacency in ("value", "presence")
        for corrupt in get_args(ServerName)
    ]


def faults_seen_by(corrupt: ServerName) -> tuple[Fault, ...]:
    """Faults of devices that a server can make use of: the leader sees nothing of proofs."""
    return ("seeds",) if corrupt == "leader" else ("seeds", "masks")


def audit_server_sums(audit: ServerAudit) -> ServerAuditResult:
    """Guess all ratings of one person from the sums."""
    begin = time.perf_counter()
    truth = np.random.default_rng(audit.seed).random(audit.canaries) < 0.5
    observed = _sums(audit, truth)
    bound = one_run_bound(observed.scores(), truth, audit.confidence)
    noise, deviation = observed.noise(truth)
    return ServerAuditResult(
        audit=audit,
        status=audit.promise.status,
        epsilon_claimed=audit.claimed,
        epsilon_lower_bound=bound.epsilon,
        verdict=judge(audit.claimed, bound.epsilon, noise, deviation),
        noise=noise,
        noise_deviation=deviation,
        right=bound.right,
        guesses=bound.guesses,
        ceiling=one_run_ceiling(audit.canaries, audit.confidence),
        seconds=time.perf_counter() - begin,
    )


def audit_server_shares(audit: ServerAudit) -> SharesResult:
    """Guess one rating of each of many persons from the shares of their reports."""
    begin = time.perf_counter()
    looks = _shares(audit, np.random.default_rng(audit.seed).random(audit.reports) < 0.5)
    return SharesResult(
        audit=audit,
        verdict=SHARES_TELL if any(look.epsilon > 0 for look in looks.values()) else STANDS,
        looks=looks,
        deviation=0.5 / audit.reports**0.5,
        seconds=time.perf_counter() - begin,
    )


def _sums(audit: ServerAudit, truth: np.ndarray) -> ObservedCanaries:
    """What is seen of one person with a canary for every item."""
    n = audit.canaries
    stars = np.where(truth, HIGH, 0.0 if audit.adjacency == "presence" else LOW)
    survey = _survey(audit, n, users=2)
    coding, units = (
        make_coding(survey.coding, SCALE, audit.epsilon),
        weight_units(np.full(2, audit.weight)),
    )
    channels = sum_channels(survey.design, coding, audit.epsilon, labels=audit.labels)
    low, high = (units * coding.encode(ENDS)).tolist()
    hidden = audit.adjacency == "presence"
    scored, weighed = (
        (0.0 if hidden else low, high),
        (0.0 if hidden else float(units[0]), float(units[0])),
    )
    *first, last = _played(audit, survey, stars[None, :])
    observed, seen = ObservedCanaries(), last.numbers[:, None]
    if channels.popularity is not None:
        counts = first[0].numbers[n : 2 * n, None]
        observed.about.append(CanaryNumbers(counts, weighed, float(channels.popularity.scale)))
    observed.about.append(CanaryNumbers(seen[:n], scored, float(channels.score.scale)))
    observed.about.append(CanaryNumbers(seen[n : 2 * n], weighed, float(channels.weight.scale)))
    return observed


def _played(audit: ServerAudit, survey: Survey, stars: np.ndarray) -> list[Held]:
    """What is held of each task of the survey: of these persons (rows), and of the attacker's
    own one, with zeros.
    """
    planted = None if audit.noise_factor == 1.0 else LessNoise(ReleasedNoise(), audit.noise_factor)
    servers, users = AuditedServers(audit.corrupt, planted), len(stars) + 1
    shard, fault = _shard(audit, survey, stars), audit.fault
    if not audit.labels:
        return [servers.sum(survey, "whole", shard.entries(users), fault=fault)]
    counts = servers.sum(survey, "counts", shard.entries(users), fault=fault)
    grouping = _grouping(survey)
    shard.group(grouping)
    return [
        counts,
        servers.sum(survey, "labels", shard.entries(users), grouping=grouping, fault=fault),
    ]


def _shares(audit: ServerAudit, truth: np.ndarray) -> dict[str, Look]:
    """What is told by shares of persons who differ in one rating each; with labels, those of the
    second task.
    """
    users = len(truth)
    ends = np.zeros((2, _ITEMS))
    ends[:, 0] = (0.0 if audit.adjacency == "presence" else LOW), HIGH
    ends[:, 1] = (LOW + HIGH) / 2  # known, like what is not there
    survey = _survey(audit, _ITEMS, users=users + 1)
    held = _played(audit, survey, ends[truth.astype(int)])[-1]
    known = _shard(audit, survey, ends)
    if audit.labels:
        known.resume(_grouping(survey), np.zeros(2, np.bool_))
    low, high = known.entries(2)
    return look_at_shares(held, (low, high), truth, audit.confidence)


def _grouping(survey: Survey) -> Grouping:
    """One that has no heads: labels tell most where an item is none (see the page on audits)."""
    return Grouping(scores=np.zeros(survey.n_items, np.int64), heads=np.zeros(0, np.int64))


def _survey(audit: ServerAudit, n_items: int, users: int) -> Survey:
    return make_survey(
        "A",
        audit.epsilon,
        SCALE,
        n_items=n_items,
        catalogue=_CATALOGUE,
        contributors=users,
        labels=audit.labels,
    )


def _shard(audit: ServerAudit, survey: Survey, stars: np.ndarray) -> OneRoundShard:
    """The private side of so many persons (rows), with these ratings; 0 for none."""
    users, items = np.nonzero(stars)
    n_items = stars.shape[1]
    ratings = Ratings.from_arrays(users, items, stars[users, items], scale=SCALE).over(
        np.arange(n_items)
    )
    weights = PrivacyWeights.per_rating(ratings, np.full(len(ratings), audit.weight))
    shard = OneRoundShard(
        ratings,
        weights,
        ReleasedNoise(),
        epsilon=audit.epsilon,
        catalogue=_CATALOGUE,
        n_users=ratings.n_users,
    )
    shard.accept(survey)
    return shard
