"""Whose epsilon: what all ratings of one person have spent together, in all runs and with all recommenders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hdpmf.device.ledger import Entry, Ledger
from hdpmf.privacy.accounting import DELTA, Cost, cost, epsilon_at, pure
from hdpmf.privacy.accounting.events import Composed, Event

_SLACK = 1e-9  # a weight that was multiplied by epsilon and divided again must not fall below its 64th


@dataclass(frozen=True, slots=True)
class SpentTogether:
    """What may be learnt about a person, not about one rating.

    Attributes:
        pure: Pure epsilon of all charges; infinite where something went out without protection.
        at_delta: The smallest epsilon that the accountant proves at ``delta``.
        delta: For that.
        proved: Whether every run that was paid for has a proof; else the numbers count one channel of several.
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
        return f"epsilon {self.pure:.4g}" + (f", or {approximate}" if self.at_delta < 0.95 * self.pure else "")


def spent_together(ledger: Ledger, delta: float = DELTA) -> SpentTogether:
    """What the ratings of one user have spent together; in a silo, of the user who has spent most."""
    charged = ledger.charged()
    totals: dict[bytes, float] = {}
    for run in charged:
        for user, epsilon in zip(run.users, run.paid.tolist(), strict=True):
            totals[user] = totals.get(user, 0.0) + epsilon
    if not totals:
        return SpentTogether(0.0, 0.0, delta, True)
    most = max(totals, key=lambda user: totals[user])
    own = [(run.entry, run.paid[[user == most for user in run.users]]) for run in charged]
    return _together([(entry, epsilons) for entry, epsilons in own if len(epsilons)], delta)


def _together(charges: Iterable[tuple[Entry, np.ndarray]], delta: float) -> SpentTogether:
    events: list[Event] = []
    known: dict[tuple[object, ...], Cost] = {}  # runs are often alike; only for this call, because weights are private
    proved = True
    for entry, epsilons in charges:
        if not math.isfinite(entry.epsilon) or bool(np.isinf(epsilons).any()):
            return SpentTogether(math.inf, math.inf, delta, False)
        weights = np.sort(np.minimum(epsilons / entry.epsilon * (1 + _SLACK), 1.0))
        terms = (entry.method, entry.view, entry.epsilon, entry.rounds, entry.factors, entry.labels, weights.tobytes())
        found = known.get(terms)
        if found is None:
            found = known[terms] = cost(
                entry.method, entry.view, unit="user", weight=weights.tolist(), epsilon=entry.epsilon,
                rounds=max(entry.rounds, 1), factors=max(entry.factors, 1), labels=bool(entry.labels),
            )  # fmt: skip
        proved &= found.status == "proved"
        events.append(found.event)
    together = Composed(tuple(events))
    return SpentTogether(pure(together), epsilon_at(together, delta), delta, proved)
