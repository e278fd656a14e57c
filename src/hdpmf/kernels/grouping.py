"""Ratings laid out for the kernels: all ratings of one item (or of one user) next to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload


@dataclass(frozen=True, slots=True, repr=False)
class Grouped:
    """Ratings in compressed rows: those of row ``s`` are ``start[s]:start[s + 1]``.

    Attributes:
        start: Where each row begins, and the end of the last one.
        partner: The other side of each rating (the user in an item's row, the item in a user's row).
        target: The number that the model should predict for it.
        coefficient: How much its residual counts, or None where all count 1.
    """

    start: np.ndarray
    partner: np.ndarray
    target: np.ndarray
    coefficient: np.ndarray | None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.start) - 1

    @property
    def counts(self) -> np.ndarray:
        """How many ratings each row has."""
        return np.diff(self.start)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """The arrays as kernels take them."""
        return self.start, self.partner, self.target, self.coefficient

    def copy(self) -> Grouped:
        """A copy that a kernel may reorder within rows."""
        coefficient = None if self.coefficient is None else self.coefficient.copy()
        return Grouped(self.start, self.partner.copy(), self.target.copy(), coefficient)


@njit(nogil=True, cache=True)
def _starts(rows: Any, n_rows: Any) -> Any:
    start = np.zeros(n_rows + 1, np.int64)
    for row in rows:
        start[row + 1] += 1
    for row in range(n_rows):
        start[row + 1] += start[row]
    return start


@njit(nogil=True, cache=True)
def _scatter(rows: Any, values: Any, start: Any, out: Any) -> None:
    cursor = start.copy()
    for position in range(len(rows)):
        row = rows[position]
        out[cursor[row]] = values[position]
        cursor[row] += 1


def group(
    rows: np.ndarray,
    partner: np.ndarray,
    target: np.ndarray,
    coefficient: np.ndarray | None,
    n_rows: int,
    dtype: Any = np.float32,
) -> Grouped:
    """Lay ratings out by ``rows`` (counting sort: linear time, no temporary larger than the result)."""
    start = _starts(rows, n_rows)
    return Grouped(
        start,
        _placed(rows, partner, start, np.int32),
        _placed(rows, target, start, dtype),
        None if coefficient is None else _placed(rows, coefficient, start, dtype),
    )


def _placed(rows: np.ndarray, values: np.ndarray, start: np.ndarray, dtype: Any) -> np.ndarray:
    out = np.empty(len(rows), dtype)
    _scatter(rows, values, start, out)
    return out


def weighted(residual: Any, coefficient: Any, position: Any) -> Any:
    """For kernels: the residual times its coefficient, where there are coefficients."""
    return residual if coefficient is None else residual * coefficient[position]


@overload(weighted, strict=False)
def _weighted(residual: Any, coefficient: Any, position: Any) -> Any:
    # Decided by type, so that kernels without coefficients neither load them nor ask.
    if isinstance(coefficient, types.NoneType):
        return lambda residual, coefficient, position: residual
    return lambda residual, coefficient, position: residual * coefficient[position]


def exchange(values: Any, first: Any, second: Any) -> None:
    """For kernels: swap two entries of a column, where there is one."""
    if values is not None:
        values[first], values[second] = values[second], values[first]


@overload(exchange, strict=False)
def _exchange(values: Any, first: Any, second: Any) -> Any:
    if isinstance(values, types.NoneType):
        return lambda values, first, second: None

    def swap(values: Any, first: Any, second: Any) -> None:
        values[first], values[second] = values[second], values[first]

    return swap
