"""What tastes for choosing are about, and popularity behind item weights."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import correct_popularity
from hdpmf.common.model.taste import is_period, period_in_words, taste_columns
from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.models import HDPSum

WORLD = synthetic_world(n_users=400, n_items=60, n_ratings=8000, rng=3)
YEARS = np.tile([1921.0, 1948.0, 1989.0, 1990.0, 1994.0, 1995.0], 10)
YEAR_COLUMN = (YEARS - 1995.0) / 10.0


def _features() -> ItemFeatures:
    genre = (np.arange(60) % 2).astype(float)
    names = ("genre:a", "year", "year before 1980", "year after 1990")
    return ItemFeatures(
        names, np.column_stack([genre, YEAR_COLUMN, genre, genre]), np.full(4, 10.0), "here"
    )


def test_years_become_periods_and_what_is_released_is_there_too():
    fit = HDPSum(features=_features(), rng=0).fit(WORLD).fit_
    names, columns = taste_columns(fit, np.arange(1.0, 61.0))
    assert names == (
        "popularity",
        "ratings",
        "genre:a",
        "from 1930",
        "from 1940",
        "from 1980",
        "from 1990",
        "from 1995",
    )
    periods = columns[:, 3:]
    assert (periods.sum(axis=1) == 1).all()
    assert periods[:6].tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]


def test_periods_in_words():
    fit = HDPSum(features=_features(), rng=0).fit(WORLD).fit_
    names, _ = taste_columns(fit, np.ones(60))
    assert [period_in_words(name) for name in names if is_period(name)] == [
        "before 1940",
        "the 1940s",
        "the 1980s",
        "the early 1990s",
        "the late 1990s",
    ]
    assert period_in_words("from 2000") == "2000 or later"
    assert not is_period("from where:1990")


def test_popularity_is_a_column_of_spread_one_among_what_people_choose():
    fit = HDPSum(features=False, rng=0).fit(WORLD).fit_
    popularity = np.arange(1.0, 61.0)
    names, columns = taste_columns(fit, popularity)
    assert names == ("popularity", "ratings")
    assert np.average(columns[:, 0], weights=popularity) == pytest.approx(0.0, abs=1e-9)
    assert np.average(columns[:, 0] ** 2, weights=popularity) == pytest.approx(1.0)
    assert np.isfinite(taste_columns(fit, np.zeros(60))[1]).all()


def test_correction_divides_by_the_weight_where_noise_is_small_and_not_at_all_where_it_is_large():
    popularity, weights = np.array([1000.0, 1000.0, 1.0]), np.array([0.5, 1.0, 0.1])
    found = correct_popularity(popularity, weights, noise_scale=4.0)
    assert found == pytest.approx([2000.0, 1000.0, 1.0], rel=0.02)
    assert correct_popularity(np.array([16.0]), np.array([0.25]), 4.0) == pytest.approx(
        [32.0]
    )  # half of the way
    assert correct_popularity(popularity, weights, 0.0) == pytest.approx(popularity / weights)


def test_correction_brings_popularity_nearer_to_the_number_of_raters():
    weights = PrivacySpec().draw(WORLD, rng=1)
    model = HDPSum(epsilon=8.0, rng=0).fit(WORLD, weights)
    raters = np.log(WORLD.item_counts())

    def likeness(popularity: np.ndarray) -> float:
        return float(np.corrcoef(np.log(np.maximum(popularity, 0.3)), raters)[0, 1])

    assert likeness(model._popularity()) > likeness(model.facts_.popularity) + 0.1
