"""Who rated what: the input of every model for lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


DAMPING = 20.0
"""Raters added to every item where items are compared, so that pairs of rare ones do not look alike by chance."""


@dataclass(frozen=True, eq=False, repr=False)
class Presence:
    """Pairs of user and item, each once.

    Attributes:
        users: One number per pair.
        items: One per pair.
        n_users: How many users there are.
        n_items: How many items.
    """

    users: np.ndarray
    items: np.ndarray
    n_users: int
    n_items: int

    @cached_property
    def matrix(self) -> csr_matrix:
        """0/1, one row per user."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self.users), np.float32)
        return csr_matrix((ones, (self.users, self.items)), shape=(self.n_users, self.n_items))

    @cached_property
    def raters(self) -> np.ndarray:
        """How many users rated each item."""
        return np.bincount(self.items, minlength=self.n_items)

    def gram(self) -> np.ndarray:
        """How many users rated both of two items."""
        return np.asarray((self.matrix.T @ self.matrix).todense(), np.float64)

    def only(self, heads: np.ndarray) -> Presence:
        """Only the pairs of some items (positions, ascending), counted anew."""
        places = np.searchsorted(heads, self.items)
        known = heads[np.minimum(places, len(heads) - 1)] == self.items
        return Presence(self.users[known], places[known], self.n_users, len(heads))

    def hold_out(self, per_user: int, seed: int) -> tuple[Presence, Presence]:
        """Some pairs of every user with more than twice as many apart, to stop or choose by."""
        order = np.lexsort((np.random.default_rng(seed).random(len(self.users)), self.users))
        counts = np.bincount(self.users, minlength=self.n_users)
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        apart = order[(place < per_user) & (np.repeat(counts, counts) > 2 * per_user)]
        chosen = np.zeros(len(order), bool)
        chosen[apart] = True
        return self._take(~chosen), self._take(chosen)

    def _take(self, which: np.ndarray) -> Presence:
        return Presence(self.users[which], self.items[which], self.n_users, self.n_items)
