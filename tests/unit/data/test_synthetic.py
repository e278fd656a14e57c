from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, load_dataset, synthetic_world
from hdpmf.errors import ConfigError


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 60), st.floats(0, 1), st.integers(0, 99), st.integers(1, 8)
)
def test_any_size(n_users: int, n_items: int, fill: float, seed: int, n_tastes: int) -> None:
    n_ratings = n_users + round(fill * n_users * (n_items - 1))
    ratings = synthetic_world(n_users, n_items, n_ratings, rng=seed, n_tastes=n_tastes)
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (n_users, n_items, n_ratings)
    assert ratings.user_counts().min() >= 1
    assert ratings.item_table is not None
    assert len(set(ratings.item_table.titles)) == n_items


@pytest.mark.parametrize(
    ("scale", "mean"),
    [((1, 5, 1), 4.2), ((0.5, 5, 0.5), 3.5), ((0, 10, 1), 6.8), ((-10, 10), -3.0)],
)
def test_any_scale_and_mean(scale: tuple[float, ...], mean: float) -> None:
    ratings = synthetic_world(2_000, 300, 40_000, rng=1, scale=scale, mean=mean)
    assert abs(float(ratings.values.mean(dtype=np.float64)) - mean) < 0.01 * ratings.scale.width
    if ratings.scale.step is not None:
        steps = (ratings.values - ratings.scale.low) / ratings.scale.step
        assert np.array_equal(steps, np.rint(steps))
        assert len(np.unique(steps)) == round(ratings.scale.width / ratings.scale.step) + 1


def test_clicks_and_worlds_without_features() -> None:
    clicks = synthetic_world(100, 50, 900, implicit=True, features=False)
    assert clicks.implicit
    assert np.array_equal(np.unique(clicks.values), [1.0])
    assert clicks.item_table is None


def test_the_more_taste_pulls_the_less_popularity_says() -> None:
    """What somebody rates of a genre, against what everybody does."""

    def apart(pull: float) -> float:
        world = synthetic_world(1_500, 300, 30_000, rng=2, pull=pull)
        assert world.item_table is not None
        dramas = np.array(["Drama" in genres for genres in world.item_table.genres])
        own = np.bincount(world.user_codes, dramas[world.item_codes]) / world.user_counts()
        return float(own[world.user_counts() >= 10].std())

    assert apart(0) < apart(0.7) < apart(2) < apart(3.5)


@pytest.mark.slow
def test_large_and_thin_worlds_are_drawn_in_blocks() -> None:
    ratings = synthetic_world(40_000, 20_000, 600_000, rng=3)
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (40_000, 20_000, 600_000)


def test_seeds_decide() -> None:
    first, again, other = (synthetic_world(50, 40, 500, rng=seed) for seed in (1, 1, 2))
    for column in ("user_codes", "item_codes", "values", "timestamps"):
        assert np.array_equal(getattr(first, column), getattr(again, column))
    assert first.item_table is not None
    assert again.item_table is not None
    assert first.item_table.titles == again.item_table.titles
    assert not np.array_equal(first.item_codes, other.item_codes)


def test_it_has_movielens_shape() -> None:
    ratings = load_dataset("synthetic")
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (600, 400, 40_000)
    shares = np.bincount(ratings.values.astype(int), minlength=6)[1:] / len(ratings)
    # MovieLens 100K: 6, 11, 27, 34 and 21 percent.
    assert np.abs(shares - [0.06, 0.11, 0.27, 0.34, 0.21]).max() < 0.06
    assert abs(ratings.values.mean() - 3.5) < 0.15
    for counts in (ratings.user_counts(), ratings.item_counts()):
        ordered = np.sort(counts)[::-1]
        assert ordered[: len(ordered) // 10].sum() > 0.2 * ordered.sum()  # a long tail
        assert np.mean(counts) > 1.2 * np.median(counts)
    assert ratings.item_table is not None
    assert all(ratings.item_table.genres)
    assert all(
        str(year) in title
        for title, year in zip(ratings.item_table.titles, ratings.item_table.years, strict=True)
    )


def test_tastes_can_be_learned() -> None:
    train, test = synthetic_world().hold_out(10, rng=0)
    overall = np.mean((test.values - train.values.mean()) ** 2)
    user_mean = np.bincount(train.user_codes, train.values, train.n_users) / train.user_counts()
    by_user = np.mean((test.values - user_mean[test.user_codes]) ** 2)
    assert by_user < 0.92 * overall
    assert _factorised(train, test, user_mean) < 0.85 * by_user


def _factorised(train: Ratings, test: Ratings, user_mean: np.ndarray) -> float:
    """Alternating least squares on what user and item means leave over."""
    left = train.values - user_mean[train.user_codes]
    item_mean = np.bincount(train.item_codes, left, train.n_items) / (train.item_counts() + 5)
    left = left - item_mean[train.item_codes]
    generator = np.random.default_rng(0)
    users, items = (generator.normal(0, 0.1, (n, 6)) for n in (train.n_users, train.n_items))
    target = np.zeros((train.n_users, train.n_items))
    known = np.zeros_like(target)
    target[train.user_codes, train.item_codes] = left
    known[train.user_codes, train.item_codes] = 1
    for _ in range(10):
        for mine, other, goal, mask in (
            (users, items, target, known),
            (items, users, target.T, known.T),
        ):
            gram = np.einsum("ij,jk,jl->ikl", mask, other, other, optimize=True) + 6 * np.eye(6)
            mine[:] = np.linalg.solve(gram, (goal @ other)[:, :, None])[:, :, 0]
    guess = user_mean[test.user_codes] + item_mean[test.item_codes]
    guess += np.sum(users[test.user_codes] * items[test.item_codes], axis=1)
    return float(np.mean((test.values - np.clip(guess, 1, 5)) ** 2))


@pytest.mark.parametrize(
    "options",
    [
        {"n_users": 0},
        {"n_items": -1},
        {"n_ratings": 1.5},
        {"n_tastes": 0},
        {"n_users": 10, "n_ratings": 9},
        {"n_users": 2, "n_items": 2, "n_ratings": 5},
        {"colour": "red"},
        {"rng": "x"},
        {"mean": 5},
        {"mean": float("nan")},
        {"scale": (0, 10), "mean": "high"},
        {"pull": -1},
        {"pull": 40},
    ],
)
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        load_dataset("synthetic", **options)
