"""Past runs from the ledger: what was sent, what it reveals, and what was spent.

For this device's owner only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.registry import MEANING, percent
from hdpmf.common.privacy.accounting import DELTA, Cost, cost, epsilon_at, pure
from hdpmf.common.privacy.accounting.accountants import Composed, Event
from hdpmf.private.device.disclosures.ledger import Charge, Entry, Ledger
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record

if TYPE_CHECKING:
    from hdpmf.common.methods import Form


_STAYS = "What was sent stays sent and cannot be recalled."


@dataclass(frozen=True, slots=True)
class Afterwards:
    """Changes that the owner made to the ratings of a run after it had sent them.

    Attributes:
        changed: Ratings whose value was changed or given again.
        removed: Ratings that are not here any more.
    """

    changed: int
    removed: int

    def in_words(self, method: str) -> str:
        """For the owner; empty where nothing happened."""
        if not (self.changed or self.removed):
            return ""
        done = [f"changed {self.changed}"] if self.changed else []
        done += [f"removed {self.removed}"] if self.removed else []
        return (
            f"Of these ratings you {' and '.join(done)} on this device afterwards. {_STAYS}"
            f"{_next(method) if self.changed else ''}"
        )


def afterwards(store: DeviceStore) -> dict[str, Afterwards]:
    """Return what the owner changed after each run that anything has left in, by run."""
    since = {
        store.ledger.tag_of(record.user, record.item): record.since for record in store.records()
    }
    told = {}
    for run in store.ledger.charged():
        here = [since[tag] for tag in run.pairs if tag in since]
        told[run.entry.run] = Afterwards(
            sum(number >= run.number for number in here), len(run.pairs) - len(here)
        )
    return told


def releases(store: DeviceStore, user: str, item: str) -> list[Charge]:
    """The runs that a rating was part of, oldest first, whether it is still here or not."""
    tag = store.ledger.tag_of(user, item)
    return [run for run in store.ledger.charged() if tag in run.pairs]


def by_rating(store: DeviceStore) -> Iterator[tuple[Record, list[Charge]]]:
    """Every rating here with the runs that it was part of."""
    runs = [(run, frozenset(run.pairs)) for run in store.ledger.charged()]
    for record in store.records():
        tag = store.ledger.tag_of(record.user, record.item)
        yield record, [run for run, pairs in runs if tag in pairs]


def released_words(entry: Entry, *, removed: bool) -> str:
    """Return the notice for an owner who changes or removes a rating that was sent."""
    return (
        f"It was released on {entry.at[:10]} to {entry.recommender} ({entry.method}, "
        f"run {entry.run[:8]}). {_STAYS}"
        f"{'' if removed else _next(entry.method)}"
    )


def _next(method: str) -> str:
    """Say what becomes of a new value."""
    if method in METHODS and METHODS[method].one_round:
        return " The new value is not sent to this recommender: a rating answers it once."
    return " A later run may use the new value, as far as the rating's budget reaches."


_SLACK = (
    1e-9  # a weight that was multiplied by epsilon and divided again must not fall below its 64th
)


@dataclass(frozen=True, slots=True)
class TotalSpending:
    """The privacy cost of a person, not of one rating.

    Attributes:
        pure: Pure epsilon of all charges; infinite where something went out without protection.
        at_delta: The smallest epsilon that the accountant proves at ``delta``.
        delta: For that.
        proved: Whether every run that was paid for has a proof; else the numbers count one channel
            of several.
    """

    pure: float
    at_delta: float
    delta: float
    proved: bool

    def __str__(self) -> str:
        if math.isinf(self.at_delta):
            return "infinitely much (something went out without protection)"
        approximate = f"({self.at_delta:.4g}, {self.delta:g})"
        if math.isinf(self.pure):
            return f"no finite pure epsilon; {approximate}"
        return f"epsilon {self.pure:.4g}" + (
            f", or {approximate}" if self.at_delta < 0.95 * self.pure else ""
        )


def total_spending(ledger: Ledger, delta: float = DELTA) -> TotalSpending:
    """Return the total spending of one user; in a silo, of the user who has spent most."""
    charged = ledger.charged()
    totals: dict[bytes, float] = {}
    for run in charged:
        for user, epsilon in zip(run.users, run.paid.tolist(), strict=True):
            totals[user] = totals.get(user, 0.0) + epsilon
    if not totals:
        return TotalSpending(0.0, 0.0, delta, True)
    most = max(totals, key=lambda user: totals[user])
    # What its owner published is no cost that epsilon counts.
    own = [
        (run.entry, run.paid[(run.paid > 0) & [user == most for user in run.users]])
        for run in charged
    ]
    return _together([(entry, epsilons) for entry, epsilons in own if len(epsilons)], delta)


def _together(charges: Iterable[tuple[Entry, np.ndarray]], delta: float) -> TotalSpending:
    events: list[Event] = []
    known: dict[
        tuple[object, ...], Cost
    ] = {}  # runs are often alike; only for this call, because weights are private
    proved = True
    for entry, epsilons in charges:
        if not math.isfinite(entry.epsilon) or bool(np.isinf(epsilons).any()):
            return TotalSpending(math.inf, math.inf, delta, False)
        weights = np.sort(np.minimum(epsilons / entry.epsilon * (1 + _SLACK), 1.0))
        terms = (
            entry.method,
            entry.view,
            entry.epsilon,
            entry.rounds,
            entry.factors,
            entry.labels,
            weights.tobytes(),
        )
        found = known.get(terms)
        if found is None:
            found = known[terms] = cost(
                entry.method,
                entry.view,
                unit="user",
                weight=weights.tolist(),
                epsilon=entry.epsilon,
                rounds=max(entry.rounds, 1),
                factors=max(entry.factors, 1),
                labels=bool(entry.labels),
            )
        proved &= found.status == "proved"
        events.append(found.event)
    together = Composed(tuple(events))
    return TotalSpending(pure(together), epsilon_at(together, delta), delta, proved)


_RATERS = 100


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """One run of the ledger, with its cost for a rating of weight 1 (None if nothing was paid).

    Attributes:
        afterwards: What the owner did with its ratings since, where anything has left.
        seen_items: Items, of those that are rated here, that it showed to be rated.
        open_items: Items whose ratings it published.
    """

    run: str
    entries: Sequence[Entry]
    afterwards: Afterwards | None = None
    seen_items: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()

    @property
    def paid(self) -> Entry | None:
        """The entry with which ratings paid; None where all of it was given back."""
        paid = None
        for entry in self.entries:
            if entry.ratings:
                paid = entry
            elif entry.action == "returned" and entry.part >= 1:
                paid = None
        return paid

    @property
    def form(self) -> Form | None:
        """The form in which the method ran."""
        return (
            None
            if self.paid is None
            else method_named(self.paid.method).form(bool(self.paid.labels))
        )

    @property
    def cost(self) -> Cost | None:
        """The cost for a rating of weight 1, by the accountant; None if nothing was paid."""
        return None if self.paid is None else cost_of(self.paid)

    def count(self, action: str) -> int:
        """Return how often an action was done."""
        return sum(entry.action == action for entry in self.entries)

    @property
    def when(self) -> str:
        """The time of the run, or its first and last time."""
        first, last = self.entries[0].at, self.entries[-1].at
        return first if first == last else f"{first} to {last}"

    def words(self) -> list[str]:
        """Describe the run, in paragraphs."""
        paid, form, cost = self.paid, self.form, self.cost
        sent, refused = self.count("sent"), self.count("refused")
        if paid is None or form is None or cost is None:
            return [
                f"Nothing of your ratings was sent. Refused: {refused}."
                if refused
                else "Nothing was sent."
            ]
        claim = method_named(paid.method).claim(paid.view, labels=bool(paid.labels))
        two = paid.view == "two-servers"
        who = (
            "The recommender, and either server alone, see only" if two else "The recommender sees"
        )
        told = [
            f"Sent {sent} time{'s' if sent != 1 else ''}, for {paid.ratings} ratings. {form.sent}",
            f"{who} {claim.sees}.",
        ]
        if paid.seen or paid.opened:
            told.append(
                f"Of these ratings you let be seen that {paid.seen} are there, and published "
                f"{paid.opened} as they are."
            )
        if two:
            left = next(
                (entry.words for entry in self.entries if entry.action == "sent"), "nothing, so far"
            )
            told.append(f"What has left: {left}.")
        done = "" if self.afterwards is None else self.afterwards.in_words(paid.method)
        return [
            *told,
            *([done] if done else []),
            f"What that reveals: {reveals(cost)}",
            f"What it stands on: {MEANING[cost.status]} {cost.reason}",
            form.stays_open,
        ]

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        first, paid, form, cost = self.entries[0], self.paid, self.form, self.cost
        return {
            "run": self.run,
            "recommender": first.recommender,
            "method": first.method,
            "view": first.view,
            "first": first.at,
            "last": self.entries[-1].at,
            "sent": self.count("sent"),
            "refused": self.count("refused"),
            "ratings": 0 if paid is None else paid.ratings,
            "seen": 0 if paid is None else paid.seen,
            "open": 0 if paid is None else paid.opened,
            "changed_afterwards": 0 if self.afterwards is None else self.afterwards.changed,
            "removed_afterwards": 0 if self.afterwards is None else self.afterwards.removed,
            "leaves_the_device": None if form is None else form.sent,
            "not_protected": None if form is None else form.stays_open,
            "cost": None if cost is None else cost.fields(),
        }


def past_runs(store: DeviceStore) -> list[LedgerRun]:
    """The runs of the ledger, the oldest first."""
    since, shown = afterwards(store), _shown_items(store)
    return [
        LedgerRun(run, of_run, since.get(run), *shown.get(run, ((), ())))
        for run, of_run in entries_by_run(store).items()
    ]


def _shown_items(store: DeviceStore) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return, by run, the items that were shown to be rated, and those that were published."""
    runs = [run for run in store.ledger.charged() if run.entry.seen or run.entry.opened]
    if not runs:
        return {}
    items = {
        store.ledger.tag_of(record.user, record.item): record.item for record in store.records()
    }
    found = {}
    for run in runs:
        paid = dict(zip(run.pairs, run.paid.tolist(), strict=True))
        here = [(items[tag], cost) for tag, cost in paid.items() if tag in items]
        found[run.entry.run] = (
            tuple(item for item, cost in here if cost > 0),
            tuple(item for item, cost in here if cost == 0),
        )
    return found


