import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.private.kernels.batch import fit_users, group


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    n_users, n_items, size, n = 50, 30, 7, 900
    users = rng.integers(0, n_users - 1, n).astype(np.int32)  # the last user has no ratings
    items = rng.integers(0, n_items, n).astype(np.int32)
    X = rng.normal(size=(n_items, size)) * (rng.random((n_items, size)) < 0.6)
    root = rng.normal(size=(size, size))
    by_user = group(users, items, rng.normal(size=n), None, n_users)
    return (
        by_user,
        X,
        rng.uniform(0.2, 1, n_items),
        root @ root.T + np.eye(size),
        rng.normal(size=(size, size)),
    )


def fitted(problem, n_threads):
    by_user, X, weight, precision, mean_map = problem
    out = np.empty((by_user.n_rows, X.shape[1]))
    with Workers(n_threads) as workers:
        fit_users(
            by_user.start,
            by_user.partner,
            by_user.target,
            X,
            weight,
            precision,
            mean_map,
            out,
            workers,
        )
    return out


def test_it_solves_the_normal_equations(problem):
    by_user, X, weight, precision, mean_map = problem
    out = fitted(problem, 1)
    for user in range(by_user.n_rows):
        own = slice(by_user.start[user], by_user.start[user + 1])
        Z, w, y = X[by_user.partner[own]], weight[by_user.partner[own]], by_user.target[own]
        n = len(y)
        z = Z.mean(0) if n else np.zeros(X.shape[1])
        expected = np.linalg.solve(
            (Z * w[:, None]).T @ Z + precision, (Z * w[:, None]).T @ y + mean_map @ z
        )
        np.testing.assert_allclose(out[user], expected, rtol=1e-6, atol=1e-8)


def test_threads_change_nothing(problem):
    for n_threads in (2, 3, 7):
        assert np.array_equal(fitted(problem, n_threads), fitted(problem, 1))
