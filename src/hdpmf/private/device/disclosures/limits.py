"""Limits of a policy: what one rating may spend, and all ratings of a person together.

Where presence is hidden, one rating more must not change much of what the others send
(``proofs/hdp-sum.md``). So ratings enter up to a limit exactly, the last one with the weight that
is left; ``max_ratings`` is counted in ratings of weight 1 there. What the owner shows has a part of
``max_total`` for itself, which hidden ratings can neither use nor free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.common.protocol.layout import SHARING_METHOD
from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.journal import Entry, Journal
from hdpmf.private.device.policy import Policy

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings

SLACK = 1e-9
"""Rounding error that sums may have, as a part of the budget: ten times a tenth is affordable."""

SHOWN_PART = 0.5
"""The part of ``max_total`` that is for what the owner shows, from the moment of that choice."""


class Taken(NamedTuple):
    """Ratings within limits.

    Attributes:
        positions: Of those that take part, in table order.
        pays: What each of them pays; the last one of a person perhaps less than its price.
        short: Positions of those that a limit leaves out or lets pay less than their price, of
            ratings that are not shown.
    """

    positions: np.ndarray
    pays: np.ndarray
    short: np.ndarray


class Rooms(NamedTuple):
    """What each user may still spend, by tag, on what the owner shows or on everything else.

    Attributes:
        limit: For users who have spent nothing of it.
        spent: By those who have.
        reserved: What is taken off the limit of some users.
    """

    limit: float
    spent: Mapping[bytes, float]
    reserved: Mapping[bytes, float]

    def of(self, user: bytes) -> float:
        """Return what a user has left; rounding errors are in the user's favour."""
        if math.isinf(self.limit):
            return math.inf
        limit = (self.limit - self.reserved.get(user, 0.0)) * (1 + SLACK)
        return limit - self.spent.get(user, 0.0)

    def least(self) -> float:
        """Return a lower bound of what any user has left."""
        if math.isinf(self.limit):
            return math.inf
        taken = (max(each.values(), default=0.0) for each in (self.spent, self.reserved))
        return self.limit * (1 + SLACK) - sum(taken) * (1 + SLACK)

    def check(self, users: Sequence[bytes], pays: Sequence[float]) -> None:
        """Raise PrivacyError if a user's ratings together would spend more than they may."""
        together: dict[bytes, float] = {}
        for user, epsilon in zip(users, pays, strict=True):
            together[user] = together.get(user, 0.0) + epsilon
        if any(more > self.of(user) for user, more in together.items() if more > 0):
            raise PrivacyError(
                "a user's ratings together would spend more than max_total of the policy allows "
                f"here ({self.limit:g}); nothing was charged and nothing may be sent"
            )


def shows(entry: Entry) -> bool:
    """Return True if an entry is about ratings that the owner shows."""
    return entry.method == SHARING_METHOD and entry.view == "messages"


def rooms_for_shown(shown: Mapping[bytes, float], policy: Policy) -> Rooms:
    """Return what users may still show. It depends on nothing that they hide.

    Args:
        shown: What users have spent on what they show.
    """
    return Rooms(policy.own_total * SHOWN_PART, shown, {})


