"""Factors of who rates what with whom, for designs in which that is in plain sight."""

from __future__ import annotations

import numpy as np

_DAMPING = 5.0  # raters added to every item, so that one with few cannot dominate a factor
_LIMIT = 3.0


def rating_patterns(users: np.ndarray, items: np.ndarray, n_items: int, n_patterns: int) -> np.ndarray:
    """Item factors of the 0/1 matrix of ratings, scaled to variance 1 over ratings.

    The matrix is divided by the root of its row and column sums; the first singular vector, which is only
    popularity, is left out.
    """
    n_users = int(users.max()) + 1 if len(users) else 0
    wanted = min(n_patterns, min(n_users, n_items) - 3)
    if wanted < 1:
        return np.zeros((n_items, 0))
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import svds

    raters = np.bincount(items, minlength=n_items)
    by_user = 1.0 / np.sqrt(np.maximum(np.bincount(users, minlength=n_users), 1))
    by_item = 1.0 / np.sqrt(raters + _DAMPING)
    matrix = coo_matrix((by_user[users] * by_item[items], (users, items)), shape=(n_users, n_items)).tocsr()
    start = np.sqrt(raters + 1.0) if n_items <= n_users else np.ones(n_users)
    _, sizes, vectors = svds(matrix, k=wanted + 1, v0=start)
    factors = vectors[np.argsort(-sizes)[1:]].T * by_item[:, None]
    # The sign of a singular vector is arbitrary: take the one that the most-rated item has positive.
    factors *= np.where(factors[int(np.argmax(raters))] < 0, -1.0, 1.0)
    factors -= np.average(factors, axis=0, weights=raters)
    factors /= np.maximum(np.sqrt(np.average(factors**2, axis=0, weights=raters)), 1e-9)
    return np.asarray(np.clip(factors, -_LIMIT, _LIMIT))
