"""Whose epsilon: what all ratings of one person cost together, for the people of a table of ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.methods import method_named
from hdpmf.privacy.accounting.costs import DELTA, Cost, cost
from hdpmf.privacy.accounting.setting import Setting
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import Ratings


@dataclass(frozen=True, slots=True)
class PersonCost:
    """What all ratings of a person cost together.

    Attributes:
        ratings: How many there are.
        weight: Their privacy weights, added up.
        cost: By the accountant, for a change of all their values.
    """

    ratings: int
    weight: float
    cost: Cost

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        found = self.cost.fields()
        return {"ratings": self.ratings, "weight": self.weight} | {
            name: found[name] for name in ("pure_epsilon", "epsilon_at_delta", "delta", "status")
        }


@dataclass(frozen=True, slots=True)
class PersonCosts:
    """Two people of a table, by the sum of their privacy weights: half of all have less than the median one.

    Attributes:
        median: The one in the middle.
        heaviest: The one with most.
    """

    median: PersonCost
    heaviest: PersonCost

    def fields(self) -> dict[str, Any]:
        """For JSON. Only of simulated weights: which person it is stays out."""
        return {"median": self.median.fields(), "heaviest": self.heaviest.fields()}

    def __str__(self) -> str:
        median, heaviest = self.median, self.heaviest
        return (
            f"all ratings of one person together: {median.cost.in_numbers()} for the median person ("
            f"{median.ratings:,} ratings), {heaviest.cost.in_numbers()} for the one with most ({heaviest.ratings:,})"
        )


def person_costs(
    setting: Setting, view: str, ratings: Ratings, weights: PrivacyWeights, *, delta: float = DELTA
) -> PersonCosts:
    """What one training costs the median and the heaviest person of a table.

    Args:
        setting: How the method is run.
        view: What the observer sees.
        ratings: Who rated what.
        weights: Their privacy weights.
        delta: For the epsilon at delta.
    """
    own = weights.for_ratings(ratings)
    totals = np.bincount(ratings.user_codes, own, ratings.n_users)
    raters = ratings.item_counts()
    order = np.argsort(totals, kind="stable")
    order = order[totals[order] > 0]
    neighbours = method_named(setting.method).claim(view, labels=setting.labels).about

    def of(user: int) -> PersonCost:
        mine = np.flatnonzero(ratings.user_codes == user)
        charged = cost(
            setting, view, unit="user", neighbours=neighbours, weight=own[mine].tolist(),
            n_raters=raters[ratings.item_codes[mine]].tolist(), delta=delta,
        )  # fmt: skip
        return PersonCost(len(mine), float(totals[user]), charged)

    return PersonCosts(of(int(order[len(order) // 2])), of(int(order[-1])))
