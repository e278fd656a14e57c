import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.private.kernels import batch
from hdpmf.private.kernels.batch import group, pad
from tests.unit.gpu import kernel_reference as reference

N_USERS, N_ITEMS = 57, 41


def problem(n_factors, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(N_USERS * (N_ITEMS - 1))[:900]  # the last item stays unrated
    users, items = (pairs % N_USERS).astype(np.int32), (pairs // N_USERS).astype(np.int32)
    target = rng.uniform(1, 5, len(pairs))
    coefficient = rng.uniform(0.1, 1, len(pairs)) if weighted else None
    U, V = rng.normal(0, 0.5, (N_USERS, n_factors)), rng.normal(0, 0.5, (N_ITEMS, n_factors))
    return users, items, target, coefficient, U, V


@pytest.mark.parametrize("n_factors", [1, 5, 8, 10, 16, 17, 64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-12)])
def test_item_gradients_are_the_reference(n_factors, weighted, dtype, tolerance):
    users, items, target, coefficient, U, V = problem(n_factors, weighted=weighted)
    expected = reference.item_gradients(users, items, target, coefficient, U, V)
    by_item = group(items, users, target, coefficient, N_ITEMS, dtype)
    out = np.full((N_ITEMS, pad(V).shape[1]), np.nan, dtype)
    with Workers(2) as workers:
        batch.item_gradients(by_item, pad(U, dtype), pad(V, dtype), out, workers)
    np.testing.assert_allclose(
        out[:, :n_factors], expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )
    assert not out[:, n_factors:].any()
    assert not out[-1].any()


@pytest.mark.parametrize("n_factors", [1, 5, 10, 33])
@pytest.mark.parametrize("unit_ball", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_user_steps_are_the_reference(n_factors, unit_ball, dtype, tolerance):
    users, items, target, _, U, V = problem(n_factors, seed=1)
    steps = np.random.default_rng(2).uniform(0.001, 0.05, N_USERS)
    expected = reference.step_users(users, items, target, U, V, steps, 0.02, unit_ball)
    by_user = group(users, items, target, None, N_USERS, dtype)
    padded = pad(U, dtype)
    with Workers(1) as workers:
        batch.step_users(
            by_user, padded, pad(V, dtype), steps.astype(dtype), 0.02, unit_ball, workers
        )
    np.testing.assert_allclose(padded[:, :n_factors], expected, rtol=tolerance, atol=tolerance)
    if unit_ball:
        assert np.linalg.norm(padded, axis=1).max() <= 1 + 1e-6


def test_the_number_of_threads_does_not_change_a_bit():
    users, items, target, coefficient, U, V = problem(10, weighted=True)
    by_item = group(items, users, target, coefficient, N_ITEMS)
    results = []
    for threads in (1, 2, 3, 7):
        out = np.empty((N_ITEMS, 16), np.float32)
        with Workers(threads) as workers:
            batch.item_gradients(by_item, pad(U), pad(V), out, workers)
        results.append(out.tobytes())
    assert len(set(results)) == 1
