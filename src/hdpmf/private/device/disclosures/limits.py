"""Limits of a policy: what one rating may spend, and all ratings of a person together.

Where presence is hidden, one rating more must not change much of what the others send
(``proofs/hdp-sum.md``). So ratings enter up to a limit exactly, the last one with the weight that
is left; ``max_ratings`` is counted in ratings of weight 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.journal import Journal
from hdpmf.private.device.policy import Policy

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings

SLACK = 1e-9
"""Rounding error that sums may have, as a part of the budget: ten times a tenth is affordable."""


class Taken(NamedTuple):
    """Ratings within limits.

    Attributes:
        positions: Of those that take part, in table order.
        pays: What each of them pays; the last one of a person perhaps less than its price.
        short: Positions of those that a limit leaves out or lets pay less than their price.
    """

    positions: np.ndarray
    pays: np.ndarray
    short: np.ndarray


def affordable(
    spent: np.ndarray, pays: np.ndarray, weights: np.ndarray, policy: Policy
) -> np.ndarray:
    """Return a mask of the ratings that can pay this over their whole life."""
    return np.asarray(spent + pays <= weights * policy.own_epsilon * (1 + SLACK))


def check_ratings(spent: np.ndarray, pays: np.ndarray, weights: np.ndarray, policy: Policy) -> None:
    """Raise PrivacyError if a rating would spend more than it may in its life, or in one run."""
    over = int(np.count_nonzero(~affordable(spent, pays, weights, policy)))
    over_run = int(np.count_nonzero(pays > weights * policy.epsilon_per_run * (1 + SLACK)))
    if over or over_run:
        raise PrivacyError(
            f"{max(over, over_run)} of {len(pays)} ratings would spend more than the policy allows "
            f"({'over their whole life' if over else 'in one run'}); nothing was charged and "
            "nothing may be sent"
        )


def fill(
    tags: Sequence[bytes],
    prices: Sequence[float],
    room: float,
    most: int | None = None,
    unit: float | None = None,
) -> list[float | None]:
    """Return what each rating pays within limits; None where it is left out.

    They are taken in the order of their tags, which know no value, up to the first that is too
    much. That one enters with as many whole units as are left.

    Args:
        prices: What each would pay by itself; 0 where it costs nothing.
        room: What they may pay together.
        most: How many may take part.
        unit: What a 64th of a weight costs, where prices are whole numbers of it. None: a rating
            takes part with all of its weight or not at all.
    """
    order = sorted(range(len(tags)), key=lambda at: tags[at])
    found: list[float | None] = [None] * len(tags)
    if unit is None:
        for at in order[:most]:
            found[at] = prices[at] if prices[at] <= room else None
            room -= prices[at]
        return found
    # In whole numbers: with rounding errors a rating more could move others by a unit too many.
    left = room if math.isinf(room) else math.floor(room / unit)
    for at in order[:most]:
        price = round(prices[at] / unit)
        if price <= left:
            found[at] = prices[at]
        elif left > 0:
            found[at] = left * unit
        left = max(left - price, 0)
    return found


class PersonLimits:
    """What all ratings of a person may spend together, by a journal.

    Args:
        journal: What they have spent.
    """

    def __init__(self, journal: Journal, tags: Callable[[Ratings], list[bytes]]) -> None:
        self._journal = journal
        self._tags = tags

    def __repr__(self) -> str:
        return "PersonLimits(...)"

    def within(
        self,
        ratings: Ratings,
        chosen: np.ndarray,
        prices: np.ndarray,
        policy: Policy,
        *,
        unit: float | None = None,
        sums: bool = False,
    ) -> Taken:
        """Return the chosen ratings within ``max_ratings`` and ``max_total``, and what they pay.

        Which are left out depends on tags and weights of ratings, never on values (see `fill`).

        Args:
            ratings: The table that ``chosen`` are positions in.
            chosen: Which ratings could take part.
            prices: What each rating of the table would pay.
            unit: What a 64th of a weight costs, in one-round designs.
            sums: Ratings enter sums: ``max_ratings`` is the weight of so many ratings of weight 1
                there, and not their number.
        """
        room, most = self.room(policy), policy.max_ratings
        if sums and most is not None and unit is not None:
            room, most = min(room, most * WEIGHT_UNITS * unit * (1 + SLACK)), None
        few = most is None or len(chosen) <= most
        if few and math.fsum(prices[chosen].tolist()) <= room:
            return Taken(chosen, prices[chosen], np.zeros(0, np.intp))  # tags take their time
        tags = self._tags(ratings.take(chosen))
        found = fill(tags, prices[chosen].tolist(), room, most, unit)
        pays = np.array([np.nan if one is None else one for one in found], np.float64)
        kept = ~np.isnan(pays)
        return Taken(chosen[kept], pays[kept], chosen[~(pays >= prices[chosen])])

    def room(self, policy: Policy) -> float:
        """Return what the person may still spend; rounding errors are in their favour."""
        return policy.own_total * (1 + SLACK) - math.fsum(self._journal.sums().values())

    def check(self, policy: Policy, pays: Sequence[float]) -> None:
        """Raise PrivacyError if all ratings together would spend more than they may."""
        more = math.fsum(pays)
        if more > 0 and more > self.room(policy):
            raise PrivacyError(
                "your ratings together would spend more than max_total of the policy allows "
                f"here ({policy.own_total:g}); nothing was charged and nothing may be sent"
            )
