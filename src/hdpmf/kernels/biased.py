"""SGD for ``mean + b_i + b_j + u_i . v_j``: a step per rating on both biases and both vectors, in random order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.kernels.gauss import stream_key
from hdpmf.kernels.sequential import swap_in
from hdpmf.kernels.simd import dot, lanes_of, load, store


@njit(nogil=True, cache=True, fastmath={"contract"})
def _biased_pass(
    users: Any,
    items: Any,
    target: Any,
    user_bias: Any,
    item_bias: Any,
    U: Any,
    V: Any,
    rate: Any,
    reg: Any,
    seed: Any,
    epoch: Any,
    lanes: Any,
) -> None:
    keep = U.dtype.type(1.0) - rate * reg
    counter = stream_key(seed, epoch, 0)
    n = len(users)
    for position in range(n):
        counter = swap_in(position, n, counter, users, items, target)
        user, item = users[position], items[position]
        u = load(U, user, lanes)
        v = load(V, item, lanes)
        step = (target[position] - user_bias[user] - item_bias[item] - dot(u, v)) * rate
        user_bias[user] = user_bias[user] * keep + step
        item_bias[item] = item_bias[item] * keep + step
        store(U, user, u * keep + v * step)
        store(V, item, v * keep + u * step)


def biased_pass(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    user_bias: np.ndarray,
    item_bias: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
    seed: int,
    epoch: int,
) -> None:
    """One epoch, in place; reorders the ratings. On one thread by its nature.

    Args:
        users: Of each rating.
        items: Of each rating.
        target: Each rating less the mean of all.
        user_bias: b_i.
        item_bias: b_j.
        U: Padded user vectors.
        V: Padded item vectors.
        rate: Learning rate.
        reg: Regularisation of biases and vectors.
        seed: Of the order.
        epoch: Its number, which draws another order.
    """
    typed = U.dtype.type
    args = users, items, target, user_bias, item_bias, U, V, typed(rate), typed(reg), np.uint64(seed), epoch
    _biased_pass(*args, lanes_of(U))
