"""Bounds on what is given away, of one rating and of the person: every privacy sentence says these.

A bound is computed from what was spent, whatever has been chosen since, plus what may still be
spent under the policy and the owner's level of now. A choice changes only the second part. Numbers
for people are rounded up. Where a method without a proof was used, or is allowed, there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.methods.registry import at_most, guess_at
from hdpmf.common.privacy.accounting import DELTA, Cost, cost, epsilon_at, guess, pure
from hdpmf.common.privacy.accounting.accountants import Composed, Event, PureRelease
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.privacy.coding import MEAN_SHARE, WEIGHT_UNITS
from hdpmf.private.device.choices.privacy_level import check_weight, privacy_weight
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.ledger import Ledger, SpentRating
from hdpmf.private.device.disclosures.shared_budget import NO_TAG
from hdpmf.private.device.policy import Policy, Terms
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record

_LEAST = 1 / WEIGHT_UNITS
"""A rating with less than this part of the policy's epsilon left has nothing left to speak of."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that somebody learns who has seen everything.

    Attributes:
        epsilon: Pure for a rating, at ``DELTA`` for a person; infinite where nothing bounds it.
        guess: How often a guess between two equally likely truths is right, at most: 0.5 says
            nothing.
    """

    epsilon: float
    guess: float

    @classmethod
    def of_rating(cls, epsilon: float) -> Bound:
        """Return the bound of a rating with this pure epsilon."""
        return cls(epsilon, guess_at(epsilon))

    @property
    def percent(self) -> str:
        """The guess in percent, to stand behind "at most"."""
        return at_most(self.guess)

    @property
    def overlap(self) -> float:
        """The part of what can be seen that looks the same either way, at least: 1 for a coin."""
        return 2 * (1 - self.guess)

    @property
    def up_to(self) -> str:
        """Epsilon with three digits, rounded up."""
        return rounded_up(self.epsilon)


# A weight that was multiplied by epsilon and divided again must not fall below its 64th.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class TotalSpending:
    """The privacy cost of a person, not of one rating.

    Attributes:
        pure: Pure epsilon of all charges; infinite where something went out without protection.
        at_delta: The smallest epsilon that the accountant proves at ``delta``.
        proved: Whether every run that was paid for has a proof; else the numbers count one channel
            of several.
        event: What was released, for the accountant; None where nothing protected it.
    """

    pure: float
    at_delta: float
    delta: float
    proved: bool
    event: Event | None = field(default=None, compare=False, repr=False)

    @property
    def bound(self) -> Bound:
        """The bound of the person, by all that has left."""
        return _person(self)

    def __str__(self) -> str:
        if math.isinf(self.at_delta):
            return "infinitely much (something went out without protection)"
        approximate = f"({rounded_up(self.at_delta, 4)}, {self.delta:g})"
        if math.isinf(self.pure):
            return f"no finite pure epsilon; {approximate}"
        return f"epsilon {rounded_up(self.pure, 4)}" + (
            f", or {approximate}" if self.at_delta < 0.95 * self.pure else ""
        )


def total_spending(ledger: Ledger, delta: float = DELTA) -> TotalSpending:
    """Return the total spending of the person: all that has left.

    What is held for a run is not spent yet.
    """
    charged = ledger.charged()
    if not charged:
        return TotalSpending(0.0, 0.0, delta, True, Composed(()))
    return _together([(run.entry, run.paid) for run in charged], delta)


def _together(charges: Iterable[tuple[Entry, np.ndarray]], delta: float) -> TotalSpending:
    events: list[Event] = []
    # Runs are often alike; only for this call, because weights are private.
    known: dict[tuple[object, ...], Cost] = {}
    proved = True
    for entry, epsilons in charges:
        if not math.isfinite(entry.epsilon) or bool(np.isinf(epsilons).any()):
            return TotalSpending(math.inf, math.inf, delta, False)
        terms = (entry.method, entry.view, entry.epsilon, entry.rounds, entry.factors)
        weights = _weights(epsilons, entry.epsilon)
        found = known.get((*terms, weights.tobytes()))
        if found is None:
            found = known[*terms, weights.tobytes()] = _person_cost(*terms, weights)
        proved &= found.status == "proved"
        events.append(found.event)
    together = Composed(tuple(events))
    return TotalSpending(pure(together), epsilon_at(together, delta), delta, proved, together)


def _weights(epsilons: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the weights of ratings that pay these epsilons in a run, in order."""
    return np.sort(np.minimum(epsilons / epsilon * (1 + _SLACK), 1.0))


