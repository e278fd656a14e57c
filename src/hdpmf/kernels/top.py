"""The largest scores of each row, in one pass over the table."""

from __future__ import annotations

import numpy as np
from numba import njit


def best_of(table: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the ``n`` largest scores of each row, best first and equal ones in order.

    Returns:
        The columns, and which of them are in the list at all: a score of minus infinity is not.
    """
    n = min(n, table.shape[1])
    columns, values = np.zeros((len(table), n), np.int64), np.full((len(table), n), -np.inf, table.dtype)
    if n:
        _best_of(np.ascontiguousarray(table), columns, values)
    return columns, values > -np.inf


@njit(cache=True, nogil=True)
def _best_of(table: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    last = columns.shape[1] - 1
    for row in range(len(table)):
        scores, best, found = table[row], values[row], columns[row]
        least = best[last]
        for column in range(len(scores)):
            score = scores[column]
            if score > least:  # rare after the first few: it is inserted before what is smaller
                place = last
                while place > 0 and best[place - 1] < score:
                    best[place], found[place] = best[place - 1], found[place - 1]
                    place -= 1
                best[place], found[place] = score, column
                least = best[last]
