"""What a person's releases give away to the best observer is what the accountant claims, and no
more: by what real shards send.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.coding import make_coding, sum_channels
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.private.client.contributions import sums
from hdpmf.untrusted.recommender.sums import make_survey

pytestmark = pytest.mark.slow

STARS = RatingScale(1.0, 5.0, 1.0)
RATED, EPSILON, DELTA, RUNS = 12, 2.0, 0.1, 1500
WEIGHTS = np.linspace(0.2, 0.9, RATED)


def sent(stars: float, run: int, epsilon: float) -> np.ndarray:
    """What one device adds to the sums, with all of the noise: it is the only one that counts."""
    zeros = np.zeros(RATED, np.int64)
    world = Ratings.from_arrays(zeros, np.arange(RATED), np.full(RATED, stars), scale=STARS)
    survey = make_survey("A", epsilon, STARS, n_items=RATED, catalogue="c")
    own = PrivacyWeights.per_rating(world, WEIGHTS)
    answer = sums(world, own, survey, SeededNoise(3, run))
    return np.append(answer.scores, answer.total).astype(float)


def excess(epsilon: float) -> np.ndarray:
    """Of each run, 1 - exp(claim - loss), at least 0: its mean is the least delta at the claim."""
    channels = sum_channels(make_coding("auto", STARS, epsilon), epsilon)
    assert channels.total is not None
    scales = np.full(RATED + 1, float(channels.score.scale))
    scales[-1] = float(channels.total.scale)
    units = np.floor(64 * WEIGHTS)
    moves = np.append(units * channels.score.value_step, units.sum() * channels.total.value_step)
    claim = cost("hdp-sum", "sums", unit="user", weight=WEIGHTS, epsilon=EPSILON, delta=DELTA)
    assert claim.epsilon_at_delta < 0.9 * claim.pure
    released = np.array([sent(5.0, run, epsilon) for run in range(RUNS)])
    # Noise around what is in this world, and around what would be if every value were another.
    noise = released - moves / 2
    losses = ((np.abs(noise + moves) - np.abs(noise)) / scales).sum(1)
    return np.asarray(-np.expm1(-np.maximum(losses - claim.epsilon_at_delta, 0.0)))


def test_a_person_gives_away_what_is_claimed_and_no_more() -> None:
    found = excess(EPSILON)
    error = float(found.std()) / math.sqrt(RUNS)
    assert abs(float(found.mean()) - DELTA) < 5 * error + 0.005


def test_half_of_the_noise_is_above_the_claim() -> None:
    found = excess(2 * EPSILON)
    assert float(found.mean()) > DELTA + 10 * float(found.std()) / math.sqrt(RUNS)