def _person_cost(
    method: str,
    view: str,
    epsilon: float,
    rounds: int,
    factors: int,
    weights: np.ndarray,
) -> Cost:
    return cost(
        method,
        view,
        unit="user",
        weight=weights.tolist(),
        epsilon=epsilon,
        rounds=max(rounds, 1),
        factors=max(factors, 1),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """The budget of a rating over its whole life. PRIVATE.

    Attributes:
        allowed: Its weight times the policy's epsilon.
        spent: What it has spent or holds under any name; more than ``allowed`` where the owner has
            become more private since.
        used_up: Nothing is left to speak of.
    """

    item: str
    allowed: float
    spent: float
    used_up: bool

    @property
    def left(self) -> float:
        """What it may still spend; never below 0."""
        return min(max(self.allowed - self.spent, 0.0), self.allowed)

    @property
    def part(self) -> float:
        """The part of its budget that is left, from 0 to 1."""
        return self.left / self.allowed if self.allowed > 0 else 0.0

    @property
    def bound(self) -> Bound:
        """What was spent plus what may still be spent."""
        return Bound.of_rating(max(self.allowed, self.spent))

    @property
    def so_far(self) -> Bound:
        """What was spent, or is held."""
        return Bound.of_rating(self.spent)


def budgets(store: DeviceStore, weight: float | None = None) -> list[Budget]:
    """Return the budget of each rating, of the items of all recommenders.

    With ``weight``, as if the owner's privacy weight were that.
    """
    records = store.rated.weighed(weight)
    most, spent = store.policy.own_epsilon, _spent(store, records)
    found = []
    for record in records:
        allowed, paid = (record.weight or 0.0) * most, spent[record.item]
        used_up = _is_used_up(allowed - paid, most)
        found.append(Budget(record.item, allowed, paid, used_up))
    return found


def _is_used_up(left: float, most: float) -> bool:
    return left < _LEAST * most


def _spent(store: DeviceStore, records: Sequence[Record]) -> dict[str, float]:
    """Return what was spent on each rating, as the recommender sees it that can get the least."""
    ledger = store.ledger
    found = ledger.spent_by_name(record.item for record in records)
    for view in map(store.at, store.recommender_ids):
        if view.pinned_catalogue is None:
            continue
        ratings = view.ratings()
        items = map(str, ratings.item_ids.tolist())
        for item, spent in zip(items, ledger.spent(ratings).tolist(), strict=True):
            found[item] = max(found[item], spent)
    return found


@dataclass(frozen=True, slots=True)
class PrivacyBounds:
    """What was given away, and what can still be, at a privacy level.

    Attributes:
        weight: The owner's weight of that level.
        rating: Of the rating that gives away most, one to come included.
        person: Of all ratings together.
        fresh: Of a rating of which nothing was sent so far.
        rating_so_far: Of the rating that has given away most, by what has left or is held.
        person_so_far: Of all that has left together.
        spent: The same by the accountant, in its own words.
        proved: All that was spent or may be has a proof; without, the numbers bound nothing.
    """

    weight: float
    ratings: int
    rating: Bound
    person: Bound
    fresh: Bound
    rating_so_far: Bound
    person_so_far: Bound
    spent: TotalSpending
    proved: bool

    def fields(self) -> dict[str, object]:
        """For JSON; None where nothing is proved."""
        proved, proved_so_far = self.proved, self.spent.proved
        return {
            "rating": self.rating.guess if proved else None,
            "person": self.person.guess if proved else None,
            "rating_so_far": self.rating_so_far.guess if proved_so_far else None,
            "person_so_far": self.person_so_far.guess if proved_so_far else None,
        }


def privacy_bounds(store: DeviceStore, weight: float | None = None) -> PrivacyBounds:
    """Return the bounds at the owner's privacy level, or as if it were another one.

    Raises:
        ConfigError: There is no such level.
    """
    own = privacy_weight(store) if weight is None else weight
    check_weight(own)
    policy = store.policy
    fresh = Bound.of_rating(policy.own_epsilon * own)
    spent = total_spending(store.ledger)
    charges = store.ledger.every_charge()
    here = budgets(store, weight)
    so_far = max((*_by_subject(charges), *(each.spent for each in here)), default=0.0)
    most = max((fresh.epsilon, so_far, *(each.allowed for each in here)))
    return PrivacyBounds(
        weight=own,
        ratings=len(here),
        rating=Bound.of_rating(most),
        person=_person(spent, *_still(policy, here, charges)),
        fresh=fresh,
        rating_so_far=Bound.of_rating(so_far),
        person_so_far=spent.bound,
        spent=spent,
        proved=spent.proved,
    )


def bound_of_items(store: DeviceStore, items: Iterable[str]) -> Bound:
    """Return the bound of the rating of these items that gives away most."""
    wanted = set(items)
    own = (each.bound.epsilon for each in budgets(store) if each.item in wanted)
    return Bound.of_rating(max(own, default=0.0))


def _by_subject(charges: Sequence[SpentRating]) -> list[float]:
    """Return what was spent on the subject of each rating, also of those that are gone.

    Names that share a title or a row of a file may be one secret, so they count together.
    """
    by_tag: dict[bytes, set[int]] = {}
    for place, charge in enumerate(charges):
        for subject in charge.subjects:
            for tag in {subject.title, subject.source} - {NO_TAG}:
                by_tag.setdefault(tag, set()).add(place)
    totals = []
    for place, charge in enumerate(charges):
        tags = {tag for each in charge.subjects for tag in (each.title, each.source)}
        alike = {place}.union(*(by_tag.get(tag, ()) for tag in tags))
        totals.append(math.fsum(charges[other].paid + charges[other].held for other in alike))
    return totals


def _still(
    policy: Policy, here: Sequence[Budget], charges: Sequence[SpentRating]
) -> tuple[list[Event], float]:
    """Return what the person may still spend: events, and pure epsilon."""
    held = [charge.held for charge in charges]  # it may leave, although its owner spends no more
    parts = [*held, *(budget.left for budget in here)]
    room = max(policy.own_total - math.fsum(charge.paid for charge in charges), math.fsum(held))
    return _any_runs([part for part in parts if part > 0]), min(math.fsum(parts), room)


def _any_runs(left: Sequence[float]) -> list[Event]:
    """Return events that bound whatever runs come with these budgets.

    However a budget is divided among runs, what they release of one rating is a
    post-processing of a bit with its whole budget (Kairouz, Oh and Viswanath 2015). What is
    released of all ratings together, the mean, costs a fixed part of each.
    """
    return [*map(PureRelease, left), PureRelease(float(MEAN_SHARE) * math.fsum(left))]


def _person(
    spent: TotalSpending, events: Sequence[Event] = (), more: float = 0.0, delta: float = DELTA
) -> Bound:
    """Return the bound of a person who has spent this, and may spend so much more."""
    if spent.event is None:
        return Bound(math.inf, 1.0)
    whole = Composed((spent.event, *events))
    at_delta = min(epsilon_at(whole, delta), spent.at_delta + more)
    by_pure = guess_at(min(pure(whole), spent.pure + more))
    # Whoever is (epsilon, delta)-private is told apart a little more often than by epsilon alone.
    by_delta = guess_at(at_delta) + delta * (1 - guess_at(at_delta))
    return Bound(at_delta, min(guess(whole), by_pure, by_delta))


@dataclass(frozen=True, slots=True)
class RunBounds:
    """Bounds of what has left, before a run and after it.

    Attributes:
        rating: Of the rating that has given away most, before and after.
        person: Of all ratings together, before and after.
        used_up: Ratings that have no budget left after it.
        part: Of the lifetime budget of those that take part, what it takes, from 0 to 1.
        left: Of that budget, what is left before and after, from 0 to 1.
    """

    rating: tuple[Bound, Bound]
    person: tuple[Bound, Bound]
    used_up: int
    part: float
    left: tuple[float, float]

    def fields(self) -> dict[str, float]:
        """For JSON."""
        (rating, rating_after), (person, person_after) = self.rating, self.person
        return {
            "rating_so_far": rating.guess,
            "rating_afterwards": rating_after.guess,
            "person_so_far": person.guess,
            "person_afterwards": person_after.guess,
        }


def run_bounds(
    store: DeviceStore, terms: Terms, pays: Sequence[tuple[str, float]]
) -> RunBounds | None:
    """Return the bounds before and after a run; None where nothing is proved.

    Args:
        pays: For each rating that would take part its item and what it pays.
    """
    before = privacy_bounds(store)
    if not before.spent.proved or before.spent.event is None:
        return None
    known = {each.item: each for each in budgets(store)}
    after, used_up, allowed, left = before.rating_so_far.epsilon, 0, 0.0, 0.0
    for item, paid in pays:
        budget = known[item]
        after = max(after, budget.spent + paid)
        rest = budget.allowed - budget.spent - paid
        used_up += _is_used_up(rest, store.policy.own_epsilon)
        allowed += budget.allowed
        left += budget.left
    events = []
    if pays:
        found = _person_cost(
            terms.method, terms.view, terms.epsilon, terms.rounds, 1,
            _weights(np.array([paid for _, paid in pays]), terms.epsilon),
        )  # fmt: skip
        if found.status != "proved":
            return None
        events.append(found.event)
    more = math.fsum(paid for _, paid in pays)
    return RunBounds(
        rating=(before.rating_so_far, Bound.of_rating(after)),
        person=(before.person_so_far, _person(before.spent, events, more)),
        used_up=used_up,
        part=more / allowed if allowed else 0.0,
        left=(left / allowed, max(left - more, 0.0) / allowed) if allowed else (1.0, 1.0),
    )
