"""Small tables of ratings on a device."""

from __future__ import annotations

import numpy as np
import torch

from hdpmf.private.kernels.gpu.layout import Table


class World:
    """Distinct pairs with random targets, as NumPy (for the reference) and as a table (for the
    solvers).
    """

    def __init__(self, n_users=9, n_items=6, n=34, n_factors=5, seed=0):
        rng = np.random.default_rng(seed)
        # One popular item and one item that nobody rated.
        pairs = rng.permutation(n_users * (n_items - 1))[:n]
        self.users, self.items = (
            (pairs // (n_items - 1)).astype(np.int32),
            (pairs % (n_items - 1)).astype(np.int32),
        )
        self.target = rng.uniform(1, 5, n).astype(np.float32)
        self.coefficient = rng.uniform(0.1, 1, n).astype(np.float32)
        self.n, self.n_users, self.n_items, self.n_factors = n, n_users, n_items, n_factors
        self.U = rng.normal(0, 0.3, (n_users, n_factors)).astype(np.float32)
        self.V = rng.normal(0, 0.3, (n_items, n_factors)).astype(np.float32)

    def table(self, device, weighted=False):
        def put(array):
            return torch.from_numpy(array.copy()).to(device)

        return Table(
            put(self.users), put(self.items), put(self.target), self.n_users, self.n_items,
            put(self.coefficient) if weighted else None,
        )  # fmt: skip


def relative(ours, reference):
    """Distance of two matrices, relative to the second."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    return float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))
