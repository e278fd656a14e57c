"""Past runs from the ledger: what was sent, and what each reveals.

For this device's owner only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.registry import MEANING, at_least, at_most, percent
from hdpmf.private.device.disclosures.bounds import privacy_bounds
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.ledger import Charge
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record

if TYPE_CHECKING:
    from hdpmf.common.methods import Form
    from hdpmf.common.privacy.accounting import Cost


_STAYS = "What was sent stays sent and cannot be recalled."

_SPENT = "What was sent is spent all the same."


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
    since = {store.ledger.tag_of(record.item): record.since for record in store.records()}
    told = {}
    for run in store.ledger.charged():
        here = [since[tag] for tag in run.pairs if tag in since]
        told[run.entry.run] = Afterwards(
            sum(number >= run.number for number in here), len(run.pairs) - len(here)
        )
    return told


def releases(store: DeviceStore, item: str) -> list[Charge]:
    """The runs that a rating was part of, oldest first, whether it is still here or not."""
    tag = store.ledger.tag_of(item)
    return [run for run in store.ledger.charged() if tag in run.pairs]


def by_rating(store: DeviceStore) -> Iterator[tuple[Record, list[Charge]]]:
    """Every rating here with the runs that it was part of."""
    runs = [(run, frozenset(run.pairs)) for run in store.ledger.charged()]
    for record in store.records():
        tag = store.ledger.tag_of(record.item)
        yield record, [run for run, pairs in runs if tag in pairs]


def released_words(entry: Entry, done: Literal["changed", "removed", "marked"]) -> str:
    """Return the notice for an owner who changes, removes or marks a rating that was sent."""
    return (
        f"It was released on {entry.at[:10]} to {entry.recommender} ({entry.method}, run "
        f"{entry.run[:8]}). {_STAYS}{_next(entry.method) if done == 'changed' else ''}"
    )


def _next(method: str) -> str:
    """Say what becomes of a new value."""
    if method in METHODS and METHODS[method].one_round:
        return " The new value is not sent to this recommender: a rating answers it once."
    return " A later run may use the new value, as far as the rating's budget reaches."


_RATERS = 100


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """One run of the ledger, with its cost for a rating of weight 1 (None if nothing was paid).

    Attributes:
        afterwards: What the owner did with its ratings since, where anything has left.
    """

    run: str
    entries: Sequence[Entry]
    afterwards: Afterwards | None = None

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
    def given_back(self) -> str:
        """Why all was given back although something had left, in words; empty if it was not."""
        if self.paid is not None or not self.count("sent"):
            return ""
        return next((entry.words for entry in self.entries[::-1] if entry.part >= 1), "")

    @property
    def form(self) -> Form | None:
        """The form in which the method ran."""
        if self.paid is None:
            return None
        return method_named(self.paid.method).form

    @property
    def cost(self) -> Cost | None:
        """The cost for a rating of weight 1, by the accountant; None if nothing was paid."""
        return None if self.paid is None else cost_of(self.paid)

    def count(self, action: str) -> int:
        """Return how often an action was done."""
        return sum(entry.action == action for entry in self.entries)

    @property
    def failed(self) -> str:
        """What went wrong after something had left, in words; empty where nothing did so far."""
        if self.paid is None or not self.count("sent"):
            return ""
        refused = next((entry.words for entry in self.entries if entry.action == "refused"), "")
        if refused:
            return f"It failed: {refused}. {_SPENT}"
        if self.count("received"):
            return ""
        return f"No model of this run has come so far. {_SPENT}"

    @property
    def when(self) -> str:
        """The time of the run, or its first and last time."""
        first, last = self.entries[0].at, self.entries[-1].at
        return first if first == last else f"{first} to {last}"

    def words(self) -> list[str]:
        """Describe the run, in paragraphs."""
        paid, form, cost = self.paid, self.form, self.cost
        sent, refused = self.count("sent"), self.count("refused")
        if self.given_back:
            return [f"A report was sent, and what it cost was given back: {self.given_back}."]
        if paid is None or form is None or cost is None:
            return [
                f"Nothing of your ratings was sent. Refused: {refused}."
                if refused
                else "Nothing was sent."
            ]
        claim = method_named(paid.method).claim(paid.view)
        two = paid.view == "two-servers"
        who = (
            "The recommender, and either server alone, see only" if two else "The recommender sees"
        )
        told = [
            f"Sent {sent} time{'s' if sent != 1 else ''}, for {paid.ratings} ratings. {form.sent}",
            f"{who} {claim.sees}.",
        ]
        if two:
            left = next(
                (entry.words for entry in self.entries if entry.action == "sent"), "nothing, so far"
            )
            told.append(f"What has left: {left}.")
        if self.failed:
            told.append(self.failed)
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
    """Return the accountant's cost of an entry's run for a rating of weight 1."""
    # What hides nothing does so at any epsilon.
    epsilon = entry.epsilon if math.isfinite(entry.epsilon) else 1.0
    return _cost(
        entry.method,
        entry.view,
        epsilon,
        max(entry.rounds, 1),
        max(entry.factors, 1),
    )


@lru_cache(maxsize=256)
def _cost(method: str, view: str, epsilon: float, rounds: int, factors: int) -> Cost:
    """Return the cost of terms, which many runs share and which are no secret."""
    from hdpmf.common.privacy.accounting import cost

    return cost(
        method,
        view,
        n_raters=_RATERS,
        epsilon=epsilon,
        rounds=rounds,
        factors=factors,
    )


def reveals(cost: Cost) -> str:
    """Say in plain words what an observer learns of a rating."""
    if cost.status == "no guarantee":
        return "possibly everything. Nothing keeps the recommender from computing the ratings."
    bound = f"about {percent(cost.guess)}"
    if cost.status == "proved":
        bound = f"at most {at_most(cost.guess)}"
    elif cost.guess_is_exact:
        bound = f"at least {at_least(cost.guess)}"
    return (
        "somebody who would guess 50:50 whether one of the ratings was the lowest or the highest "
        f"is right {bound} of the time after looking at this run alone, for a rating of weight 1 "
        f"({cost.in_numbers()}); less for smaller weights."
    )


def disclosures(store: DeviceStore) -> dict[str, Any]:
    """Everything that was ever sent, for JSON."""
    entries, total = store.ledger.entries(), store.ledger.spent_total()
    bounds = privacy_bounds(store)
    together, runs = bounds.spent, past_runs(store)
    return {
        "entries": [_fields(entry) for entry in entries],
        "runs": [run.fields() for run in runs],
        "spent_total": total if math.isfinite(total) else None,
        "unprotected": math.isinf(total),
        "spent_together": {
            "pure_epsilon": together.pure if math.isfinite(together.pure) else None,
            "epsilon_at_delta": together.at_delta if math.isfinite(together.at_delta) else None,
            "delta": together.delta,
            "proved": together.proved,
        },
        "guess_at_most": bounds.fields(),
        "budget_per_rating": store.policy.own_epsilon,
    }


def _fields(entry: Entry) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in plain.items()
    }
