"""All ratings of a row at once: layout, summed gradients, user steps, least squares.

Every row is summed by one thread in a fixed order, so the number of threads changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.base.threads import Workers

LANES = 8
"""Rows are padded to a multiple of this many numbers (32 bytes of float32)."""


def padded(n_factors: int) -> int:
    """The row width that holds ``n_factors`` numbers."""
    return -(-n_factors // LANES) * LANES


def lanes_of(matrix: np.ndarray) -> tuple[int, ...]:
    """The ``lanes`` argument for kernels that work on rows of ``matrix``."""
    return (0,) * int(matrix.shape[1])


def pad(matrix: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """A copy of ``matrix`` with zero columns added up to the padded width."""
    rows, columns = matrix.shape
    out = np.zeros((rows, padded(columns)), dtype)
    out[:, :columns] = matrix
    return out


def _loops() -> Any:
    """Return the compiled loops over a row; importing Numba takes a while."""
    from hdpmf.private.kernels import compiled

    return compiled


@dataclass(frozen=True, slots=True, repr=False)
class GroupedRatings:
    """Ratings in compressed rows: those of row ``s`` are ``start[s]:start[s + 1]``.

    Attributes:
        start: Where each row begins, and the end of the last one.
        partner: The other side of each rating (the user in an item's row, the item in a user's
            row).
        target: The number that the model should predict for it.
        coefficient: How much its residual counts, or None where all count 1.
    """

    start: np.ndarray
    partner: np.ndarray
    target: np.ndarray
    coefficient: np.ndarray | None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.start) - 1

    @property
    def counts(self) -> np.ndarray:
        """The number of ratings of each row."""
        return np.diff(self.start)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """The arrays as kernels take them."""
        return self.start, self.partner, self.target, self.coefficient

    def copy(self) -> GroupedRatings:
        """A copy that a kernel may reorder within rows."""
        coefficient = None if self.coefficient is None else self.coefficient.copy()
        return GroupedRatings(self.start, self.partner.copy(), self.target.copy(), coefficient)


def group(
    rows: np.ndarray,
    partner: np.ndarray,
    target: np.ndarray,
    coefficient: np.ndarray | None,
    n_rows: int,
    dtype: Any = np.float32,
) -> GroupedRatings:
    """Lay ratings out by ``rows``: a counting sort, linear in time, without large temporaries."""
    start = _loops().starts(rows, n_rows)
    return GroupedRatings(
        start,
        placed(rows, partner, start, np.int32),
        placed(rows, target, start, dtype),
        None if coefficient is None else placed(rows, coefficient, start, dtype),
    )


def placed(rows: np.ndarray, values: np.ndarray, start: np.ndarray, dtype: Any) -> np.ndarray:
    """Lay one column out by ``rows``, which begin at ``start``."""
    out = np.empty(len(rows), dtype)
    _loops().scatter(rows, values, start, out)
    return out


def item_gradients(
    by_item: GroupedRatings, U: np.ndarray, V: np.ndarray, out: np.ndarray, workers: Workers
) -> None:
    """Write each item's sum of ``2 c (u.v - t) u`` over its ratings to ``out``.

    All matrices are padded.
    """
    columns, lanes = by_item.columns, lanes_of(V)
    workers.over_rows(
        by_item.start,
        lambda first, end: _loops().item_gradients_of(first, end, columns, U, V, out, lanes),
    )


def step_users(
    by_user: GroupedRatings,
    U: np.ndarray,
    V: np.ndarray,
    steps: np.ndarray,
    reg: float,
    unit_ball: bool,
    workers: Workers,
) -> None:
    """Make one gradient step of every user vector in place; project it if ``unit_ball``."""
    columns, lanes, typed_reg = by_user.columns, lanes_of(V), U.dtype.type(reg)
    workers.over_rows(
        by_user.start,
        lambda first, end: _loops().step_users_of(
            first, end, columns, U, V, steps, typed_reg, unit_ball, lanes
        ),
    )


def fit_users(
    start: np.ndarray,
    partner: np.ndarray,
    target: np.ndarray,
    X: np.ndarray,
    weight: np.ndarray,
    precision: np.ndarray,
    mean_map: np.ndarray,
    out: np.ndarray,
    workers: Workers,
) -> None:
    """Solve ``(precision + sum w x x') t = sum w x y + mean_map z`` per user, into ``out``.

    Args:
        start: Where each user's ratings begin, and the end of the last.
        partner: The item of each rating.
        target: What is to be explained of each rating.
        X: Features, one row per item.
        weight: How much a rating of each item counts.
        precision: Of the prior, in the same units.
        mean_map: The precision times the map from z, the mean features of what a user rated, to the
            prior's mean.
        out: One row per user.
    """
    workers.over_rows(
        start,
        lambda first, end: _loops().fit_of(
            first, end, start, partner, target, X, weight, precision, mean_map, out
        ),
    )
