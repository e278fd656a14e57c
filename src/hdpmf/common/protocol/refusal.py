"""What a participant refuses, by public parameters alone.

Whether somebody answers is visible. So it follows from documents and from limits that are the same
for everybody of one release, never from ratings. What depends on somebody's own history, such as a
budget that is used up or items that are never shared, makes a row of zeros, never a refusal.
"""

from dataclasses import dataclass
from fractions import Fraction

from hdpmf.common.privacy.pairs import LINEAR_BITS, PAIR_BITS, limit_of
from hdpmf.common.protocol.servers import Collector, Servers
from hdpmf.common.protocol.task import Linear, Pairs, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """A participant's limits, by default those of everybody.

    Attributes:
        rho: Most that one task may cost.
        cap: One rating may be one part in so many of a row's squared length, at most.
        heads: Most heads.
        seconds: From now to the end of a task, at most.
    """

    rho: Fraction
    cap: int = 16
    heads: int = 300
    seconds: int = 92 * 86_400


@dataclass(frozen=True, slots=True)
class Known:
    """What a participant has pinned, or has checked before.

    Attributes:
        catalogue: Fingerprint of the items.
        items: How many there are.
        stars: Their ratings have values.
    """

    servers: Servers
    collector: Collector
    catalogue: str
    items: int
    stars: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a participant does not answer a task.

    Attributes:
        rule: Its number; pages and tests cite it.
    """

    rule: int
    why: str


RULES = {
    1: "the task is for the pair of servers, and of the recommender, that are pinned here",
    2: "it is about the items that are pinned here",
    3: "its heads are as many as this release takes, and all of them are items",
    4: "values are asked for only where ratings have stars",
    5: "rows are as this release makes them, and no rating has more of one than the cap",
    6: "it costs a person no more than one task may",
    7: "it is under way, and ends within the time that a task may take",
    8: "whoever reports shows a token",
}
"""What must hold, by number."""


def why_refused(task: Task, known: Known, limits: Limits, now: float) -> Refusal | None:
    """Return why a participant refuses a task; None if it answers."""
    sums = task.sums
    items, heads, stars, bits = known.items, 0, False, LINEAR_BITS
    if isinstance(sums, Linear):
        items, stars = sums.items, sums.values > 0
    elif isinstance(sums, Pairs):
        bits = PAIR_BITS
        heads, items = len(sums.heads), max(known.items, sums.heads[-1] + 1)
    holds = {
        1: task.servers == known.servers and task.collector == known.collector,
        2: task.catalogue == known.catalogue and (heads > 0 or items == known.items),
        3: heads <= limits.heads and items <= known.items,
        4: known.stars or not stars,
        5: (sums.bits, sums.bound) == (bits, limit_of(bits)) and sums.cap >= limits.cap,
        6: sums.rho <= limits.rho,
        7: task.begin <= now < task.end <= now + limits.seconds,
        8: bool(task.token_key),
    }
    broken = next((rule for rule in RULES if not holds[rule]), None)
    return None if broken is None else Refusal(broken, f"refused, since not: {RULES[broken]}")
