"""Presence of one rating of somebody at a limit: twice the usual claim, and planted faults found.

One rating more takes weight away from others of the same person. The attacker knows all ratings,
their order and the limit, and sees the sums: its score is the exact log-likelihood ratio over every
entry that differs between the worlds, the rating's own and those of the ones that it pushes out.
Each verdict is at 95 % confidence with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.methods.builtin import HDP_SUM
from hdpmf.common.privacy.coding import WEIGHT_UNITS, make_ruler, sum_channels
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import SumContribution
from hdpmf.lab.audit.one_round import Design
from hdpmf.lab.audit.scores import (
    BROKEN,
    STANDS,
    Scores,
    log_discrete_laplace,
    lower_bound,
    verdict,
)
from hdpmf.private.device.disclosures.limits import fill
from hdpmf.untrusted.recommender.sums import coding_of
from tests.unit.audit.planted_noise import WeakDesign

_LIMITED = 900_080  # stream of the seed
_STARS = RatingScale(1.0, 5.0, 1.0)
_CONTRIBUTORS = 2


def limited_scores(
    weights: Sequence[int],
    design: Design,
    runs: int,
    seed: int,
    *,
    total: int | None = None,
    whole: bool = False,
) -> Scores:
    """Return scores of an attacker who asks whether the first of these ratings is there.

    Args:
        weights: Of a person's ratings, in 64ths, in the order in which they enter. All have the
            highest value.
        runs: Of each world.
        seed: Of the noise.
        total: Limit on the sum of weights, in 64ths.
        whole: Plant the rule that a rating enters with all of its weight or not at all: an audit
            must find it.
    """
    ratings = Ratings.from_arrays(
        np.zeros(len(weights), np.int64),
        np.arange(len(weights)),
        np.full(len(weights), _STARS.high),
        scale=_STARS,
        name="one person",
    )
    survey = design.survey(ratings, _CONTRIBUTORS)
    coding, ruler = coding_of(survey), make_ruler(_STARS)
    channels = sum_channels(coding, design.epsilon)
    top = np.array([_STARS.high])
    steps = int(coding.encode(top)[0]), 1, int(ruler.encode(top)[0])
    sent = [_filled(weights, first, total, whole=whole) for first in (1, 0)]
    worlds = []
    for world, units in enumerate(sent):
        rows = np.flatnonzero(units)
        own = PrivacyWeights.per_rating(ratings.take(rows), units[rows] / WEIGHT_UNITS)
        noise = SeededNoise(seed, _LIMITED + world)
        entries = np.empty((runs, 3, len(weights)))
        for run in range(runs):
            client = design.client(ratings.take(rows), own, noise)
            client.accept(survey)
            sums = client.contribute()
            assert isinstance(sums, SumContribution)
            entries[run] = sums.scores, sums.weights, np.full(len(weights), sums.total)
        worlds.append(entries)

    def ratio(seen: np.ndarray) -> np.ndarray:
        found = np.zeros(len(seen))
        for row, channel in enumerate((channels.score, channels.weight, channels.total)):
            if channel is None:
                continue
            scale = float(channel.scale)
            for units, sign in zip(sent, (-1.0, 1.0), strict=True):
                moved = units * steps[row]
                if row == 2:
                    column = log_discrete_laplace(seen[:, row, 0] - moved.sum(), scale)
                else:
                    column = log_discrete_laplace(seen[:, row] - moved, scale).sum(axis=1)
                found += sign * column
        return np.asarray(np.round(found, 9))

    return Scores(ratio(worlds[0]), ratio(worlds[1]))


def _filled(weights: Sequence[int], first: int, total: int | None, *, whole: bool) -> np.ndarray:
    """Return the weights that enter, in 64ths, without the first rating if ``first`` is 1."""
    prices = [float(weight) for weight in weights[first:]]
    tags = [position.to_bytes(2, "big") for position in range(len(prices))]
    room = np.inf if total is None else float(total)
    found = fill(tags, prices, room, unit=None if whole else 1.0)
    return np.array([0] * first + [round(paid or 0.0) for paid in found], np.int64)


RUNS = 1500
EPSILON = 8.0
LIGHT = 16  # a quarter
DESIGN = Design("A", EPSILON)
WEIGHTS = [LIGHT, 64, 64, 64, 64]
FACTOR = HDP_SUM.claim("sums").presence
CLAIM = 2 * (FACTOR or 0.0) * LIGHT / 64 * EPSILON
ONLY_THIS = "max_total, reached by this rating only"
LIMITS: dict[str, dict[str, Any]] = {
    "max_total": {"total": 2 * 64 + 8},
    ONLY_THIS: {"total": 4 * 64},
    "among equals": {"total": 4 * LIGHT, "weights": [LIGHT] * 5},
}


def bound(design: Design = DESIGN, weights: list[int] = WEIGHTS, **limits: Any) -> float:
    scores = limited_scores(weights, design, 2 * RUNS, 0, **limits)
    return lower_bound(*scores.split(RUNS)).epsilon


@pytest.mark.parametrize("limit", LIMITS)
def test_presence_at_a_limit_costs_twice_as_much_at_most(limit: str) -> None:
    assert verdict(CLAIM, bound(**LIMITS[limit])) == STANDS


@pytest.mark.parametrize("limit", [ONLY_THIS, "among equals"])
def test_half_the_noise_is_found(limit: str) -> None:
    assert verdict(CLAIM, bound(WeakDesign("A", EPSILON), **LIMITS[limit])) == BROKEN


@pytest.mark.parametrize("limit", ["max_total", ONLY_THIS])
def test_a_light_rating_that_pushes_out_a_whole_heavy_one_is_found(limit: str) -> None:
    """As it was: all of a rating or nothing."""
    assert verdict(CLAIM, bound(whole=True, **LIMITS[limit])) == BROKEN


def test_it_does_cost_more_than_without_a_limit() -> None:
    """The usual claim stands without a limit, and not at one."""
    assert verdict(CLAIM / 2, bound()) == STANDS
    assert verdict(CLAIM / 2, bound(**LIMITS["max_total"])) == BROKEN
