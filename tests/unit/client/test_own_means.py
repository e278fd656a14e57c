"""A user's own mean, which is all that is known of somebody with few ratings."""

from __future__ import annotations

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.private.client.devices import own_means


def test_a_single_rating_is_a_mean_and_none_is_not() -> None:
    ratings = Ratings.from_arrays([1, 2, 2, 3], [1, 1, 2, 1], [4.0, 1.0, 2.0, 5.0])
    np.testing.assert_array_equal(own_means(ratings), [4.0, 1.5, 5.0])
    np.testing.assert_array_equal(own_means(ratings.take(np.array([0, 1]))), [4.0, 1.0, np.nan])
