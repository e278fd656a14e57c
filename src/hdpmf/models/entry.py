"""How training begins, wherever it runs: what a mechanism makes of ratings, and the first factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.privacy.mechanisms import Budgets, Entered, Mechanism
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.protocol import Plan
from hdpmf.ratings import Ratings
from hdpmf.shard.initial import SPREAD, initial_vectors

RECOMMENDER_STREAM = 1
SHARD_STREAM = 2
"""Streams of one seed: the recommender's draws must not be the users'."""


@dataclass(frozen=True, slots=True, repr=False)
class EnteredRatings(Entered):
    """What a mechanism makes of all ratings, with the epsilon that sets the noise; None: no noise."""

    budget: float | None


def enter(train: Ratings, weights: PrivacyWeights, mechanism: Mechanism, plan: Plan, seed: int) -> EnteredRatings:
    """Let ratings enter as a single shard of all users would."""
    row_weights = weights.for_ratings(train)
    budgets = Budgets.of(row_weights, plan.epsilon) if mechanism.needs_budgets else None
    budget = mechanism.noise_budget(plan.epsilon, budgets)
    uniforms = SeededNoise(seed, SHARD_STREAM).uniforms(len(train))
    entered = mechanism.enter(train.values, row_weights, plan.epsilon, budget, uniforms)
    return EnteredRatings(entered.kept, entered.target, entered.coefficient, budget)


def first_factors(train: Ratings, plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """First user vectors and item factors."""
    items = SeededNoise(seed, RECOMMENDER_STREAM).normals((plan.n_items, plan.n_factors)) * np.float32(SPREAD)
    return initial_vectors(train.users, plan.n_factors, seed), items
