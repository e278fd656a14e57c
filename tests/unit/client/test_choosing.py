"""Scores for lists on the device: taste against its definition, and nothing of it moves with
what others rated.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.taste import Choices, taste, taste_by_rating
from hdpmf.models import HDPSum
from hdpmf.private.client.ranking import heights

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


def test_what_a_rating_adds_to_taste_is_its_own():
    """All of them together are the taste, and each is about nothing but its own item."""
    rng = np.random.default_rng(0)
    features, popularity = rng.normal(size=(30, 4)), rng.gamma(2.0, 10.0, 30)
    choices, rated = Choices.of(features, popularity), np.array([3, 8, 20])
    stars = np.array([4.0, 1.0, 2.0])

    def adds(stars: np.ndarray, features: np.ndarray) -> np.ndarray:
        return taste_by_rating(choices.apart(stars, features), choices)

    found = adds(stars, features[rated])
    own = csr_matrix((stars, rated, [0, 3]), shape=(1, 30))
    assert found.sum(axis=0) == pytest.approx(taste(own, features, popularity)[0], abs=1e-9)
    mean = (stars[:, None] * features[rated]).sum(axis=0) / 7
    usual = np.average(features, axis=0, weights=popularity)
    leaning = choices.apart(stars, features[rated]).sum(axis=0)
    assert leaning == pytest.approx(mean - usual)
    other = features[rated].copy()
    other[2] += 1.0
    assert adds(stars, other)[:2] == pytest.approx(found[:2])
    four_times = adds(stars, features[[3, 3, 20]])
    assert four_times[0] == pytest.approx(4 * four_times[1])
    assert (adds(np.zeros(3), features[rated]) == 0).all()
