"""Plans of a secure sum: proposal by the recommender, checks by the device, and their risks."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf

import numpy as np

from hdpmf.common.aggregation.masks.messages import (
    MAX_LENGTH,
    MAX_NEIGHBOURS,
    SESSION_BYTES,
    SumPlan,
)
from hdpmf.common.aggregation.masks.primitives import device_bytes, digest
from hdpmf.common.aggregation.masks.roster import Roster, bitmap, bitmap_size
from hdpmf.errors import SecureSumError

TWO_THIRDS = Fraction(2, 3)

NEGLIGIBLE = 2.0**-40
"""The chance that is allowed to a lying recommender."""


@dataclass(frozen=True)
class Risks:
    """Upper bounds, over all devices of a cohort, for one drawing of holders.

    Attributes:
        unmask: Some honest device has so many colluding holders that a lying recommender could
            unmask its vector.
        split: Some honest devices, no more than half of them, drew so often each other and
            colluding devices that a lying recommender could tell them another survivor list than
            the rest, or get a sum over them alone.
        abort: Some device loses so many holders that the sum is broken off.
    """

    unmask: float
    split: float
    abort: float


def smallest_threshold(degree: int, fraction: Fraction = TWO_THIRDS) -> int:
    """Return the smallest whole number above that fraction of the holders."""
    return int(fraction * degree) + 1


@lru_cache(maxsize=256)
def risks(
    n_devices: int, neighbours: int, threshold: int, *, colluding: int, dropping: int
) -> Risks:
    """Return the risks if some devices collude, and others drop out at random."""
    degree = min(neighbours, n_devices - 1)
    others = n_devices - 1
    if (
        not 0 <= colluding <= others
        or not 0 <= dropping <= others
        or not degree < 2 * threshold <= 2 * degree
    ):
        raise SecureSumError(
            "colluding and dropping must be among the other devices, and threshold above one half"
        )
    marked = np.array([colluding, dropping])
    unmask, abort = (
        n_devices * exp(_log_at_least(count, others, marked[i : i + 1], degree)[0])
        for i, count in enumerate((2 * threshold - degree, degree - threshold + 1))
    )
    # For every part of s honest devices, at most half of them: each has its threshold among the
    # others of the part and the colluding ones. Draws are independent, so the chances multiply;
    # there are (h over s) such parts.
    honest = n_devices - colluding
    sizes = np.arange(1, honest // 2 + 1)
    each = _log_at_least(threshold, others, sizes - 1 + colluding, degree)
    with np.errstate(over="ignore"):
        split = float(
            np.exp(np.minimum(_log_comb(honest, sizes, honest) + sizes * each, 1.0)).sum()
        )
    return Risks(min(unmask, 1.0), min(split, 1.0), min(abort, 1.0))


def _log_at_least(count: int, population: int, marked: np.ndarray, drawn: int) -> np.ndarray:
    """Return the log probability of at least ``count`` marked among ``drawn`` (hypergeometric)."""
    hits = np.arange(count, drawn + 1)[:, None]
    terms = (
        _log_comb(marked, hits, population)
        + _log_comb(population - marked, drawn - hits, population)
        - _log_comb(population, drawn, population)
    )
    top = terms.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = top + np.log(np.exp(terms - top).sum(axis=0))
    return np.where(np.isfinite(top), np.minimum(total, 0.0), -inf)


def _log_comb(n: np.ndarray | int, k: np.ndarray | int, most: int) -> np.ndarray:
    """Return the log of (n over k), for n up to ``most``; minus infinity where it is 0."""
    n = np.asarray(n)
    k = np.asarray(k)
    possible = (k >= 0) & (k <= n)
    factorial = _log_factorials(most)
    within = np.where(possible, k, 0)
    return np.where(possible, factorial[n] - factorial[within] - factorial[n - within], -inf)


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> np.ndarray:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1)))))


MAX_COLLUDING = Fraction(1, 20)
"""Of all devices on a roster, how many a device takes to be the recommender's where its owner
says nothing.
"""

MIN_FRACTION = Fraction(1, 10)
"""Of all devices on a roster, over how many a sum must be where a device's owner says nothing."""


