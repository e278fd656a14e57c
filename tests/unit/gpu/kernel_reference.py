"""The specification of the kernels: plain NumPy in float64, to read and to test against. Never
used to train.
"""

from __future__ import annotations

import numpy as np


def item_gradients(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    coefficient: np.ndarray | None,
    U: np.ndarray,
    V: np.ndarray,
) -> np.ndarray:
    """Per item, the sum over its ratings of ``2 c (u.v - t) u`` (Algorithm 1, what is sent,
    before noise).
    """
    residual = np.sum(U[users] * V[items], axis=1) - target
    if coefficient is not None:
        residual = residual * coefficient
    out = np.zeros_like(V)
    np.add.at(out, items, 2.0 * residual[:, None] * U[users])
    return out


def step_users(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    steps: np.ndarray,
    reg: float,
    unit_ball: bool,
) -> np.ndarray:
    """New user vectors after one gradient step (Algorithm 1, on the devices) and, if asked,
    projection.
    """
    residual = np.sum(U[users] * V[items], axis=1) - target
    gradient = 2.0 * reg * U
    np.add.at(gradient, users, 2.0 * residual[:, None] * V[items])
    moved = U - steps[:, None] * gradient
    return np.array([in_unit_ball(u) for u in moved]) if unit_ball else moved


def sequential_row(
    x: np.ndarray,
    others: np.ndarray,
    target: np.ndarray,
    coefficient: np.ndarray | None,
    rate: float,
    reg: float,
    noise: np.ndarray | None,
    unit_ball: bool,
) -> np.ndarray:
    """One vector after a step per rating, in the order given (the published procedure).

    ``others`` has the other side's vector for each rating, ``noise`` the noise that is added to
    each gradient.
    """
    for n, (other, t) in enumerate(zip(others, target, strict=True)):
        residual = (t - other @ x) * (1.0 if coefficient is None else coefficient[n])
        x = x + rate * (2.0 * (residual * other - reg * x) - (0.0 if noise is None else noise[n]))
        if unit_ball:
            x = in_unit_ball(x)
    return x


def joint_steps(
    users: np.ndarray,
    items: np.ndarray,
    target: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    rate: float,
    reg: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Non-private MF: both vectors of a rating step at once, in the order given."""
    U, V = U.copy(), V.copy()
    for i, j, t in zip(users, items, target, strict=True):
        u, v = U[i], V[j]
        residual = t - u @ v
        U[i], V[j] = (
            in_unit_ball(u + rate * 2.0 * (residual * v - reg * u)),
            v + rate * 2.0 * (residual * u - reg * v),
        )
    return U, V


def in_unit_ball(x: np.ndarray) -> np.ndarray:
    """The vector, scaled down to length 1 where it is longer."""
    length = float(np.linalg.norm(x))
    return np.asarray(x / length) if length > 1.0 else x