def rooms_for_others(
    others: Mapping[bytes, float],
    shown: Mapping[bytes, float],
    sharers: Iterable[bytes],
    policy: Policy,
) -> Rooms:
    """Return what users may still spend on everything that they do not show.

    Args:
        others: What they have spent on it.
        shown: What they have spent on what they show.
        sharers: Who shows something at present: of their total a part is kept for it.
    """
    total = policy.own_total
    if math.isinf(total):
        return Rooms(total, others, {})
    return Rooms(total, others, dict(shown) | dict.fromkeys(sharers, total * SHOWN_PART))


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
    """Return what each rating of a user pays within limits; None where it is left out.

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
        sharers: The users who let somebody see some of their ratings now.
    """

    def __init__(
        self,
        journal: Journal,
        tags: Callable[[Ratings], list[bytes]],
        user_tag: Callable[[str], bytes],
        sharers: Callable[[], Iterable[str]],
    ) -> None:
        self._journal = journal
        self._tags = tags
        self._user_tag = user_tag
        self._sharers = sharers

    def __repr__(self) -> str:
        return "PersonLimits(...)"

    def within(
        self,
        ratings: Ratings,
        chosen: np.ndarray,
        prices: np.ndarray,
        policy: Policy,
        *,
        shown: np.ndarray | None = None,
        unit: float | None = None,
        sums: bool = False,
    ) -> Taken:
        """Return the chosen ratings within ``max_ratings`` and ``max_total``, and what they pay.

        Which are left out depends on tags and weights of ratings, never on values (see `fill`).

        Args:
            ratings: The table that ``chosen`` are positions in.
            chosen: Which ratings could take part.
            prices: What each rating of the table would pay.
            shown: A mask of the ratings that the owner shows. They are chosen as if nobody had
                hidden ones: otherwise a hidden rating more would push one out, in plain sight.
            unit: What a 64th of a weight costs, in one-round designs.
            sums: What is not shown enters secure sums: ``max_ratings`` is the weight of so many
                ratings of weight 1 there, and not their number.
        """
        visible = np.zeros(len(chosen), np.bool_) if shown is None else shown[chosen]
        pays = np.full(len(chosen), np.nan)
        for part, room, in_weight in (
            (np.flatnonzero(visible), self._rooms(policy, shown=True), False),
            (np.flatnonzero(~visible), self._rooms(policy, shown=False), sums),
        ):
            positions, most, in_run = chosen[part], policy.max_ratings, np.inf
            own = np.bincount(ratings.user_codes[positions], prices[positions])
            if in_weight and most is not None and unit is not None:
                in_run, most = most * WEIGHT_UNITS * unit * (1 + SLACK), None
            few = most is None or len(positions) <= most
            if few and own.max(initial=0.0) <= min(room.least(), in_run):
                pays[part] = prices[positions]  # tags take their time
                continue
            users = [
                self._user_tag(user) for user in map(str, ratings.user_ids[positions].tolist())
            ]
            tags = self._tags(ratings.take(positions))
            rows: dict[bytes, list[int]] = {}
            for row, user in enumerate(users):
                rows.setdefault(user, []).append(row)
            for user, of_user in rows.items():
                found = fill(
                    [tags[row] for row in of_user],
                    prices[positions[of_user]].tolist(),
                    min(room.of(user), in_run),
                    most,
                    unit,
                )
                pays[part[of_user]] = [np.nan if one is None else one for one in found]
        kept = ~np.isnan(pays)
        short = ~visible & ~(pays >= prices[chosen])
        return Taken(chosen[kept], pays[kept], chosen[short])

    def _rooms(self, policy: Policy, *, shown: bool) -> Rooms:
        """Return what users may still spend on what they show, or on everything else."""
        on_shown = self._journal.sums("user", shows)
        if shown:
            return rooms_for_shown(on_shown, policy)
        others = self._journal.sums("user", lambda entry: not shows(entry))
        sharers = map(self._user_tag, self._sharers())
        return rooms_for_others(others, on_shown, sharers, policy)

    def most_together(self, policy: Policy, *, with_user: str | None = None) -> float:
        """Return what all ratings of a user may spend.

        That is the whole limit. Only who begins to share after other ratings have spent more than
        their part of it may spend more: what is shown must not depend on what they have spent.

        Args:
            with_user: Count this user as one who shares.
        """
        rooms = self._rooms(policy, shown=False)
        if math.isinf(rooms.limit):
            return math.inf
        part = rooms.limit * (1 - SHOWN_PART)
        people = {*self._sharers(), *([] if with_user is None else [with_user])}
        spent = (rooms.spent.get(tag, 0.0) for tag in map(self._user_tag, people))
        return rooms.limit + max([0.0, *(each - part for each in spent)])

    def check(
        self, entry: Entry, users: Sequence[bytes], pays: Sequence[float], policy: Policy
    ) -> None:
        """Raise PrivacyError if a user's ratings would spend more than they may on an entry."""
        self._rooms(policy, shown=shows(entry)).check(users, pays)
