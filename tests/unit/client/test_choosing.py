"""Scores for lists on the device: taste against its definition, and nothing of it moves with
what others rated.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.models import HDPSum
from hdpmf.private.client.ranking import heights, taste

WORLD = synthetic_world(n_users=40, n_items=30, n_ratings=500, rng=3)


def test_heights_are_stars_above_the_lowest():
    half = Ratings.from_arrays([1, 1, 2], [1, 2, 2], [0.5, 5.0, 2.75], scale=(0.5, 5.0))
    model = HDPSum(rng=0).fit(half)
    assert heights(model.devices_, np.array([0, 1])).toarray() == pytest.approx(
        np.array([[0.0, 4.0], [0.0, 2.0]])
    )
    assert heights(model.devices_, np.array([1])).toarray() == pytest.approx(np.array([[0.0, 2.0]]))


def test_taste_is_one_step_of_a_choice_model():
    rng = np.random.default_rng(0)
    features, popularity = rng.normal(size=(30, 4)), rng.gamma(2.0, 10.0, 30)
    model = HDPSum(rng=0).fit(WORLD)
    own = heights(model.devices_, np.arange(WORLD.n_users))
    found = taste(own, features, popularity, ridge=7.0)
    chosen = popularity / popularity.sum()
    mean = chosen @ features
    spread = sum(
        part * np.outer(row - mean, row - mean) for part, row in zip(chosen, features, strict=True)
    )
    for user in (0, 5, 39):
        mine = WORLD.user_codes == user
        stars = WORLD.values[mine] - 1
        apart = stars @ features[WORLD.item_codes[mine]] / stars.sum() - mean
        expected = np.linalg.solve(mine.sum() * spread + 7.0 * np.eye(4), mine.sum() * apart)
        assert found[user] == pytest.approx(expected, abs=1e-6)


def test_somebody_without_taste_gets_what_most_people_choose():
    nothing = Ratings.from_arrays([1, 1, 2, 2], [1, 2, 2, 3], [1, 1, 5, 4])
    model = HDPSum(features=False, rng=0).fit(nothing)
    own = heights(model.devices_, np.array([0]))
    assert (taste(own, np.eye(3), np.ones(3)) == 0).all()
    assert log_popularity(np.array([0.0, 1.0, np.e])).tolist() == pytest.approx(
        [np.log(0.3), 0.0, 1.0]
    )
