from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.errors import ConfigError

SEEDS = st.integers(0, 2**32)


@st.composite
def tables(draw: st.DrawFn) -> Ratings:
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=80, unique=True
        )
    )
    # Some rate much more than is held out of anybody's ratings.
    for user, most in draw(
        st.dictionaries(st.integers(9, 11), st.integers(14, 90), max_size=2)
    ).items():
        pairs += [(user, item) for item in range(most)]
    users, items = zip(*pairs, strict=True)
    return Ratings.from_arrays(users, items, [1 + (u + i) % 5 for u, i in pairs])


def pairs_of(ratings: Ratings) -> list[tuple[int, int, float]]:
    return list(
        zip(
            ratings.user_ids.tolist(),
            ratings.item_ids.tolist(),
            ratings.values.tolist(),
            strict=True,
        )
    )


@given(tables(), st.integers(1, 15), SEEDS)
def test_hold_out(ratings: Ratings, per_user: int, seed: int) -> None:
    train, test = ratings.hold_out(per_user, rng=seed)
    assert sorted(pairs_of(train) + pairs_of(test)) == sorted(pairs_of(ratings))
    assert test.user_counts().tolist() == [
        min(per_user, n - 1) for n in ratings.user_counts().tolist()
    ]
    assert train.user_counts().min() >= 1
    assert train.users is test.users is ratings.users
    assert train.items is test.items is ratings.items


@given(tables(), SEEDS)
def test_leave_one_out(ratings: Ratings, seed: int) -> None:
    train, test = ratings.leave_one_out(rng=seed)
    assert test.user_counts().tolist() == [int(n > 1) for n in ratings.user_counts().tolist()]
    assert len(train) + len(test) == len(ratings)


@given(tables(), st.integers(2, 7), SEEDS)
def test_k_fold(ratings: Ratings, k: int, seed: int) -> None:
    folds = list(ratings.k_fold(k, rng=seed))
    assert len(folds) == k
    together = [pair for _, validation in folds for pair in pairs_of(validation)]
    assert sorted(together) == sorted(pairs_of(ratings))
    for train, validation in folds:
        assert sorted(pairs_of(train) + pairs_of(validation)) == sorted(pairs_of(ratings))
    counts = np.array([validation.user_counts() for _, validation in folds])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


@given(tables(), st.floats(0.01, 1), SEEDS)
def test_sparsify(ratings: Ratings, fraction: float, seed: int) -> None:
    kept = ratings.sparsify(fraction, rng=seed)
    assert set(pairs_of(kept)) <= set(pairs_of(ratings))
    expected = [max(1, int(fraction * n + 0.5)) for n in ratings.user_counts().tolist()]
    assert kept.user_counts().tolist() == expected


def test_seeds_decide() -> None:
    ratings = synthetic_world(50, 40, 800)
    first, again, other = (pairs_of(ratings.hold_out(5, rng=seed)[1]) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    generator = np.random.default_rng(1)
    assert pairs_of(ratings.hold_out(5, rng=generator)[1]) == first
    assert pairs_of(ratings.hold_out(5, rng=generator)[1]) != first


def test_every_rating_is_as_likely_to_be_held_out() -> None:
    ratings = Ratings.from_arrays(
        np.repeat(np.arange(2000), 5), np.tile(np.arange(5), 2000), np.ones(10_000)
    )
    _, test = ratings.hold_out(2, rng=0)
    # 2000 users, each item held out with probability 2/5: standard deviation 22.
    assert np.abs(test.item_counts() - 800).max() < 5 * 22


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3"])
def test_nonsense_is_refused(bad: object) -> None:
    ratings = synthetic_world(5, 5, 20)
    with pytest.raises(ConfigError, match="per_user"):
        ratings.hold_out(bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="k must"):
        ratings.k_fold(bad)  # type: ignore[arg-type]
    if bad != 1:
        with pytest.raises(ConfigError, match="fraction"):
            ratings.sparsify(bad)  # type: ignore[arg-type]
    for seed in (-1, 1.5, None, "1", True):
        with pytest.raises(ConfigError, match="rng"):
            ratings.hold_out(1, rng=seed)  # type: ignore[arg-type]
