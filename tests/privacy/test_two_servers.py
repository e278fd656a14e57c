"""The noise of a sum as an honest server releases it, seen by the recommender with the other one.

The observer subtracts what the corrupt server knows (here its own noise, which is zero, and all
reports, which are of nobody's ratings). What is left must have exactly the law that the proof
counts with: 2,000 numbers, each test wrong by chance less than once in a million times.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from hdpmf.common.privacy.sampling import KeyedNoise
from tests.unit.aggregator.server_pair import SUMS, Pair, pairs_of
from tests.world import KnownNoise, make_report

ITEMS, LEVEL = 2_000, 1e-6
LINEAR = replace(SUMS, items=ITEMS, presence=40, values=25)
PAIRS = replace(pairs_of(80), deviation=3_000)


def released(honest: int, sums: object, zeros: int) -> np.ndarray:
    """The honest server's noise on a sum over nobody's ratings."""
    noises = [KnownNoise(0), KnownNoise(0)]
    noises[honest] = None  # type: ignore[call-overload]  # its own
    pair = Pair(noises=tuple(noises))
    task = pair.add(pair.a_task(sums=sums))
    for _ in range(2):
        document = pair.leader.task(task).document
        pair.leader.upload(task, make_report(document, task, np.zeros(zeros, np.int64)))
    pair.aggregate_all()
    return np.array(pair.numbers(task, pair.collect(task)))


def p_value(seen: np.ndarray, deviation: float) -> float:
    """Against the discrete Gaussian law that the claim is proved for."""
    grid = np.arange(-12 * int(deviation), 12 * int(deviation) + 1)
    law = np.exp(-((grid / deviation) ** 2) / 2)
    below = np.cumsum(law / law.sum())
    edges = [-np.inf, *(grid[np.searchsorted(below, part / 20)] for part in range(1, 20)), np.inf]
    chances = np.diff([0.0, *(below[np.searchsorted(grid, edge)] for edge in edges[1:-1]), 1.0])
    counts = [((seen > low) & (seen <= high)).sum() for low, high in pairwise(edges)]
    return float(stats.chisquare(counts, len(seen) * chances).pvalue)


def p_values(honest: int) -> list[float]:
    """Of presence and values."""
    seen = released(honest, LINEAR, LINEAR.entries)
    return [p_value(seen[:ITEMS], 40), p_value(seen[ITEMS:], 25)]


@pytest.mark.parametrize("honest", [0, 1], ids=["leader", "helper"])
def test_the_whole_noise_is_that_of_the_proof(honest: int) -> None:
    assert min(p_values(honest)) > LEVEL
    seen, heads = released(honest, PAIRS, 80), np.triu_indices(80)
    diagonal = heads[0] == heads[1]
    assert p_value(seen[~diagonal], 3_000) > LEVEL
    assert p_value(seen[diagonal], PAIRS.diagonal) > LEVEL
    assert PAIRS.diagonal == 4_243


@pytest.mark.parametrize("part", [0.5, 0.8])
def test_less_noise_is_caught(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted where the server draws it."""
    whole = KeyedNoise.discrete_gaussian

    def less(self: KeyedNoise, sigma: np.ndarray) -> np.ndarray:
        return whole(self, sigma * part)

    monkeypatch.setattr(KeyedNoise, "discrete_gaussian", less)
    assert min(p_values(1)) < LEVEL
