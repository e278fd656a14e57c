"""The messages about who rates what with whom. They stay in one process: no device answers them
between machines.
"""

from __future__ import annotations

import numpy as np

from hdpmf.common.privacy.pairs import LARGEST_BOUND, MOST_HEADS
from hdpmf.common.protocol.messages import MAX_ITEMS, _Message, _positive, check_vectors


class PairSurvey(_Message, frozen=True):
    """Recommender to shard: which items to pair. Everything in it is public or made of what was
    released.

    Whatever a recommender writes here, the guarantee is the same: the noise follows from it.

    Attributes:
        epsilon: The largest budget of a rating, for its presence.
        n_items: Items in the catalogue.
        catalogue: Its fingerprint.
        heads: Positions of the items to pair, ascending.
        bound: The length that rows of weights are scaled down to.
    """

    epsilon: float
    n_items: int
    catalogue: str
    heads: np.ndarray
    bound: int

    def _check(self) -> None:
        self._require(_positive(self.epsilon), "epsilon must be a positive number")
        self._require(1 <= self.n_items <= MAX_ITEMS, f"n_items must be from 1 to {MAX_ITEMS}")
        check_vectors(self, "heads")
        self._require(2 <= len(self.heads) <= MOST_HEADS, f"heads must be from 2 to {MOST_HEADS}")
        inside = (self.heads >= 0) & (self.heads < self.n_items)
        self._require(bool(inside.all()), "heads must be positions of items")
        self._require(bool((self.heads[1:] > self.heads[:-1]).all()), "heads must be ascending")
        self._require(1 <= self.bound <= LARGEST_BOUND, f"bound must be from 1 to {LARGEST_BOUND}")


class PairContribution(_Message, frozen=True):
    """Shard to recommender: for every pair of heads the sum over users, with all of its noise.

    Attributes:
        sums: Row after row above the diagonal.
    """

    sums: np.ndarray

    def _check(self) -> None:
        check_vectors(self, "sums")
