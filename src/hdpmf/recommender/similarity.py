"""How similar items are by who rated them, as a few columns, for designs in which that is in plain sight.

Whoever rates one of two items that the same people rate tells something about how they would rate the other. So what
is left of a person's ratings after mean and item biases has the covariance

    K = CLOSE (C + C^3) / 2 + SHARED P P^T,   C_jl = G_jl / sqrt((G_jj + DAMPING) (G_ll + DAMPING))

between items: G counts who rated both, C^3 is element by element, P are the rating patterns. The columns F are the
leading part of K, F F^T; what is left of its diagonal is noise of an item's own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdpmf.protocol.oneround import MAX_SIMILAR_ITEMS
from hdpmf.recommender.lists.presence import Presence

COLUMNS = 128
"""With 256, held-out errors are 0.0003 to 0.0014 less on ML-1M and 0.0014 to 0.0024 more on ML-100K (two seeds)."""

CLOSE, SHARED, DAMPING = 1.5, 0.02, 5.0
"""Chosen on ratings held out within the training parts of ML-100K and ML-1M (docs/designs.md), out of CLOSE .45 to 3.6,
shares of C .3 to 1, SHARED 0 to .04, DAMPING 5 to 60."""

_PASSES, _SPARE = 8, 32  # 4 passes cost 0.0015 to 0.0025 on ratings held out, exact eigenvectors gain nothing


class Similar(NamedTuple):
    """The similarity of the most-rated items.

    Attributes:
        items: Their positions, ascending.
        columns: One row for each of them; all of them have variance 1 over users.
        rest: Variance that is each item's own.
    """

    items: np.ndarray
    columns: np.ndarray
    rest: np.ndarray


def similar_items(presence: Presence, patterns: np.ndarray) -> Similar:
    """Similarity from who rated what. Items beyond the most-rated ones have none: memory is bounded by their number."""
    most = np.argsort(-presence.raters, kind="stable")[:MAX_SIMILAR_ITEMS]
    items = np.sort(most[presence.raters[most] > 0])
    known = presence.only(items)
    together = known.gram().astype(np.float32)
    scale = 1.0 / np.sqrt(known.raters + DAMPING).astype(np.float32)
    together *= scale[:, None]
    together *= scale
    shared = patterns[items].astype(np.float32)
    kernel = (CLOSE / 2.0) * (together + together**3) + SHARED * (shared @ shared.T)
    # Columns are for what people rate: an item counts by the root of its raters.
    importance = (known.raters + 1.0).astype(np.float32) ** 0.25
    kernel *= importance[:, None]
    kernel *= importance
    columns = _leading(kernel, min(COLUMNS, len(items))) / importance[:, None]
    whole = CLOSE + SHARED * (shared**2).sum(1)
    return Similar(items, columns, np.maximum(whole - (columns**2).sum(1), 0.0))


def _leading(kernel: np.ndarray, rank: int) -> np.ndarray:
    """F of so many columns with F F^T next to the kernel: subspace iteration from fixed random vectors."""
    n = len(kernel)
    basis = np.random.default_rng(0).standard_normal((n, min(rank + _SPARE, n)), np.float32)
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(kernel @ basis)
    values, directions = np.linalg.eigh((basis.T @ (kernel @ basis)).astype(np.float64))
    kept = np.argsort(-values)[:rank]
    return np.asarray((basis @ directions[:, kept]) * np.sqrt(np.maximum(values[kept], 0.0)))
