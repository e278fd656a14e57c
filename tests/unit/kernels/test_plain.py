"""The loops in NumPy, which a device without Numba has, against the compiled ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.private.kernels import batch, compiled, plain
from hdpmf.private.kernels.batch import group, lanes_of, pad

N_USERS, N_ITEMS = 6, 40


def test_where_numba_is_installed_loops_are_compiled() -> None:
    assert batch._loops() is compiled


@given(st.lists(st.integers(0, 6), max_size=60))
def test_layouts_are_the_same(pairs: list[int]) -> None:
    rows, values = np.array(pairs, np.int32), np.arange(len(pairs)) ** 2
    start = plain.starts(rows, 7)
    assert start.dtype == np.int64
    assert start.tolist() == compiled.starts(rows, 7).tolist()
    ours, theirs = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    plain.scatter(rows, values, start, ours)
    compiled.scatter(rows, values, start, theirs)
    assert ours.tolist() == theirs.tolist()


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def ratings(request: pytest.FixtureRequest) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(4)
    pairs = rng.permutation((N_USERS - 1) * N_ITEMS)[:120]  # the last user has none
    coefficient = rng.uniform(0.1, 1, len(pairs)) if request.param else None
    users, items = (pairs % (N_USERS - 1)).astype(np.int32), (pairs // 5).astype(np.int32)
    return users, items, rng.uniform(1, 5, len(pairs)), coefficient


@pytest.mark.parametrize("n_factors", [1, 8, 10])
def test_gradients_and_steps_are_the_same(ratings: tuple, n_factors: int) -> None:
    users, items, target, coefficient = ratings
    rng = np.random.default_rng(n_factors)
    U, V = (pad(rng.normal(0, 0.5, (n, n_factors))) for n in (N_USERS, N_ITEMS))
    by_item = group(items, users, target, coefficient, N_ITEMS).columns
    found = []
    for loops in (plain, compiled):
        out = np.full_like(V, np.nan)
        loops.item_gradients_of(0, N_ITEMS, by_item, U, V, out, lanes_of(V))
        found.append(out)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)

    by_user = group(users, items, target, coefficient, N_USERS).columns
    steps = rng.uniform(0.01, 0.1, N_USERS).astype(np.float32)
    for unit_ball in (False, True):
        found = []
        for loops in (plain, compiled):
            mine = U.copy()
            arguments = (by_user, mine, V, steps, np.float32(0.02), unit_ball, lanes_of(V))
            loops.step_users_of(0, N_USERS, *arguments)
            found.append(mine)
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)
    assert np.linalg.norm(found[0], axis=1).max() <= 1 + 1e-6


def test_fitted_vectors_are_the_same(ratings: tuple) -> None:
    users, items, target, _ = ratings
    rng = np.random.default_rng(5)
    size = 7
    X = rng.normal(size=(N_ITEMS, size)) * (rng.random((N_ITEMS, size)) < 0.6)
    root = rng.normal(size=(size, size))
    precision, mean_map = root @ root.T + np.eye(size), rng.normal(size=(size, size))
    by_user = group(users, items, target, None, N_USERS)
    arguments = (by_user.start, by_user.partner, by_user.target, X, rng.uniform(0.2, 1, N_ITEMS))
    found = []
    for loops in (plain, compiled):
        out = np.full((N_USERS, size + 1), np.nan)  # the last one is the caller's
        loops.fit_of(0, N_USERS, *arguments, precision, mean_map, out)
        found.append(out)
    assert np.isnan(found[0][:, size:]).all()
    # The system is solved in doubles; the target is a float.
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-11)
