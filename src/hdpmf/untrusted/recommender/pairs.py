"""From who rates what with whom, seen through noise, to a model for lists. Post-processing of what
was released.

Whether it pays is known before anything is asked, from the released popularity: where tastes do not
matter, the sums of pairs have one large eigenvalue, about the sum of squared popularities over the
number of users; the noise has eigenvalues up to an edge of 2 sigma sqrt(heads). What tastes add is
a tenth of the former, so it drowns where the edge is that large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.privacy.pairs import LARGEST_BOUND, ROW_UNITS, pair_sigma
from hdpmf.common.protocol import ItemFacts, Survey
from hdpmf.common.protocol.pairs import PairContribution, PairSurvey

HEADS = 300

PAYS_FROM = 8.0
"""Pairs are asked for from this height of the popularity's eigenvalue over the noise's edge. On
ratings held out within training parts (seed 0), NDCG@10 with pairs (and without), by height: ML-1M
with all weights 1 59: .152 (.137), half of its users 29: .146 (.141), a quarter 15: .142 (.141), a
tenth 6.2: .156 (.155), at epsilon 0.3 19: .141 (.137), at the paper's weights 15: .136 (.135);
ML-100K with all weights 1 9.8: .150 (.144), at the paper's 2.2: .140 (.140). Below 8 there was
nothing that would be worth what presence costs."""

# regularisation, in edges: of 1, 2, 3 and 5 the best or as good as that within ML-1M's training
# part
_STRENGTH = 3.0
_MOST_BLEND, _BLEND_PER_HEIGHT = 0.6, 0.01  # .01 per edge: near the best of .1 to .8 there


@dataclass(frozen=True, slots=True, repr=False)
class PairPlan:
    """What would be asked, and what is to be expected of it.

    Attributes:
        heads: The items with most popularity, ascending.
        bound: Length that rows are scaled down to: as long as the average user's row is, about.
        edge: The largest eigenvalue of the noise alone.
        height: The popularity's eigenvalue, in edges.
    """

    heads: np.ndarray
    bound: int
    edge: float
    height: float

    @property
    def pays(self) -> bool:
        """Whether to ask."""
        return self.height >= PAYS_FROM

    def survey(self, before: Survey) -> PairSurvey:
        """What to ask those who answered a survey."""
        return PairSurvey(
            epsilon=before.epsilon,
            n_items=before.n_items,
            catalogue=before.catalogue,
            heads=self.heads,
            bound=self.bound,
        )

    def __str__(self) -> str:
        if self.pays:
            return (
                f"Pairs of {len(self.heads)} items were asked for: {self.height:.1f} edges of "
                "noise."
            )
        return (
            f"Pairs were not asked for, because noise would cover them ({self.height:.1f} "
            "edges; they pay from "
            f"{PAYS_FROM:g}): lists are those of hdp-sum, and nothing more was spent."
        )


def plan_pairs(facts: ItemFacts, epsilon: float, n_users: int) -> PairPlan:
    """What to ask, from what was released before."""
    popularity = facts.popularity.astype(np.float64)
    heads = np.sort(np.argsort(-popularity, kind="stable")[: min(HEADS, len(popularity))])
    most = popularity[heads]
    bound = int(np.clip(np.rint(np.sqrt(most.sum() / n_users)), 1, LARGEST_BOUND))
    if len(heads) < 2:
        return PairPlan(heads, bound, np.inf, 0.0)
    edge = 2.0 * pair_sigma(epsilon, bound, len(heads)) / ROW_UNITS**2 * np.sqrt(len(heads))
    return PairPlan(heads, bound, float(edge), float((most**2).sum() / n_users / edge))


def pair_model(plan: PairPlan, facts: ItemFacts, sent: PairContribution) -> ListModel:
    """EASE (Steck 2019) on the noisy sums, in 8 bits; ``about["blend"]`` says how much it counts
    beside taste.

    Popularity stands on the diagonal, which is not released. It is no smaller than the true one, so
    that with three edges on top the system is positive definite.
    """
    n = len(plan.heads)
    system = np.zeros((n, n))
    system[np.triu_indices(n, 1)] = sent.sums / ROW_UNITS**2
    system += system.T
    system[np.diag_indices(n)] = facts.popularity[plan.heads] + _STRENGTH * plan.edge
    inverse = np.linalg.inv(system)
    matrix = -inverse / np.diag(inverse)
    np.fill_diagonal(matrix, 0.0)
    nothing = np.zeros(n, np.float32)
    blend = min(_MOST_BLEND, _BLEND_PER_HEIGHT * plan.height)
    return ListModel(
        "linear",
        Bytes.of(matrix),
        Bytes.of(np.eye(n)),
        Entries.none(n),
        nothing,
        nothing,
        heads=plan.heads.astype(np.int32),
        n_items=len(facts.popularity),
        about={"kind": "pairs", "blend": blend, "height": plan.height},
    )
