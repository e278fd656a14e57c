"""Sums of several cohorts: each brings noise of its own, and the facts are computed with all of
it.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import IdIndex, RatingScale
from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import BitContribution, SumContribution
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.errors import ProtocolError
from hdpmf.untrusted.recommender import OneRoundRecommender
from hdpmf.untrusted.recommender.sums import facts_from_sums
from hdpmf.untrusted.service.settings import RunSettings

KNOWN = known_items(catalogue_table(IdIndex(range(300)), RatingScale(1.0, 5.0, 1.0)))


def _survey(design: str, epsilon: float):  # type: ignore[no-untyped-def]
    return RunSettings(
        method="hdp-sum",
        view="sums",
        minimum=50,
        rounds=1,
        epsilon=epsilon,
        design=design,  # type: ignore[arg-type]
    ).survey(KNOWN)


def _answer(seed: int) -> SumContribution:
    rng = np.random.default_rng(seed)
    weights = rng.integers(5, 400, 300) * WEIGHT_UNITS
    return SumContribution(
        scores=(weights * rng.normal(1, 1, 300)).astype(np.int64), weights=weights, total=10_000
    )


@pytest.mark.parametrize("design", ["A", "S"])
def test_four_sums_are_reckoned_as_one_with_twice_the_noise(design: str) -> None:
    parts = [_answer(seed) for seed in range(4)]
    together = SumContribution(
        scores=sum(part.scores for part in parts),  # type: ignore[arg-type]
        weights=sum(part.weights for part in parts),  # type: ignore[arg-type]
        total=sum(part.total for part in parts),
    )
    # Noise of twice the scale is that of half of epsilon.
    expected = facts_from_sums(_survey(design, 0.5), [together], None)
    found = OneRoundRecommender(_survey(design, 1.0)).facts(parts, n_sums=4)
    for name in ("bias", "variance", "popularity"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-6
        )
    careless = facts_from_sums(_survey(design, 1.0), [together], None)
    assert found.variance.mean() > 1.02 * careless.variance.mean()


def test_items_are_estimated_better_when_all_noise_is_counted() -> None:
    noise, rng = SeededNoise(3), np.random.default_rng(3)
    bias, raters = rng.normal(0.0, 0.45, 300), rng.integers(3, 40, 300)
    units = raters * WEIGHT_UNITS
    scores = (units * (0.1 + 0.326 * bias) * 10).astype(np.int64)  # in tenths
    nothing = np.zeros(300, np.int64)
    sums = [
        SumContribution(
            scores=(scores if first else nothing) + noise.discrete_laplace(640.0 / 0.98, 300),
            weights=(units if first else nothing) + noise.discrete_laplace(256.0, 300),
            total=0,
        )
        for first in (True, *[False] * 8)
    ]
    survey = _survey("A", 1.0)
    counted = OneRoundRecommender(survey).facts(sums, n_sums=len(sums))
    ignored = OneRoundRecommender(survey).facts(sums)
    errors = [float(np.mean((facts.bias - bias) ** 2)) for facts in (counted, ignored)]
    assert errors[0] < 0.9 * errors[1]


def test_designs_do_not_mix() -> None:
    nothing = np.zeros(0, np.int64)
    bits = BitContribution(senders=nothing, items=nothing, units=nothing, plus=nothing)
    with pytest.raises(ProtocolError, match="different designs"):
        OneRoundRecommender(_survey("A", 1.0)).facts([_answer(0), bits])
