"""At most so many ratings of a person take part: which ones is settled without a look at their values."""

from __future__ import annotations

import numpy as np


def at_most(users: np.ndarray, most: int, draws: np.ndarray) -> np.ndarray:
    """Positions, ascending, of at most ``most`` ratings of each user: those with the smallest draws.

    Args:
        users: Each rating's user, as a number.
        most: How many of a user's ratings may take part.
        draws: One number for each rating that does not depend on any value.
    """
    order = np.lexsort((draws, users))
    ranked = users[order]
    first = np.flatnonzero(np.diff(ranked, prepend=-1))
    rank = np.arange(len(users)) - np.repeat(first, np.diff(np.append(first, len(users))))
    return np.sort(order[rank < most])
