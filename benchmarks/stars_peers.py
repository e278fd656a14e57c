"""Stars by the best of Surprise beside our strongest method without privacy, on the same ratings.

    python benchmarks/stars_peers.py                 # ML-100K, its ua split
    python benchmarks/stars_peers.py --data ml-1m    # ten ratings of each user held out, as douban

Constants are the best of a few on ratings held out within the training part, for SVD and ours of
the same few. MSE over all test ratings, one split. Needs `pip install 'hdpmf[bench]'`. SVD++ is
left out for its time, and neighbours where all pairs of items do not fit into memory.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hdpmf import BiasedMF, Ratings, UserMean, load_dataset, load_split

GRID = list(itertools.product((20, 50), (0.005, 0.01), (0.05, 0.1), (20, 40)))
"""Factors, learning rates, regularisations and epochs of both factorizations."""


_MOST_PAIRED = 20_000


def candidates(n_items: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield Surprise's methods with the constants that are tried."""
    from surprise import SVD, BaselineOnly, KNNBaseline

    for reg in (0.02, 0.1):
        options = {"method": "als", "reg_u": 150 * reg, "reg_i": 100 * reg}
        yield f"BaselineOnly {reg}", lambda options=options: BaselineOnly(options, verbose=False)
    for k, shrinkage in itertools.product((20, 40), (25, 100)) if n_items < _MOST_PAIRED else ():
        options = {"name": "pearson_baseline", "user_based": False, "shrinkage": shrinkage}
        yield (
            f"KNNBaseline k={k} shrinkage={shrinkage}",
            lambda k=k, options=options: KNNBaseline(k, sim_options=options, verbose=False),
        )
    for factors, rate, reg, epochs in GRID:
        yield (
            f"SVD K={factors} lr={rate} reg={reg} epochs={epochs}",
            lambda factors=factors, rate=rate, reg=reg, epochs=epochs: SVD(
                factors, epochs, lr_all=rate, reg_all=reg, random_state=0
            ),
        )


def error(make: Callable[[], Any], train: Ratings, test: Ratings) -> float:
    """Return the mean squared error of one of Surprise's methods."""
    import pandas as pd
    from surprise import Dataset, Reader

    scale = train.scale
    frame = pd.DataFrame({"u": train.user_ids, "i": train.item_ids, "r": train.values})
    reader = Reader(rating_scale=(scale.low, scale.high))
    model = make().fit(Dataset.load_from_df(frame, reader).build_full_trainset())
    rows = zip(test.user_ids.tolist(), test.item_ids.tolist(), test.values.tolist(), strict=True)
    found = [model.predict(user, item).est - value for user, item, value in rows]
    return float(np.mean(np.square(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-100k", choices=["ml-100k", "ml-1m", "douban"])
    chosen = parser.parse_args()
    if chosen.data == "ml-100k":
        train, test = load_split(chosen.data)
    else:
        train, test = load_dataset(chosen.data).hold_out(10, rng=0)
    learning, validation = train.hold_out(10, rng=1)
    best: dict[str, tuple[float, str, Callable[[], Any]]] = {}
    for name, make in candidates(train.n_items):
        begin = time.perf_counter()
        found = error(make, learning, validation)
        print(f"{name}: {found:.4f} held out, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        kind = name.split()[0]
        if kind not in best or found < best[kind][0]:
            best[kind] = found, name, make
    print("| method | MSE over all test ratings |\n|---|---|")
    for _, name, make in best.values():
        print(f"| Surprise, {name} | {error(make, train, test):.4f} |", flush=True)
    ours = min(GRID, key=lambda grid: BiasedMF(*grid, rng=0).fit(learning).score(validation)["mse"])
    print(f"| `biased-mf` {ours} | {BiasedMF(*ours, rng=0).fit(train).score(test)['mse']:.4f} |")
    print(f"| user's own mean | {UserMean().fit(train).score(test)['mse']:.4f} |")


if __name__ == "__main__":
    main()
