"""What ``hdpmf-paid`` sends before its noise: gradients in whole numbers.

Rounding is part of the law, so that the proof's sensitivity holds to the last digit: see ``proofs/hdpmf-paid.md``.
"""

from __future__ import annotations

import numpy as np

from hdpmf.privacy.coding import levels_of, n_levels
from hdpmf.protocol.grid import GRADIENT_STEP, to_grid
from hdpmf.ratings import RatingScale

_BLOCK = 1 << 16  # ratings whose gradients are in memory at a time; no mutant: the sums are the same


class WholeGradients:
    """Ratings from which gradients ``2 W (s.v - R) s`` are made, item by item, in units of ``GRADIENT_STEP``.

    Args:
        users: Position of each rating's user.
        rows: Row of each rating's item.
        values: The ratings.
        n_rows: Rows of the result.
    """

    def __init__(
        self,
        users: np.ndarray,
        rows: np.ndarray,
        values: np.ndarray,
        weights: np.ndarray,
        scale: RatingScale,
        n_rows: int,
    ) -> None:
        by_row = np.argsort(rows, kind="stable")
        self._users, self._rows = users[by_row], rows[by_row]
        self._levels, self._weights = levels_of(values, scale)[by_row], weights[by_row]
        self._low, self._step = scale.low, scale.width / n_levels(scale)
        self._n_rows = n_rows

    def sums(self, stand_ins: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The gradients, summed over the ratings of each row.

        A gradient is base - level * slope. ``slope`` is rounded towards zero and the level is a whole number, so that
        another level moves the row by no more, in the sum of its sizes, than 2 W Delta |s|_1; ``base`` knows no
        rating's value.
        """
        s_of, v_of = stand_ins.astype(np.float64), factors.astype(np.float64)
        total = np.zeros((self._n_rows, factors.shape[1]), np.int64)
        for begin in range(0, len(self._rows), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            rows, s = self._rows[block], s_of[self._users[block]]
            strength = 2.0 * self._weights[block][:, None] * s
            base = to_grid(strength * (np.einsum("nk,nk->n", s, v_of[rows]) - self._low)[:, None])
            slope = np.trunc(strength * (self._step / GRADIENT_STEP)).astype(np.int64)
            firsts = np.flatnonzero(np.diff(rows, prepend=-1))
            total[rows[firsts]] += np.add.reduceat(base - self._levels[block][:, None] * slope, firsts, axis=0)
        return total
