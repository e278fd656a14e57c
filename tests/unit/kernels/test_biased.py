"""The kernel with biases, against the same steps written out."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import BiasedMF, GlobalMean, UserMean, load_model
from hdpmf.private.kernels.batch import pad
from hdpmf.private.kernels.sequential import biased_pass


def test_a_pass_is_a_step_per_rating() -> None:
    rng = np.random.default_rng(0)
    n_users, n_items, n, width = 7, 5, 40, 3
    users, items = (
        rng.integers(0, n_users, n).astype(np.int32),
        rng.integers(0, n_items, n).astype(np.int32),
    )
    target = rng.normal(size=n).astype(np.float32)
    user_bias, item_bias = (rng.normal(size=size).astype(np.float32) for size in (n_users, n_items))
    U, V = (pad(rng.normal(size=(size, width)).astype(np.float32)) for size in (n_users, n_items))
    state = tuple(part.astype(np.float64) for part in (user_bias, item_bias, U, V))
    before = sorted(zip(users.tolist(), items.tolist(), target.tolist(), strict=True))
    biased_pass(users, items, target, user_bias, item_bias, U, V, 0.05, 0.02, seed=3, epoch=1)
    # The pass leaves the ratings in the order that it took them.
    assert sorted(zip(users.tolist(), items.tolist(), target.tolist(), strict=True)) == before
    for user, item, wanted in zip(users, items, target, strict=True):
        _step(*state, user, item, float(wanted), 0.05, 0.02)
    for found, expected in zip((user_bias, item_bias, U, V), state, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)
    other = users.copy()
    biased_pass(users, items, target, user_bias, item_bias, U, V, 0.05, 0.02, seed=3, epoch=2)
    assert not np.array_equal(users, other)


def _step(
    user_bias: np.ndarray,
    item_bias: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    user: int,
    item: int,
    wanted: float,
    rate: float,
    reg: float,
) -> None:
    error = wanted - user_bias[user] - item_bias[item] - U[user] @ V[item]
    user_bias[user] += rate * (error - reg * user_bias[user])
    item_bias[item] += rate * (error - reg * item_bias[item])
    old = U[user].copy()
    U[user] += rate * (error * V[item] - reg * U[user])
    V[item] += rate * (error * old - reg * V[item])


def test_it_beats_the_means_and_comes_back_from_its_file(tmp_path) -> None:
    from hdpmf import synthetic_world

    train, test = synthetic_world(n_users=300, n_items=150, n_ratings=12_000, rng=1).hold_out(
        per_user=5, rng=0
    )
    model = BiasedMF(n_factors=8, rng=0).fit(train)
    errors = [kind().fit(train).score(test)["mse"] for kind in (UserMean, GlobalMean)]
    assert model.score(test)["mse"] < 0.95 * min(errors)
    assert model.score(test) == BiasedMF(n_factors=8, rng=0).fit(train).score(test)
    assert model.privacy.status == "none"
    model.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.score(test) == model.score(test)
    assert back.recommend(train.users.ids[0], 5) == model.recommend(train.users.ids[0], 5)
    assert model.rank(test)["ndcg"] > 0
    with pytest.raises(AttributeError):
        _ = BiasedMF().mean_
