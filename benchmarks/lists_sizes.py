"""What a smaller EASE costs: compressed for devices, and approximated for catalogues with many
items.

    python benchmarks/lists_sizes.py                  # ML-100K, one seed
    python benchmarks/lists_sizes.py --data ml-1m --seeds 5 --jobs 2

NDCG@10 by the protocol of ``benchmarks/lists.py``. The error is the size of what scores of training
users are off by, relative to the scores of the whole matrix. Of more than 5,000 items the whole
matrix is not computed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from lists import find_data, ratings


@dataclass
class Uncompressed:
    """An item-item matrix in the place of a model for lists."""

    matrix: Any

    def many(self, own: Any) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores = own @ self.matrix
        return scores if isinstance(scores, np.ndarray) else scores.toarray()

    @property
    def n_bytes(self) -> int:
        """In 8 bits."""
        return self.matrix.size


def variants(presence: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every model, by its name."""
    from hdpmf.untrusted.recommender.lists.training import compress, item_item, train_list_model

    if presence.n_items > 5_000:
        yield "5,000 items", lambda: train_list_model("ease", presence)
        return
    whole = item_item(presence)
    yield "whole", lambda: Uncompressed(whole.matrix)
    for rank, per_item in ((128, 10), (64, 10), (128, 0)):
        yield f"rank {rank} + {per_item}", lambda r=rank, p=per_item: compress(whole, r, p)


def measure(data: str, seed: int) -> list[dict[str, Any]]:
    """All variants of one seed."""
    from hdpmf import make_model
    from hdpmf.untrusted.recommender.lists.training import Presence

    train, test = ratings(data).hold_out(10, rng=seed)
    presence = Presence(train.user_codes, train.item_codes, train.n_users, train.n_items)
    shell = make_model("most-popular", rng=0).fit(
        train
    )  # a model for lists of ours is put into its place
    some = presence.matrix[:: max(1, train.n_users // 500)]
    rows, exact = [], None
    for name, make in variants(presence):
        begin = time.perf_counter()
        shell.lists_ = make()
        seconds = time.perf_counter() - begin
        scores = shell.lists_.many(some)
        exact = scores if name == "whole" else exact
        error = (
            None if exact is None else float(np.linalg.norm(scores - exact) / np.linalg.norm(exact))
        )
        found = {"name": name, "seed": seed, "ndcg": shell.rank(test)["ndcg"], "error": error}
        rows.append(found | {"bytes": shell.lists_.n_bytes, "seconds": round(seconds, 2)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    find_data()
    found = Parallel(given.jobs)(delayed(measure)(given.data, seed) for seed in range(given.seeds))
    if given.json:
        print(json.dumps({"data": given.data, "rows": found}))
        return
    print(f"{given.data}, {given.seeds} seeds: NDCG@10, error of scores, MB in 8 bits")
    for rows in zip(*found, strict=True):
        ndcg = statistics.mean(row["ndcg"] for row in rows)
        error = (
            ""
            if rows[0]["error"] is None
            else f"{statistics.mean(row['error'] for row in rows):.3f}"
        )
        print(f"{rows[0]['name']:32} {ndcg:.4f}  {error:6} {rows[0]['bytes'] / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
