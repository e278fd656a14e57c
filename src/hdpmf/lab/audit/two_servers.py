"""Canaries and two real servers: the observer is the recommender with one of the servers.

The corrupt server drops everybody's report but the audited person's and one of its own, so that the
other's noise is all that is left to hide behind. From the honest server's sum, which the
recommender decrypts, the observer subtracts what it knows.

Shares are attacked by themselves: many persons report, each with one rating that is not known.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, Claim
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.common.protocol import Grouping, Survey
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.canaries import (
    SCALE,
    CanaryAudit,
    ObservedCanaries,
    canary_stars,
    observed_sums,
)
from hdpmf.lab.audit.scores import STANDS
from hdpmf.lab.audit.server_pair import (
    AuditedServers,
    CorruptView,
    Fault,
    RuleOutcome,
    ServerName,
    look_at_shares,
)
from hdpmf.lab.audit.world import PlantedNoise
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.one_round import make_survey

SHARES_TELL = "shares tell"

_METHOD = "hdp-sum"
_CATALOGUE = "audit"
_ITEMS = 4  # of a report whose shares are looked at


@dataclass(frozen=True, slots=True)
class ServerAudit(CanaryAudit):
    """An audit of two servers by the recommender with one of them.

    Attributes:
        corrupt: The server that works with the recommender.
        reports: Number of persons whose shares are attacked, each with one unknown rating.
        fault: A fault planted into devices: shares or proofs that are not random.
    """

    corrupt: ServerName
    reports: int = 500
    fault: Fault | None = None

    def __post_init__(self) -> None:
        CanaryAudit.__post_init__(self)  # super() does not work in a class with slots
        names = get_args(ServerName)
        if self.corrupt not in names:
            raise ConfigError(f"corrupt must be one of {', '.join(names)}, not {self.corrupt!r}")
        if self.reports < 16:
            raise ConfigError(f"so few reports tell nothing: {self.reports}; take 16 or more")

    @property
    def promise(self) -> Claim:
        """The claim of this view."""
        return METHODS[_METHOD].claim("two-servers", labels=self.labels)

    def observe(self, truth: np.ndarray, rng: np.random.Generator) -> ObservedCanaries:
        """Return what is seen of one person with a canary for every item."""
        n = self.canaries
        survey = _survey(self, n, users=2)
        *first, last = _played(self, survey, canary_stars(self.adjacency, truth)[None, :])
        popularity = first[0].numbers[n : 2 * n] if first else None
        return observed_sums(self, survey, last.numbers, popularity)


@dataclass(frozen=True, slots=True)
class SharesResult:
    """Result of an audit of single shares.

    Attributes:
        verdict: ``shares tell`` or ``not contradicted``.
        deviation: Standard deviation of a rule's right guesses, if nothing is revealed.
    """

    audit: ServerAudit
    verdict: str
    looks: dict[str, RuleOutcome]
    deviation: float
    seconds: float

    @property
    def best(self) -> RuleOutcome:
        """The outcome that was farthest from a coin's."""
        return max(self.looks.values(), key=lambda look: abs(look.right - 0.5))

    def as_dict(self) -> dict[str, Any]:
        """Return a mapping for JSON."""
        return asdict(self)


def server_cells(**chosen: Any) -> list[ServerAudit]:
    """Return audits of each server, for value and presence, with and without labels."""
    return [
        ServerAudit(corrupt, adjacency=adjacency, labels=labels, **chosen)
        for labels in (False, True)
        for adjacency in ("value", "presence")
        for corrupt in get_args(ServerName)
    ]


def faults_seen_by(corrupt: ServerName) -> tuple[Fault, ...]:
    """Return the device faults that a server can exploit: the leader sees nothing of proofs."""
    return ("seeds",) if corrupt == "leader" else ("seeds", "masks")


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


def _played(audit: ServerAudit, survey: Survey, stars: np.ndarray) -> list[CorruptView]:
    """Return what is seen of each task: reports of these persons (rows), and the attacker's own."""
    planted = (
        None if audit.noise_factor == 1.0 else PlantedNoise(ReleasedNoise(), audit.noise_factor)
    )
    servers = AuditedServers(audit.corrupt, planted)
    users = len(stars) + 1
    client = _client(audit, survey, stars)
    fault = audit.fault
    if not audit.labels:
        return [servers.sum(survey, "whole", client.entries(users), fault=fault)]
    counts = servers.sum(survey, "counts", client.entries(users), fault=fault)
    grouping = _grouping(survey)
    client.group(grouping)
    return [
        counts,
        servers.sum(survey, "labels", client.entries(users), grouping=grouping, fault=fault),
    ]


def _shares(audit: ServerAudit, truth: np.ndarray) -> dict[str, RuleOutcome]:
    """Attack the shares of persons with one unknown rating each; of the last task."""
    users = len(truth)
    ends = np.zeros((2, _ITEMS))
    ends[:, 0] = canary_stars(audit.adjacency, np.array([False, True]))
    ends[:, 1] = (SCALE.low + SCALE.high) / 2  # known, like what is absent
    survey = _survey(audit, _ITEMS, users=users + 1)
    seen = _played(audit, survey, ends[truth.astype(int)])[-1]
    known = _client(audit, survey, ends)
    if audit.labels:
        known.resume(_grouping(survey), np.zeros(2, np.bool_))
    low, high = known.entries(2)
    return look_at_shares(seen, (low, high), truth, audit.confidence)


def _grouping(survey: Survey) -> Grouping:
    """Return a grouping without heads, where labels reveal most (see docs/audit.md)."""
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


def _client(audit: ServerAudit, survey: Survey, stars: np.ndarray) -> OneRoundClient:
    """Return the private side of persons (rows) with these ratings; 0 for none."""
    users, items = np.nonzero(stars)
    n_items = stars.shape[1]
    ratings = Ratings.from_arrays(users, items, stars[users, items], scale=SCALE).over(
        np.arange(n_items)
    )
    weights = PrivacyWeights.per_rating(ratings, np.full(len(ratings), audit.weight))
    client = OneRoundClient(
        ratings,
        weights,
        ReleasedNoise(),
        epsilon=audit.epsilon,
        catalogue=_CATALOGUE,
        n_users=ratings.n_users,
    )
    client.accept(survey)
    return client
