"""What a device has sent, run by run: to whom, what that reveals under which assumption, and what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hdpmf.device.releases import Afterwards, afterwards
from hdpmf.methods import method_named
from hdpmf.methods.words import MEANING, percent

if TYPE_CHECKING:
    from hdpmf.device.ledger import Entry
    from hdpmf.device.store import DeviceStore
    from hdpmf.methods import Form
    from hdpmf.privacy.accounting import Cost

_RATERS = 100


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """What happened in one run, and what it costs a rating of weight 1; None where nothing was paid for.

    Attributes:
        afterwards: What the owner did with its ratings since, where anything has left.
    """

    run: str
    entries: Sequence[Entry]
    afterwards: Afterwards | None = None

    @property
    def paid(self) -> Entry | None:
        """The entry with which ratings paid."""
        return next((entry for entry in self.entries if entry.ratings), None)

    @property
    def form(self) -> Form | None:
        """How the method ran."""
        return None if self.paid is None else method_named(self.paid.method).form(bool(self.paid.labels))

    @property
    def cost(self) -> Cost | None:
        """By the accountant."""
        return None if self.paid is None else cost_of(self.paid)

    def count(self, action: str) -> int:
        """How often something was done."""
        return sum(entry.action == action for entry in self.entries)

    @property
    def when(self) -> str:
        """From when to when."""
        first, last = self.entries[0].at, self.entries[-1].at
        return first if first == last else f"{first} to {last}"

    def words(self) -> list[str]:
        """What it was, in paragraphs."""
        paid, form, cost = self.paid, self.form, self.cost
        sent, refused = self.count("sent"), self.count("refused")
        if paid is None or form is None or cost is None:
            return [f"Nothing of your ratings was sent. Refused: {refused}." if refused else "Nothing was sent."]
        claim = method_named(paid.method).claim(paid.view, labels=bool(paid.labels))
        two = paid.view == "two-servers"
        who = "The recommender, and either server alone, see only" if two else "The recommender sees"
        told = [
            f"Sent {sent} time{'s' if sent != 1 else ''}, for {paid.ratings} ratings. {form.sent}",
            f"{who} {claim.sees}.",
        ]
        if two:
            left = next((entry.words for entry in self.entries if entry.action == "sent"), "nothing, so far")
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
            "changed_afterwards": 0 if self.afterwards is None else self.afterwards.changed,
            "removed_afterwards": 0 if self.afterwards is None else self.afterwards.removed,
            "leaves_the_device": None if form is None else form.sent,
            "not_protected": None if form is None else form.stays_open,
            "cost": None if cost is None else cost.fields(),
        }


def past_runs(store: DeviceStore) -> list[LedgerRun]:
    """The runs of the ledger, the oldest first."""
    since = afterwards(store)
    return [LedgerRun(run, of_run, since.get(run)) for run, of_run in entries_by_run(store).items()]


def entries_by_run(store: DeviceStore) -> dict[str, list[Entry]]:
    """The entries of each run, the oldest run first."""
    found: dict[str, list[Entry]] = {}
    for entry in store.ledger.entries():
        found.setdefault(entry.run, []).append(entry)
    return found


def cost_of(entry: Entry) -> Cost:
    """What the run of an entry costs a rating of weight 1, by the accountant."""
    epsilon = entry.epsilon if math.isfinite(entry.epsilon) else 1.0  # what hides nothing does so at any epsilon
    return _cost(entry.method, entry.view, epsilon, max(entry.rounds, 1), max(entry.factors, 1), bool(entry.labels))


@lru_cache(maxsize=256)
def _cost(method: str, view: str, epsilon: float, rounds: int, factors: int, labels: bool) -> Cost:
    """Of terms, which many runs share and which are no secret."""
    from hdpmf.privacy.accounting import cost

    return cost(method, view, n_raters=_RATERS, epsilon=epsilon, rounds=rounds, factors=factors, labels=labels)


def reveals(cost: Cost) -> str:
    """What an observer learns of a rating, in plain words."""
    if cost.status == "no guarantee":
        return "possibly everything. Nothing keeps the recommender from computing the ratings."
    sure = percent(cost.guess, at_most=cost.status == "proved")
    bound = "at most" if cost.status == "proved" else "at least" if cost.guess_is_exact else "about"
    return (
        f"somebody who would guess 50:50 whether one of the ratings was the lowest or the highest is right {bound} "
        f"{sure} of the time after looking, for a rating of weight 1 ({cost.in_numbers()}); less for smaller weights."
    )


@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """What a rating has spent in its whole life. PRIVATE.

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
        """Of its budget that is left, from 0 to 1."""
        return self.left / self.allowed if self.allowed > 0 else 0.0


def budgets(store: DeviceStore) -> list[Budget]:
    """What each rating has left, whichever recommender has its item."""
    records, policy = store.records(), store.policy
    spent, tag_of = store.ledger.spent(), store.ledger.tag_of
    found = []
    for record in records:
        allowed = (record.weight or 0.0) * policy.own_epsilon
        left = allowed - spent.get(tag_of(record.user, record.item), 0.0)
        found.append(Budget(record.item, allowed, min(max(left, 0.0), allowed)))
    return found
