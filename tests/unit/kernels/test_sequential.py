import numpy as np
import pytest
from scipy import stats

from hdpmf.common.base.threads import Workers
from hdpmf.private.kernels import sequential
from hdpmf.private.kernels.batch import group, pad
from tests.unit.gpu import kernel_reference as reference

N_USERS, N_ITEMS, K = 31, 23, 10


def problem(weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(N_USERS * (N_ITEMS - 1))[:400]
    users, items = (pairs % N_USERS).astype(np.int32), (pairs // N_USERS).astype(np.int32)
    target = rng.uniform(1, 5, len(pairs)).astype(np.float32)
    coefficient = rng.uniform(0.1, 1, len(pairs)).astype(np.float32) if weighted else None
    return (
        users,
        items,
        target,
        coefficient,
        rng.normal(0, 0.4, (N_USERS, K)),
        rng.normal(0, 0.4, (N_ITEMS, K)),
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_item_pass_is_the_reference_in_the_order_it_chose(weighted):
    users, items, target, coefficient, U, V = problem(weighted)
    by_item = group(items, users, target, coefficient, N_ITEMS)
    before = by_item.copy()
    padded = pad(V)
    with Workers(2) as workers:
        sequential.item_pass(
            by_item, pad(U), padded, 0.02, 0.01, seed=5, epoch=3, noise=None, workers=workers
        )
    assert not np.array_equal(by_item.partner, before.partner)
    for item in range(N_ITEMS):
        row = slice(by_item.start[item], by_item.start[item + 1])
        assert sorted(by_item.partner[row]) == sorted(before.partner[row])
        weights = None if coefficient is None else by_item.coefficient[row]
        expected = reference.sequential_row(
            V[item], U[by_item.partner[row]], by_item.target[row], weights, 0.02, 0.01, None, False
        )
        np.testing.assert_allclose(padded[item, :K], expected, rtol=2e-5, atol=2e-5)


def test_user_pass_is_the_reference_and_stays_in_the_ball():
    users, items, target, _, U, V = problem()
    by_user = group(users, items, target, None, N_USERS)
    padded = pad(U)
    with Workers(2) as workers:
        sequential.user_pass(by_user, padded, pad(V), 0.05, 0.01, seed=5, epoch=3, workers=workers)
    for user in range(N_USERS):
        row = slice(by_user.start[user], by_user.start[user + 1])
        expected = reference.sequential_row(
            U[user], V[by_user.partner[row]], by_user.target[row], None, 0.05, 0.01, None, True
        )
        np.testing.assert_allclose(padded[user, :K], expected, rtol=5e-5, atol=5e-5)
    rated = by_user.counts > 0
    assert np.linalg.norm(padded[rated], axis=1).max() <= 1 + 1e-6


def test_joint_pass_is_the_reference_in_the_order_it_chose():
    users, items, target, _, U, V = problem()
    table = users.copy(), items.copy(), target.copy()
    padded_u, padded_v = pad(U), pad(V)
    sequential.joint_pass(*table, padded_u, padded_v, 0.02, 0.01, seed=5, epoch=1)
    assert sorted(zip(*table, strict=True)) == sorted(zip(users, items, target, strict=True))
    expected_u, expected_v = reference.joint_steps(*table, U, V, 0.02, 0.01)
    np.testing.assert_allclose(padded_u[:, :K], expected_u, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(padded_v[:, :K], expected_v, rtol=1e-4, atol=1e-4)


def test_every_order_is_equally_likely():
    # Four ratings of one item have 24 orders; 12,000 epochs, chi-square at level 1e-4.
    by_item = group(np.zeros(4, np.int32), np.arange(4, dtype=np.int32), np.ones(4), None, 1)
    U, V = pad(np.zeros((4, K))), pad(np.zeros((1, K)))
    counts = {}
    with Workers(1) as workers:
        for epoch in range(12_000):
            fresh = by_item.copy()
            sequential.item_pass(fresh, U, V, 0.0, 0.0, 9, epoch, None, workers)
            order = tuple(fresh.partner.tolist())
            counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def noise_only(n_ratings, spread, seed, epoch, noise_epoch, n_items=400):
    """With zero users and no regularisation the item vectors only collect their noise."""
    items = np.repeat(np.arange(n_items, dtype=np.int32), n_ratings)
    users = np.tile(np.arange(n_ratings, dtype=np.int32), n_items)
    by_item = group(items, users, np.ones(len(items)), None, n_items)
    V = pad(np.zeros((n_items, K)))
    width = np.zeros_like(V)
    width[:, :K] = spread
    with Workers(2) as workers:
        sequential.item_pass(
            by_item, pad(np.zeros((n_ratings, K))), V, 0.5, 0.0, seed, epoch,
            sequential.PassNoise(width, noise_epoch), workers,
        )  # fmt: skip
    assert not V[:, K:].any()
    return V[:, :K].astype(np.float64)


@pytest.mark.parametrize("n_ratings", [1, 2, 3, 10])
def test_noise_adds_up_over_the_ratings(n_ratings):
    total = noise_only(n_ratings, spread=3.0, seed=1, epoch=1, noise_epoch=1)
    assert stats.kstest(total.ravel() / (0.5 * 3.0 * np.sqrt(n_ratings)), "norm").pvalue > 1e-4


def test_noise_is_fresh_in_every_epoch_or_always_the_same():
    first = noise_only(3, 1.0, 1, 1, 1)
    assert abs(np.corrcoef(first.ravel(), noise_only(3, 1.0, 1, 2, 2).ravel())[0, 1]) < 5 / np.sqrt(
        first.size
    )
    once = noise_only(3, 1.0, 1, 1, 0)
    assert np.array_equal(once, noise_only(3, 1.0, 1, 2, 0))


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_a_bit():
    users, items, target, coefficient, U, V = problem(weighted=True)
    results = []
    for threads in (1, 2, 5):
        by_item, by_user = (
            group(items, users, target, coefficient, N_ITEMS),
            group(users, items, target, None, N_USERS),
        )
        padded_u, padded_v = pad(U), pad(V)
        with Workers(threads) as workers:
            for epoch in range(3):
                noise = sequential.PassNoise(np.full_like(padded_v, 0.1), epoch)
                sequential.item_pass(
                    by_item, padded_u, padded_v, 0.01, 0.01, 1, epoch, noise, workers
                )
                sequential.user_pass(by_user, padded_u, padded_v, 0.01, 0.01, 1, epoch, workers)
        results.append(padded_v.tobytes() + padded_u.tobytes())
    assert len(set(results)) == 1