def entries_by_run(store: DeviceStore) -> dict[str, list[Entry]]:
    """The entries of each run, the oldest run first."""
    found: dict[str, list[Entry]] = {}
    for entry in store.ledger.entries():
        found.setdefault(entry.run, []).append(entry)
    return found


def cost_of(entry: Entry) -> Cost:
    """Return the accountant's cost of an entry's run for a rating of weight 1."""
    epsilon = (
        entry.epsilon if math.isfinite(entry.epsilon) else 1.0
    )  # what hides nothing does so at any epsilon
    return _cost(
        entry.method,
        entry.view,
        epsilon,
        max(entry.rounds, 1),
        max(entry.factors, 1),
        bool(entry.labels),
    )


@lru_cache(maxsize=256)
def _cost(method: str, view: str, epsilon: float, rounds: int, factors: int, labels: bool) -> Cost:
    """Return the cost of terms, which many runs share and which are no secret."""
    from hdpmf.common.privacy.accounting import cost

    return cost(
        method,
        view,
        n_raters=_RATERS,
        epsilon=epsilon,
        rounds=rounds,
        factors=factors,
        labels=labels,
    )


def reveals(cost: Cost) -> str:
    """Say in plain words what an observer learns of a rating."""
    if cost.status == "no guarantee":
        return "possibly everything. Nothing keeps the recommender from computing the ratings."
    sure = percent(cost.guess, at_most=cost.status == "proved")
    bound = "at most" if cost.status == "proved" else "at least" if cost.guess_is_exact else "about"
    return (
        "somebody who would guess 50:50 whether one of the ratings was the lowest or "
        f"the highest is right {bound} "
        f"{sure} of the time after looking, for a rating of weight 1 "
        f"({cost.in_numbers()}); less for smaller weights."
    )


