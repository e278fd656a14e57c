"""The in-kernel normals are normal. Seeds are fixed, so each test's outcome is; the stated levels
say how surprising a failure would have been for a right generator."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from hdpmf.private.kernels.sequential import normal_pair, seed_streams, stream_key
from hdpmf.private.kernels.simd import load, store

LANES = 16


@njit
def _fill(seed, epoch, segment, out, lane_numbers, lanes):
    state = seed_streams(stream_key(seed, epoch, segment), load(lane_numbers, 0, lanes), lanes)
    for row in range(0, len(out), 2):
        first, second, state = normal_pair(state)
        store(out, row, first)
        store(out, row + 1, second)


def draw(rows, seed=1, epoch=0, segment=0):
    out = np.empty((rows, LANES), np.float32)
    numbers = np.arange(1, LANES + 1, dtype=np.uint32).reshape(1, -1)
    _fill(np.uint64(seed), epoch, segment, out, numbers, (0,) * LANES)
    return out.astype(np.float64)


@pytest.fixture(scope="module")
def sample():
    return draw(60_000)  # about a million numbers


@pytest.mark.slow
def test_distribution_is_normal(sample):
    assert stats.kstest(sample.ravel(), "norm").pvalue > 1e-4
    # The tails hold too: 4 sigma and beyond, against a Poisson count.
    expected = sample.size * 2 * stats.norm.sf(4)
    assert stats.poisson.sf((np.abs(sample) > 4).sum() - 1, expected) > 1e-4
    assert stats.poisson.cdf((np.abs(sample) > 4).sum(), expected) > 1e-4


@pytest.mark.slow
def test_moments(sample):
    n = sample.size
    assert abs(sample.mean()) < 4 / np.sqrt(n)
    assert abs(sample.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs(stats.kurtosis(sample, axis=None)) < 4 * np.sqrt(24 / n)


@pytest.mark.slow
def test_lanes_and_steps_are_uncorrelated(sample):
    lanes = np.corrcoef(sample.T)
    off = np.abs(lanes[~np.eye(LANES, dtype=bool)])
    assert off.max() < 5 / np.sqrt(len(sample))
    flat = sample[:-1] * sample[1:]  # includes the two normals of one Box-Muller pair
    assert abs(flat.mean()) < 4 / np.sqrt(flat.size)
    squares = (sample[:-1] ** 2 - 1) * (sample[1:] ** 2 - 1)
    assert abs(squares.mean()) < 5 * 2 / np.sqrt(squares.size)


@pytest.mark.slow
def test_pairs_have_every_direction(sample):
    angles = np.arctan2(sample[1::2], sample[::2]).ravel()
    counts, _ = np.histogram(angles, 32, (-np.pi, np.pi))
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.slow
def test_streams_differ_and_repeat():
    assert np.array_equal(draw(100, 1, 2, 3), draw(100, 1, 2, 3))
    base = draw(2000)
    for other in (draw(2000, seed=2), draw(2000, epoch=1), draw(2000, segment=1)):
        assert abs(np.corrcoef(base.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(base.size)


def test_first_draws_of_neighbouring_streams_are_independent():
    firsts = np.array([draw(2, segment=s)[0] for s in range(4000)])
    assert stats.kstest(firsts.ravel(), "norm").pvalue > 1e-4
    assert abs((firsts[:-1] * firsts[1:]).mean()) < 4 / np.sqrt(firsts.size)