@dataclass(frozen=True)
class SumPolicy:
    """A device's minimum requirements of a plan.

    Whom to ask is the recommender's choice, so what a cohort must be is measured by the roster that
    the device pinned: if so many of *all* devices work for the recommender, the cohort must be safe
    with every one of them in it.

    Attributes:
        min_survivors: Devices that a sum must be over.
        min_neighbours: Holders of a device's shares (or everyone, where there are fewer).
        threshold_fraction: More than this fraction of the holders must survive; from 1/2, below 1.
        max_length: Words of a vector.
        max_colluding: Fraction of the roster, rounded up, that may work for the recommender.
        min_fraction: Fraction of the roster that a sum must be over.
        max_risk: The chance that is left to so many colluding devices (see ``risks``).
    """

    min_survivors: int = 16
    min_neighbours: int = 64
    threshold_fraction: Fraction = TWO_THIRDS
    max_length: int = MAX_LENGTH
    max_colluding: Fraction = MAX_COLLUDING
    min_fraction: Fraction = MIN_FRACTION
    max_risk: float = NEGLIGIBLE

    def __post_init__(self) -> None:
        if not Fraction(1, 2) <= self.threshold_fraction < 1:
            raise SecureSumError("threshold_fraction must be at least 1/2 and less than 1")
        if self.min_survivors < 2 or self.min_neighbours < 1:
            raise SecureSumError("min_survivors must be at least 2 and min_neighbours at least 1")
        if not (0 <= self.max_colluding < 1 and 0 <= self.min_fraction <= 1):
            raise SecureSumError("max_colluding and min_fraction are fractions of the roster")

    def colluding(self, n_roster: int) -> int:
        """Return the most devices of a roster that are assumed to collude with the recommender."""
        return math.ceil(self.max_colluding * n_roster)

    def check(self, plan: SumPlan, n_roster: int) -> None:
        """Raise SecureSumError if the plan offers less than this device requires."""
        n = plan.n_participants
        degree = plan.degree
        if degree < min(self.min_neighbours, n - 1):
            raise SecureSumError(
                f"the plan gives a device {degree} neighbours; this device insists on "
                f"{self.min_neighbours}"
            )
        needed = smallest_threshold(degree, self.threshold_fraction)
        if plan.threshold < needed:
            raise SecureSumError(
                f"the plan's threshold is {plan.threshold} of {degree} neighbours; this device "
                f"insists on {needed}"
            )
        least = max(self.min_survivors, math.ceil(self.min_fraction * n_roster))
        if plan.minimum < least:
            raise SecureSumError(
                f"the plan allows a sum over {plan.minimum} devices; this device insists on {least}"
            )
        if plan.length > self.max_length:
            raise SecureSumError(
                f"the plan wants {plan.length} words; this device sends at most {self.max_length}"
            )
        colluding = self.colluding(n_roster)
        if not is_safe(plan.minimum, n, degree, plan.threshold, colluding, self.max_risk):
            raise SecureSumError(
                f"{colluding} of the {n_roster} devices on the roster may work for the "
                f"recommender; a cohort of {n} with {degree} neighbours each, threshold "
                f"{plan.threshold} and minimum {plan.minimum}, does not withstand so many"
            )


def is_safe(
    minimum: int, n: int, degree: int, threshold: int, colluding: int, max_risk: float = NEGLIGIBLE
) -> bool:
    """Return True if a cohort of ``n`` withstands so many colluding devices at small risk."""
    if colluding > minimum - 2:
        return False
    chances = risks(n, degree, threshold, colluding=colluding, dropping=0)
    return chances.unmask + chances.split <= max_risk


def safe_sizes(
    n: int, n_roster: int, least: int = 64, colluding: Fraction = MAX_COLLUDING
) -> tuple[int, int]:
    """Return the holders per device and the threshold that the default policy accepts for ``n``.

    Two thirds of ``least`` holders where that is enough; else three quarters, of as many as it
    takes. Where nothing is enough, everyone: devices will refuse, and say why.
    """
    bad = math.ceil(colluding * n_roster)
    degree = min(least, n - 1)
    threshold = smallest_threshold(degree)
    everyone = min(n - 1, MAX_NEIGHBOURS)
    while not is_safe(n, n, degree, threshold, bad) and degree < everyone:
        degree = min(degree + 2, everyone)
        threshold = smallest_threshold(degree, Fraction(3, 4))
    return degree, threshold


