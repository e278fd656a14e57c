"""The game against sums of pairs, played with the real ``PairShard``: was an item rated or not?

What the attacker knows of other users it subtracts, so a shard with one user is enough. That user's
row is just as long as the bound, which is where one more rating moves most. The attacker adds up
what was released, each sum in proportion to how much the rating moves it: the best test there is
against Gaussian noise. How far apart its two worlds are, in deviations, has a lower bound from the
runs, and so has epsilon at the delta of the claim. (Error rates alone could not show it: a delta of
10^-6 is out of reach of any number of runs that one can wait for.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.accounting.accountants import normal_epsilon
from hdpmf.common.privacy.coding import weight_units
from hdpmf.common.privacy.pairs import LARGEST_BOUND, PAIR_DELTA, pair_sums
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol.pairs import PairSurvey
from hdpmf.errors import PrivacyError
from hdpmf.lab.audit.game import verdict
from hdpmf.lab.audit.scores import CONFIDENCE
from hdpmf.lab.audit.world import LessNoise, check_runs
from hdpmf.private.client.pairs import PairShard

_CATALOGUE = "audit"
_STREAM = 900_060  # of the seed


@dataclass(frozen=True, slots=True)
class PairAudit:
    """What came out.

    Attributes:
        epsilon_claimed: What the presence of a rating of this weight costs in the sums of pairs, at
            ``delta``.
        epsilon_lower_bound: What it costs at least, with ``confidence``.
        distance: How far apart the attacker found the two worlds, in deviations.
        noise_factor: 1 for the design as it is; less for a control.
    """

    runs: int
    noise_factor: float
    epsilon_claimed: float
    epsilon_lower_bound: float
    delta: float
    distance: float
    confidence: float
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def audit_pairs(
    epsilon: float = 1.0,
    weight: float = 1.0,
    *,
    runs: int = 4000,
    seed: int = 0,
    noise_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> PairAudit:
    """Play the game.

    Args:
        epsilon: Of the survey.
        weight: Privacy weight of the audited rating.
        runs: Of each world.
        seed: The same seed gives the same bound.
        noise_factor: Less than 1 makes a broken design, with so much of its noise, which the audit
            has to find out.
        progress: Told the runs done and all there will be.
    """
    check_runs(runs)
    if not 0.0 < weight <= 1.0:
        raise PrivacyError(f"the weight of the audited rating must lie in (0, 1], not {weight:g}")
    n_heads = LARGEST_BOUND**2 + 1
    survey = PairSurvey(
        epsilon=epsilon,
        n_items=n_heads,
        catalogue=_CATALOGUE,
        heads=np.arange(n_heads),
        bound=LARGEST_BOUND,
    )
    rows = np.full((2, n_heads), 64)
    rows[:, 0] = 0, int(weight_units(np.array([weight]))[0])
    moved = (pair_sums(rows[1:], survey.bound) - pair_sums(rows[:1], survey.bound)).astype(
        np.float64
    )
    seen = np.empty((2, runs))
    for world, first in enumerate((1, 0)):  # without the rating, and with it
        items = np.arange(first, n_heads)
        ratings = Ratings.from_arrays(
            np.zeros(n_heads, int), np.arange(n_heads), np.full(n_heads, 5.0)
        ).take(items)
        weights = PrivacyWeights.per_rating(ratings, np.where(items == 0, weight, 1.0))
        noise: Any = LessNoise(SeededNoise(seed, _STREAM + world), noise_factor)
        for run in range(runs):
            shard = PairShard(
                ratings, weights, noise, epsilon=epsilon, catalogue=_CATALOGUE, simulation=True
            )
            seen[world, run] = moved @ shard.answer(survey).sums
            if progress is not None and run % 100 == 0:
                progress(world * runs + run, 2 * runs)
    distance, least = _apart(seen)
    claimed = weight * epsilon
    bound = normal_epsilon(least, PAIR_DELTA)
    return PairAudit(
        runs,
        noise_factor,
        claimed,
        bound,
        PAIR_DELTA,
        distance,
        CONFIDENCE,
        verdict(claimed, bound),
    )


def _apart(seen: np.ndarray) -> tuple[float, float]:
    """The distance of two normal samples in deviations, and a lower bound of it."""
    from scipy.stats import norm

    n = seen.shape[1]
    deviation = math.sqrt(float(seen.var(axis=1, ddof=1).mean()))
    distance = float(seen[1].mean() - seen[0].mean()) / deviation if deviation else 0.0
    error = math.sqrt(2.0 / n + distance**2 / (4.0 * n))
    return distance, max(0.0, distance - float(norm.ppf(CONFIDENCE)) * error)
