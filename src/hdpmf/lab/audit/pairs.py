"""The distinguishing game against hdp-pairs: persons and single ratings, before released noise.

The attacker knows everybody else, and the noise of one of the two servers: the other's, exact and
from the operating system, is all that is left. Its score is the log-likelihood ratio of all sums;
against what is published it is Fisher's discriminant of the numbers that the worlds move. Histories
are those that come near the proof's bounds: rows that are full, values at the ends.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.accounting.person import Spent
from hdpmf.common.privacy.pairs import PairsPlan, presence_rho, spent, value_rho
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.lab.audit.scores import Halves, Scores, discriminated
from hdpmf.lab.audit.world import Target
from hdpmf.models.hdp_pairs import HDPPairs
from hdpmf.private.client.pairs import SERVERS, histories, linear_sums, pair_sums
from hdpmf.untrusted.recommender.pairs import PairsAnswer, facts_from_pairs

ITEMS = 40
"""Items of the small world: two histories that share none fill their rows."""

_CAPPED = 15  # the proof's worst history: so many high ratings, all others low


class _HonestServer:
    """The noise of one server; of the other, which the attacker runs, none is left."""

    def __init__(self) -> None:
        self._drawn = 0

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        self._drawn += 1
        if self._drawn % SERVERS:
            return ReleasedNoise().discrete_gaussian(sigma)
        return np.zeros(sigma.shape, np.int64)


class _NoNoise:
    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        return np.zeros(sigma.shape, np.int64)


def pairs_scores(
    target: Target, epsilon: float, adjacency: str, view: str, pilot: int, runs: int
) -> tuple[Halves, Spent]:
    """Play the game; return scores and what the proof says that the difference costs."""
    worlds = [_world(target, history) for history in _histories(target, adjacency)]
    model = HDPPairs(epsilon, features=False)
    plan = model.plan(worlds[1][0])
    own = [histories(*world) for world in worlds]
    exact: Any = _NoNoise()
    linear = [linear_sums(plan, each, exact) for each in own]
    noise: Any = _HonestServer()
    scored: list[np.ndarray] = []
    for ratings, weights in worlds:
        rows = []
        for _ in range(pilot + runs):
            answer = model.answer(plan, ratings, weights, noise)
            pairs = [pair_sums(plan, answer.heads, each, exact) for each in own]
            moved = [(*linear[world], pairs[world]) for world in (0, 1)]
            rows.append(_seen(plan, answer, moved, view))
        scored.append(np.array(rows))
    none, one = scored
    scores = Scores(none[:, 0], one[:, 0])
    if view == "final":
        scores = discriminated(none, one, pilot)
    return scores.split(pilot), _cost(plan, adjacency, float(target.weights[target.row]))


def _seen(
    plan: PairsPlan, answer: PairsAnswer, moved: Sequence[tuple[np.ndarray, ...]], view: str
) -> list[float]:
    """Return the log-likelihood ratio of the sums, or numbers of what is published."""
    low, high = moved
    if view == "final":
        facts, lists = facts_from_pairs(plan, answer, None, "audit")
        vectors = lists.decode.rows(np.arange(plan.heads))
        gram = (vectors @ vectors.T)[np.triu_indices(plan.heads)]
        published = (facts.popularity, np.append(facts.bias, facts.mean), gram)
        return [
            float((b - a) @ numbers) for a, b, numbers in zip(low, high, published, strict=True)
        ]
    sums = (answer.linear, answer.values, answer.pairs)
    noises = (plan.linear_noise, plan.value_noise, plan.pair_noise)
    return [
        sum(
            float(((b - a) / sigma) @ ((seen - (a + b) / 2) / sigma))
            for a, b, seen, sigma in zip(low, high, sums, noises, strict=True)
        )
    ]


def _cost(plan: PairsPlan, adjacency: str, weight: float) -> Spent:
    person = spent(plan)
    rho = {
        "person": lambda: person.rho,
        "exchange": lambda: plan.exchange_rho,
        "presence": lambda: presence_rho(plan, 1.0, weight),
        "value": lambda: value_rho(plan, 1.0, weight),
    }[adjacency]()
    return Spent(rho, person.grain)


History = dict[int, tuple[float, float]]
"""The value and the weight of each item that the person rated."""


def _histories(target: Target, adjacency: str) -> tuple[History, History]:
    low, high = target.ends
    items = range(target.ratings.n_items)
    ends = {item: ((low, high)[item % 2], 1.0) for item in items}
    if adjacency == "person":
        return {}, ends
    half = len(items) // 2
    if adjacency == "exchange":
        return (
            {item: found for item, found in ends.items() if item < half},
            {item: found for item, found in ends.items() if item >= half},
        )
    weight = float(target.weights[target.row])
    others = {item: (high if item <= _CAPPED else low, 1.0) for item in items if item}
    without = others if adjacency == "presence" else others | {0: (low, weight)}
    return without, others | {0: (high, weight)}


def _world(target: Target, history: History) -> tuple[Ratings, PrivacyWeights]:
    """Return everybody else's ratings with this history."""
    ratings = target.ratings
    user = int(ratings.user_codes[target.row])
    kept = np.flatnonzero(ratings.user_codes != user)
    own = np.array([(item, *found) for item, found in history.items()], np.float64).reshape(-1, 3)
    world = Ratings(
        users=ratings.users,
        items=ratings.items,
        user_codes=np.append(ratings.user_codes[kept], np.full(len(own), user, np.int32)),
        item_codes=np.append(ratings.item_codes[kept], own[:, 0].astype(np.int32)),
        values=np.append(ratings.values[kept], own[:, 1].astype(np.float32)),
        scale=ratings.scale,
        name=ratings.name,
    )
    return world, PrivacyWeights.per_rating(world, np.append(np.ones(len(kept)), own[:, 2]))