def propose(
    roster: Roster,
    length: int,
    *,
    participants: Sequence[int] | None = None,
    neighbours: int | None = None,
    threshold: int | None = None,
    minimum: int | None = None,
    wide: bool = False,
) -> SumPlan:
    """Return a plan for one sum, with a new session number.

    Args:
        roster: The devices that may take part.
        length: Words of a vector.
        participants: Roster numbers of the devices to ask; None asks everyone.
        neighbours: Holders per device; None takes what the default policy accepts, 64 or more.
        threshold: Holders that must survive; None takes what the default policy accepts.
        minimum: Devices that the sum must be over; None takes the smallest above two thirds.
        wide: Words have 64 bits instead of 32.
    """
    asked = list(range(len(roster))) if participants is None else sorted(set(participants))
    if not asked or asked[0] < 0 or asked[-1] >= len(roster):
        raise SecureSumError(
            f"participants must be numbers on the roster, from 0 to {len(roster) - 1}"
        )
    if neighbours is None:
        neighbours, safe = safe_sizes(len(asked), len(roster))
    else:
        safe = smallest_threshold(min(neighbours, len(asked) - 1))
    threshold = safe if threshold is None else threshold
    return SumPlan(
        session=secrets.token_bytes(SESSION_BYTES),
        roster=roster.digest,
        participants=bitmap(asked, len(roster)),
        length=length,
        neighbours=neighbours,
        threshold=threshold,
        minimum=max(threshold + 1, smallest_threshold(len(asked))) if minimum is None else minimum,
        wide=wide,
    )


def check_roster(plan: SumPlan, roster: Roster) -> None:
    """Raise SecureSumError unless the plan is for this roster."""
    if plan.roster != roster.digest:
        raise SecureSumError(
            "the plan is for another roster than the one pinned here; get the new roster first"
        )
    bits = int.from_bytes(plan.participants, "little")
    if len(plan.participants) != bitmap_size(len(roster)) or bits >> len(roster):
        raise SecureSumError("the plan names participants that are not on the roster")


def keys_text(
    plan_digest: bytes, device: int, channel: bytes, mask: bytes, commitment: bytes
) -> bytes:
    """Return the bytes that a device signs with its keys."""
    return digest(b"keys", plan_digest, device_bytes(device), channel, mask, commitment)


def survivors_text(plan_digest: bytes, device: int, survivors: bytes) -> bytes:
    """Return the bytes that a device signs for a survivor list."""
    return digest(b"survivors", plan_digest, device_bytes(device), survivors)


def share_check(plan_digest: bytes, dealer: int, holder: int, kind: str, share: bytes) -> bytes:
    """Return the digest of a share, which is too random to be guessed from it."""
    return digest(
        b"share",
        plan_digest,
        device_bytes(dealer),
        device_bytes(holder),
        kind.encode("ascii"),
        share,
    )


def pair_check(plan_digest: bytes, dealer: int, holder: int, shares: bytes) -> bytes:
    """Return digests of both shares that a dealer gives a holder."""
    half = len(shares) // 2
    return share_check(plan_digest, dealer, holder, "seeds", shares[:half]) + share_check(
        plan_digest, dealer, holder, "keys", shares[half:]
    )


def commitment_of(plan_digest: bytes, seed: bytes) -> bytes:
    """Return the commitment to the seed of a device's own mask."""
    return digest(b"seed", plan_digest, seed)


def pair_info(label: bytes, device: int, peer: int) -> bytes:
    """Return the context of a derived key: its purpose and its two devices."""
    return label + device_bytes(min(device, peer)) + device_bytes(max(device, peer))


def self_mask_key(plan_digest: bytes, seed: bytes) -> bytes:
    """Return the key of a device's own mask."""
    return digest(b"self mask", plan_digest, seed)
