"""The noise of a sum as an honest server releases it, seen by the recommender with the other one.

The observer subtracts what the corrupt server knows (here its own noise, which is zero, and all
reports, which are of nobody's ratings). What is left must have exactly the law that the proof
counts with: 2,000 items, each test wrong by chance less than once in a million times.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import make_coding, sum_channels
from hdpmf.common.privacy.sampling import KeyedNoise
from hdpmf.common.protocol.survey_task import survey_circuit
from hdpmf.untrusted.recommender.sums import make_survey
from tests.unit.aggregator.server_pair import Pair
from tests.world import KnownNoise, make_report

ITEMS, EPSILON, LEVEL = 2_000, 1.0, 1e-6
STARS = RatingScale(1.0, 5.0, 1.0)


def released(honest: int) -> list[np.ndarray]:
    """The honest server's noise: of the items' scores, and of their weights."""
    noises = [KnownNoise(0), KnownNoise(0)]
    noises[honest] = None  # type: ignore[call-overload]  # its own
    pair = Pair(noises=tuple(noises))
    survey = make_survey("A", EPSILON, STARS, n_items=ITEMS, catalogue="c", contributors=2)
    circuit, noise = survey_circuit(survey)
    task = pair.add(pair.a_task(circuit=circuit, noise=noise, survey=survey))
    nobody = np.zeros(ITEMS, np.int64)
    for _ in range(2):
        document = pair.leader.task(task).document
        pair.leader.upload(task, make_report(document, task, nobody, nobody))
    pair.aggregate_all()
    numbers = np.array(pair.numbers(task, pair.collect(task)))
    return [numbers[:ITEMS], numbers[ITEMS : 2 * ITEMS]]


def p_values(parts: list[np.ndarray]) -> list[float]:
    """Of scores and weights against the discrete Laplace law that their claim is proved for."""
    channels = sum_channels(make_coding("auto", STARS, EPSILON), EPSILON)
    found = []
    for seen, channel in zip(parts, (channels.score, channels.weight), strict=True):
        law = stats.dlaplace(1 / float(channel.scale))
        edges = [-np.inf, *np.unique(law.ppf(np.arange(1, 20) / 20)), np.inf]
        expected = [law.cdf(high) - law.cdf(low) for low, high in pairwise(edges)]
        counts = [((seen > low) & (seen <= high)).sum() for low, high in pairwise(edges)]
        found.append(float(stats.chisquare(counts, len(seen) * np.array(expected)).pvalue))
    return found


@pytest.mark.parametrize("honest", [0, 1], ids=["leader", "helper"])
def test_the_whole_noise_is_that_of_the_proof(honest: int) -> None:
    parts = released(honest)
    assert min(p_values(parts)) > LEVEL
    assert abs(stats.pearsonr(*parts).statistic) < 6 / ITEMS**0.5  # drawn apart


@pytest.mark.parametrize("part", [Fraction(1, 2), Fraction(4, 5)])
def test_less_noise_is_caught(part: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted where the server draws it."""
    whole = KeyedNoise.discrete_laplace

    def less(self: KeyedNoise, scale: Fraction, size: int) -> np.ndarray:
        return whole(self, Fraction(scale) * part, size)

    monkeypatch.setattr(KeyedNoise, "discrete_laplace", less)
    assert min(p_values(released(1))) < LEVEL
