"""Laws of noise that ``benchmarks/joint_noise.py`` compares: what they cost, how they are drawn."""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.models import HDPSum
from hdpmf.models.one_round import wanted_features

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from joint_noise import LAWS, SCORE, TOTAL, Law, facts_by, person_cost

WITH_A_NORM = [law for law in LAWS if not law.along_corners]
HEXAGON = next(law for law in LAWS if law.name == "hexagon")


@pytest.mark.parametrize("law", WITH_A_NORM, ids=lambda law: law.name)
def test_no_move_of_a_rating_costs_more_than_stated(law):
    noise = np.random.default_rng(0).normal(0.0, 5.0, (2, 100_000))
    here = law.norm(*noise)
    for weight in (0.1, 1.0):
        value = law.norm(noise[0] + weight, noise[1]) - here
        assert np.abs(value).max() <= SCORE * weight + 1e-12
        for share in (-0.5, 0.0, 0.5):
            presence = law.norm(noise[0] + share * weight, noise[1] + weight) - here
            assert np.abs(presence).max() <= (law.presence - TOTAL / 2) * weight + 1e-12
    assert np.abs(value).max() == pytest.approx(SCORE)  # and some costs that


def p_value(drawn_by: Law, compared_with: Law) -> float:
    """Chi-square of whole numbers drawn by one law, in the cells of another's exact law."""
    n, unit = 200_000, 2.0

    def source(noise):
        def draw(size):
            score = noise.discrete_laplace(unit / SCORE, size) / unit
            return score, noise.discrete_laplace(unit * drawn_by.scale, size) / unit

        return draw

    drawn = drawn_by.draw(
        source(SeededNoise(0)), source(SeededNoise(1)), np.random.default_rng(2), n
    )
    reach = 200
    x, y = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    law = np.exp(-compared_with.norm(x / unit, y / unit))
    expected = (n * law / law.sum()).ravel()
    cells = [np.rint(part * unit).astype(int) + reach for part in drawn]
    seen = np.bincount(np.ravel_multi_index(cells, law.shape), minlength=law.size)
    frequent = expected >= 10.0
    pairs = [
        np.append(part[frequent], part[~frequent].sum()) for part in (seen.astype(float), expected)
    ]
    return stats.chisquare(*pairs).pvalue


def test_a_refused_draw_is_drawn_again_so_that_the_law_is_exact():
    # By seeds, so that nothing here is left to chance. A right sampler would have failed with one
    # pair of seeds in a thousand.
    assert p_value(HEXAGON, HEXAGON) > 1e-3
    assert p_value(HEXAGON, Law("another", top=2.0)) < 1e-9
    assert p_value(Law("in use"), HEXAGON) < 1e-9


def test_the_law_in_use_is_hdp_sum_number_by_number():
    train = synthetic_world(n_users=150, n_items=90, n_ratings=5000, rng=1)
    weights = PrivacySpec().draw(train, rng=0)
    features = wanted_features("auto", train)
    given = Namespace(epsilon=1.0, noises=1)
    facts, scale = facts_by(LAWS[0], train, weights, features, given, seed=7)
    released = HDPSum(rng=7, n_threads=1).fit(train, weights).facts_
    assert scale == 4.0
    assert facts.mean == released.mean
    for name in ("bias", "variance", "popularity"):
        np.testing.assert_array_equal(getattr(facts, name), getattr(released, name))


def test_the_cost_of_a_person_is_that_of_one_rating_where_there_is_one():
    # Of Laplace noise at delta 1e-5 nearly the pure cost, and with the total never more than W.
    value, presence = (person_cost(LAWS[0], about, 1, 0.5) for about in ("value", "presence"))
    assert 0.48 < value <= 0.502
    assert 0.36 < presence <= 0.377
