from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.errors import ConfigError, RatingsError

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
    train, test = ratings.hold_out(1, rng=seed)
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


triples = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5), st.integers(0, 6)),
    min_size=1,
    max_size=40,
)


def table(rows: list[tuple[int, int, int, int]], **options: object) -> Ratings:
    users, items, values, times = (list(column) for column in zip(*rows, strict=True))
    return Ratings.from_arrays(users, items, values, timestamps=times, **options)  # type: ignore[arg-type]


def check_partition(whole: Ratings, train: Ratings, test: Ratings) -> None:
    def rows(ratings: Ratings) -> list[tuple[int, int]]:
        return list(zip(ratings.user_codes.tolist(), ratings.item_codes.tolist(), strict=True))

    assert sorted(rows(train) + rows(test)) == sorted(rows(whole))
    assert train.users is whole.users
    assert test.items is whole.items


@given(triples, st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(1, 3))
def test_splits_part_and_no_user_learns_from_the_future(
    rows: list[tuple[int, int, int, int]], fraction: float, per_user: int
) -> None:
    whole = table(rows, duplicates="last")
    for train, test in (
        whole.hold_out_last(per_user),
        whole.split_by_time(fraction, per_user=True),
    ):
        check_partition(whole, train, test)
        assert set(train.user_codes) == set(
            whole.user_codes
        )  # somebody without a past cannot be recommended to
        for user in set(test.user_codes.tolist()):
            assert max(train.timestamps[train.user_codes == user]) <= min(
                test.timestamps[test.user_codes == user]
            )
    last = whole.hold_out_last(per_user)[1].user_counts()
    assert last.tolist() == np.clip(whole.user_counts() - 1, 0, per_user).tolist()
    for cut in (whole.split, whole.split_by_time):
        try:
            train, test = cut(fraction)
        except RatingsError as error:
            assert "empty" in str(error) or "one second" in str(error)  # noqa: PT017
            continue
        check_partition(whole, train, test)
        assert len(test) >= round(fraction * len(whole) - 0.01)
        if cut == whole.split_by_time:
            assert train.timestamps.max() < test.timestamps.min()


@given(triples, st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(1, 3))
def test_of_one_second_the_later_rows_are_held_out(
    rows: list[tuple[int, int, int, int]], fraction: float, per_user: int
) -> None:
    whole = table([(user, item, value, 7) for user, item, value, _ in rows], duplicates="last")
    for train, test in (
        whole.hold_out_last(per_user),
        whole.split_by_time(fraction, per_user=True),
    ):
        check_partition(whole, train, test)
        for user in range(whole.n_users):
            own, first = (
                part.item_codes[part.user_codes == user].tolist() for part in (whole, train)
            )
            assert own[: len(first)] == first
    with pytest.raises(RatingsError, match=r"one second|empty"):
        whole.split_by_time(fraction)


def test_time_is_needed_to_split_by_it() -> None:
    ratings = Ratings.from_arrays([1] * 9, range(9), [3] * 9)
    for cut in (
        ratings.hold_out_last,
        ratings.split_by_time,
        lambda: ratings.split_by_time(per_user=True),
    ):
        with pytest.raises(RatingsError, match=r"no times.*columns=\{\"timestamp\": \.\.\.\}"):
            cut()
    for fraction in (0, 1, -0.5, True, "half"):
        with pytest.raises(ConfigError, match="above 0 and below 1"):
            ratings.split(fraction)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def ml_100k() -> Ratings:
    from hdpmf.common.data import find_dataset, load_dataset

    if find_dataset("ml-100k") is None:
        pytest.skip("ml-100k is not here")
    return load_dataset("ml-100k")


def test_time_splits_of_real_ratings(ml_100k: Ratings) -> None:
    train, test = ml_100k.split_by_time(0.2)
    check_partition(ml_100k, train, test)
    assert train.timestamps is not None
    assert test.timestamps is not None
    assert train.timestamps.max() < test.timestamps.min()
    assert 0 <= len(test) - 20_000 < 50  # as many as share the second of the cut
    train, test = ml_100k.hold_out_last()
    assert (len(train), len(test)) == (100_000 - 943, 943)
    train, test = ml_100k.split_by_time(0.2, per_user=True)
    assert len(test) == np.floor(ml_100k.user_counts() * 0.2 + 0.5).sum()
