"""The yardsticks: what most people choose, and what goes with what one has rated."""

from __future__ import annotations

import numpy as np

from hdpmf.public.lists import Bytes, Entries, ListModel
from hdpmf.public.popularity import log_popularity
from hdpmf.recommender.lists.presence import DAMPING, Presence

NEIGHBOURS = 200
"""Best of 20, 50, 200 and 500 on ratings held out within ML-100K (NDCG@10 .163, .166, .189, .180) and ML-1M (.129,
.131, .138, .137): ``python benchmarks/constants.py --only neighbours --users 1500 --seeds 2``."""


def popular_lists(popularity: np.ndarray) -> ListModel:
    """The same order for everybody: by how often items are chosen."""
    n = len(popularity)
    order = log_popularity(popularity).astype(np.float32)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    return ListModel("linear", empty, empty, Entries.none(n), np.zeros(0, np.float32), order)


def train_knn(presence: Presence, *, neighbours: int = NEIGHBOURS) -> ListModel:
    """Items that go with what one has rated: for each item its most similar ones, by the damped cosine."""
    n = presence.n_items
    gram = presence.gram()
    length = np.sqrt(np.diag(gram) + DAMPING)
    similar = gram / length[:, None] / length
    np.fill_diagonal(similar, 0.0)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    entries = Entries.largest(similar, min(neighbours, n - 1))
    return ListModel("linear", empty, empty, entries, np.zeros(0, np.float32), np.zeros(n, np.float32))
