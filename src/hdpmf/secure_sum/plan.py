"""What a recommender proposes, and what a device agrees to whatever is proposed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.graph import NeighbourGraph, bitmap, bitmap_size, graph_seed, neighbour_graph
from hdpmf.secure_sum.messages import MAX_LENGTH, SESSION_BYTES, SumPlan
from hdpmf.secure_sum.primitives import KEY_BYTES, device_bytes, digest
from hdpmf.secure_sum.roster import Roster

TWO_THIRDS = Fraction(2, 3)


def smallest_threshold(degree: int, fraction: Fraction = TWO_THIRDS) -> int:
    """The smallest whole number above that fraction of the neighbours."""
    return int(fraction * degree) + 1


@dataclass(frozen=True)
class SumPolicy:
    """What a device insists on. A plan that offers less is refused, whatever the recommender says.

    Attributes:
        min_survivors: Devices that a sum must be over.
        min_neighbours: Neighbours (or everyone, where there are fewer).
        threshold_fraction: More than this fraction of the neighbours must survive; from 1/2, below 1.
        max_length: Words of a vector.
        beacon: The public random bytes that the graph has to be drawn from, where the device knows them from
            somewhere else than the recommender; None accepts the recommender's.
    """

    min_survivors: int = 16
    min_neighbours: int = 64
    threshold_fraction: Fraction = TWO_THIRDS
    max_length: int = MAX_LENGTH
    beacon: bytes | None = None

    def __post_init__(self) -> None:
        if not Fraction(1, 2) <= self.threshold_fraction < 1:
            raise SecureSumError("threshold_fraction must be at least 1/2 and less than 1")
        if self.min_survivors < 2 or self.min_neighbours < 1:
            raise SecureSumError("min_survivors must be at least 2 and min_neighbours at least 1")

    def check(self, plan: SumPlan) -> None:
        """Raise SecureSumError if the plan offers less than this device insists on."""
        n, degree = plan.n_participants, plan.degree
        if degree < min(self.min_neighbours, n - 1):
            raise SecureSumError(
                f"the plan gives a device {degree} neighbours; this device insists on {self.min_neighbours}"
            )
        needed = smallest_threshold(degree, self.threshold_fraction)
        if plan.threshold < needed:
            raise SecureSumError(
                f"the plan's threshold is {plan.threshold} of {degree} neighbours; this device insists on {needed}"
            )
        if plan.minimum < self.min_survivors:
            raise SecureSumError(
                f"the plan allows a sum over {plan.minimum} devices; this device insists on {self.min_survivors}"
            )
        if plan.length > self.max_length:
            raise SecureSumError(f"the plan wants {plan.length} words; this device sends at most {self.max_length}")
        if self.beacon is not None and plan.beacon != self.beacon:
            raise SecureSumError("the plan's beacon is not the one that this device knows")


def propose(
    roster: Roster,
    length: int,
    *,
    participants: Sequence[int] | None = None,
    neighbours: int = 64,
    threshold: int | None = None,
    minimum: int | None = None,
    beacon: bytes | None = None,
    wide: bool = False,
) -> SumPlan:
    """A plan for one sum, with a new session number.

    Args:
        roster: The devices that may take part.
        length: Words of a vector.
        participants: Places on the roster of the devices to ask; None asks everyone.
        neighbours: Of each device; everyone, if there are no more.
        threshold: Neighbours that must survive; None takes the smallest above two thirds.
        minimum: Devices that the sum must be over; None takes the smallest above two thirds.
        beacon: 32 public random bytes; None draws them.
        wide: Words have 64 bits instead of 32.
    """
    asked = list(range(len(roster))) if participants is None else sorted(set(participants))
    if not asked or asked[0] < 0 or asked[-1] >= len(roster):
        raise SecureSumError(f"participants must be places on the roster, from 0 to {len(roster) - 1}")
    degree = min(neighbours, len(asked) - 1)
    threshold = smallest_threshold(degree) if threshold is None else threshold
    return SumPlan(
        session=secrets.token_bytes(SESSION_BYTES),
        roster=roster.digest,
        participants=bitmap(asked, len(roster)),
        length=length,
        neighbours=neighbours,
        threshold=threshold,
        minimum=max(threshold + 1, smallest_threshold(len(asked))) if minimum is None else minimum,
        beacon=secrets.token_bytes(KEY_BYTES) if beacon is None else beacon,
        wide=wide,
    )


def check_roster(plan: SumPlan, roster: Roster) -> None:
    """Raise SecureSumError unless the plan is for this roster."""
    if plan.roster != roster.digest:
        raise SecureSumError("the plan is for another roster than the one pinned here; get the new roster first")
    bits = int.from_bytes(plan.participants, "little")
    if len(plan.participants) != bitmap_size(len(roster)) or bits >> len(roster):
        raise SecureSumError("the plan names participants that are not on the roster")


def graph_of(plan: SumPlan) -> NeighbourGraph:
    """The neighbour graph that both sides compute."""
    return neighbour_graph(plan.participants, plan.neighbours, graph_seed(plan.beacon, plan.roster))


def keys_text(plan_digest: bytes, device: int, channel: bytes, mask: bytes, commitment: bytes) -> bytes:
    """What a device signs of its keys."""
    return digest(b"keys", plan_digest, device_bytes(device), channel, mask, commitment)


def survivors_text(plan_digest: bytes, device: int, survivors: bytes) -> bytes:
    """What a device signs of the survivor list that it was told."""
    return digest(b"survivors", plan_digest, device_bytes(device), survivors)


def commitment_of(plan_digest: bytes, seed: bytes) -> bytes:
    """What a device says in advance about the seed of its own mask."""
    return digest(b"seed", plan_digest, seed)


def pair_info(label: bytes, device: int, peer: int) -> bytes:
    """The place of a derived key: what for, and between whom."""
    return label + device_bytes(min(device, peer)) + device_bytes(max(device, peer))


def self_mask_key(plan_digest: bytes, seed: bytes) -> bytes:
    """The key of a device's own mask."""
    return digest(b"self mask", plan_digest, seed)
