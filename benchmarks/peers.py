"""Peers on the same ratings: Surprise's SVD, libmf, and the loop that a textbook would write."""

from __future__ import annotations

import time

import numpy as np

from hdpmf.common.data import Ratings


def surprise_epoch(train: Ratings, n_factors: int, epochs: int = 4) -> float:
    """Seconds per epoch of Surprise's SVD: the difference of two runs, so that set-up does not
    count.
    """
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    frame = pd.DataFrame(
        {"user": train.user_codes, "item": train.item_codes, "rating": train.values}
    )
    data = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()

    def fit(n: int) -> float:
        begin = time.perf_counter()
        SVD(n_factors=n_factors, n_epochs=n, random_state=0).fit(data)
        return time.perf_counter() - begin

    return (fit(1 + epochs) - fit(1)) / epochs


def libmf_epoch(train: Ratings, n_factors: int, threads: int, epochs: int = 20) -> float:
    """Seconds per epoch of libmf with ``threads`` threads, likewise."""
    from libmf import mf

    triples = np.column_stack((train.user_codes, train.item_codes, train.values)).astype(np.float64)

    def fit(n: int) -> float:
        engine = mf.MF(k=n_factors, nr_iters=n, nr_threads=threads, quiet=True)
        begin = time.perf_counter()
        engine.fit(triples)
        return time.perf_counter() - begin

    fit(1)
    return (fit(1 + epochs) - fit(1)) / epochs


def textbook_epoch(train: Ratings, n_factors: int, sample: int = 20_000) -> float:
    """Seconds per epoch of a plain Python loop over ratings with its noise, from a sample of the
    ratings.
    """
    rng = np.random.default_rng(0)
    U, V = (
        rng.normal(0, 0.1, (train.n_users, n_factors)),
        rng.normal(0, 0.1, (train.n_items, n_factors)),
    )
    counts = train.item_counts()
    h = rng.exponential(size=n_factors)
    rate, reg, scale = 0.005, 0.01, 2 * 4.0 * np.sqrt(2 * n_factors)
    chosen = rng.permutation(len(train))[:sample]
    rows = [
        (int(train.user_codes[p]), int(train.item_codes[p]), float(train.values[p])) for p in chosen
    ]
    begin = time.perf_counter()
    for i, j, r in rows:
        x = scale * np.sqrt(h) * rng.normal(0, 1 / np.sqrt(counts[j]), n_factors)
        error = r - U[i] @ V[j]
        V[j] += rate * (2 * (error * U[i] - reg * V[j]) - x)
    for i, j, r in rows:
        error = r - U[i] @ V[j]
        U[i] += rate * 2 * (error * V[j] - reg * U[i])
        length = np.linalg.norm(U[i])
        if length > 1:
            U[i] /= length
    return (time.perf_counter() - begin) / sample * len(train)
