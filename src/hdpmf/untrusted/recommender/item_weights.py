"""Typical privacy weights of items, from the weights that those who share show.

Sums of weights make items that people guard look rare. Somebody whose ratings are seen shows the
weight of each; those of one person, next to each other, tell how much items are guarded. That makes
raters of sums, for everybody. Post-processing only: it costs no privacy.
"""

from __future__ import annotations

import numpy as np

from hdpmf.common.model.device_fit import correct_popularity
from hdpmf.common.protocol import BitContribution

TYPICAL = 0.4
"""The weight of a hidden rating against an item's typical one: with it a visible rating counts like
a hidden one. In the paper's specification it is .38 over all people who are not liberal."""

_ROUNDS = 10

_NOISE, _SPREAD = 0.3, 0.5
"""Variances of logarithms before anything is seen: of one rating's weight around what person and
item make it, and of item weights."""

_STEADY = 20.0  # ratings and items that these count like

_LEAST_NOISE = 1e-3

_FURTHEST = np.log(16.0)


def typical_weights(
    bits: BitContribution, users: np.ndarray, n_items: int, features: np.ndarray | None
) -> np.ndarray:
    """Estimate the weight of each item against that of the others; its geometric mean is 1.

    The logarithm of a weight is taken as the person's part, the item's part and noise, the item's
    part as what features explain and something of its own. How much each item is held to what its
    features say follows from how well people agree.

    Args:
        bits: With items and weights.
        users: Of each bit, counted from 0.
        features: Public, one row per item, or None.
    """
    items, logs = bits.items, np.log(bits.units + 0.5)
    # A weight of few 64ths is known only roughly.
    rounding = 1.0 / (12.0 * (bits.units + 0.5) ** 2)
    columns = np.ones((n_items, 1))
    if features is not None:
        columns = np.column_stack([columns, features])
    held = np.full(columns.shape[1], 1.0 / _SPREAD)
    held[0] = 1e-6
    seen = np.bincount(items, minlength=n_items) > 0
    own, noise, spread = np.zeros(n_items), _NOISE, _SPREAD
    for _ in range(_ROUNDS):
        told = 1.0 / (noise + rounding)
        by_user = np.maximum(np.bincount(users, told), 1e-12)
        persons = np.bincount(users, told * (logs - own[items])) / by_user
        left = logs - persons[users]
        amount = np.bincount(items, told, n_items)
        mean = np.bincount(items, told * left, n_items) / np.maximum(amount, 1e-12)
        share = amount / (1.0 + amount * spread)
        system = columns.T @ (columns * share[:, None]) + np.diag(held)
        expected = columns @ np.linalg.solve(system, columns.T @ (share * mean))
        gain = spread * share
        own = expected + gain * (mean - expected)
        missed = float((told * ((left - own[items]) ** 2 - rounding)).sum() / told.sum())
        n = len(items)
        noise = max((n * missed + _STEADY * _NOISE) / (n + _STEADY), _LEAST_NOISE)
        moments = ((own - expected) ** 2 + spread * (1.0 - gain))[seen].sum()
        spread = (float(moments) + _STEADY * _SPREAD) / (int(seen.sum()) + _STEADY)
    own = own - np.average(own, weights=np.bincount(items, minlength=n_items))
    return np.asarray(np.exp(np.clip(own, -_FURTHEST, _FURTHEST)))


def raters_of(
    hidden: np.ndarray, weights: np.ndarray, visible: np.ndarray, noise_scale: float | np.ndarray
) -> np.ndarray:
    """Estimate how often people choose each item, up to a factor.

    Args:
        hidden: Per item, the weights of hidden ratings, estimated from noisy sums.
        weights: Typical weights of items.
        visible: Per item, how many ratings are in plain sight.
        noise_scale: Of the noise on the sums.
    """
    return correct_popularity(hidden, weights, noise_scale) + TYPICAL * visible