@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """The budget of a rating over its whole life. PRIVATE.

    Attributes:
        item: Which.
        allowed: Its weight times the policy's epsilon.
        left: Of that; never below 0 here.
    """

    item: str
    allowed: float
    left: float

    @property
    def part(self) -> float:
        """The part of its budget that is left, from 0 to 1."""
        return self.left / self.allowed if self.allowed > 0 else 0.0


def budgets(store: DeviceStore) -> list[Budget]:
    """Return the remaining budget of each rating, of the items of all recommenders."""
    policy, spent = store.policy, _spent(store)
    found = []
    for record in store.records():
        allowed = (record.weight or 0.0) * policy.own_epsilon
        left = allowed - spent[record.user, record.item]
        found.append(Budget(record.item, allowed, min(max(left, 0.0), allowed)))
    return found


def _spent(store: DeviceStore) -> dict[tuple[str, str], float]:
    """Return what was spent on each rating, as the recommender sees it that can get the least."""
    ledger = store.ledger
    found = ledger.spent_by_name((record.user, record.item) for record in store.records())
    for view in map(store.at, store.recommender_ids):
        if view.pinned_catalogue is None:
            continue
        ratings = view.ratings()
        pairs = zip(ratings.user_ids.tolist(), ratings.item_ids.tolist(), strict=True)
        for (user, item), spent in zip(pairs, ledger.spent(ratings).tolist(), strict=True):
            pair = str(user), str(item)
            found[pair] = max(found[pair], spent)
    return found
