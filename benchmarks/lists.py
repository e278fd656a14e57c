"""Lists of ten: NDCG and recall of every way to make them, private or not, by several seeds.

    python benchmarks/lists.py                     # ML-100K, five seeds
    python benchmarks/lists.py --data ml-1m --jobs 2 --ways ease ials bpr

Ten ratings per user are held out; relevant are those in the top quarter of the scale; candidates
are all items with a training rating that the user has not rated. Weights are the paper's, epsilon
is 1. Results are shown as they come.

``hdp-bit`` leaves who rated what in plain sight, and its devices put raw ratings into the model for
lists. So the rows ``ease``, ``ials`` and ``bpr`` are also what ``hdp-bit`` with the list model
of that name reaches.

A machine that cannot read the data sets (one with a GPU and no polars, say) takes ``--data
FILE.npz`` with ``users``, ``items`` and ``values``; ``--export FILE.npz`` writes one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed

if TYPE_CHECKING:
    from hdpmf import Ratings

WAYS: dict[str, tuple[str, dict[str, object], str]] = {
    "hdp-bit, EASE": ("hdp-bit", {}, "paper"),
    "hdp-bit, iALS": ("hdp-bit", {"list_model": "ials"}, "paper"),
    "hdp-bit, BPR": ("hdp-bit", {"list_model": "bpr"}, "paper"),
    "hdp-sum": ("hdp-sum", {}, "paper"),
    "hdp-sum, weights 1": ("hdp-sum", {}, "uniform"),
    "hdp-sum, no features": ("hdp-sum", {"features": False}, "paper"),
    "hdpmf": ("hdpmf", {}, "paper"),
    "mf": ("mf", {"solver": "sequential"}, "paper"),
    "most-popular": ("most-popular", {}, "paper"),
    "item-knn": ("item-knn", {}, "paper"),
    "ease": ("ease", {}, "paper"),
    "ials": ("ials", {}, "paper"),
    "bpr": ("bpr", {}, "paper"),
}


def find_data() -> None:
    """The folder of data beside this checkout, where there is one and no other is named."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("HDPMF_DATA", str(shared))


def ratings(data: str) -> Ratings:
    """A data set, or what ``--export`` wrote."""
    from hdpmf import Ratings, load_dataset

    if not data.endswith(".npz"):
        return load_dataset(data)
    with np.load(data) as stored:
        return Ratings.from_arrays(
            stored["users"], stored["items"], stored["values"], scale=tuple(stored["scale"])
        )


def measure(data: str, way: str, seed: int) -> dict[str, Any]:
    """One cell and seed."""
    from hdpmf import PrivacySpec, PrivacyWeights, make_model

    method, options, wishes = WAYS[way]
    train, test = ratings(data).hold_out(10, rng=seed)
    weights = (
        PrivacySpec().draw(train, rng=seed) if wishes == "paper" else PrivacyWeights.uniform(train)
    )
    begin = time.perf_counter()
    model = make_model(method, rng=seed, **options).fit(train, weights)
    lists = getattr(model, "lists_", None)
    seconds = time.perf_counter() - begin
    found = model.rank(test)
    row = {
        "way": way,
        "seed": seed,
        "ndcg": found["ndcg"],
        "recall": found["recall"],
        "seconds": seconds,
    }
    return row | ({} if lists is None else {"bytes": lists.n_bytes, "about": lists.about})


def summary(way: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    ndcg = [row["ndcg"] for row in rows]
    spread = f"({statistics.stdev(ndcg):.4f})" if len(ndcg) > 1 else ""
    held = f"{rows[0]['bytes'] / 1e6:.2f} MB" if "bytes" in rows[0] else ""
    recall = statistics.mean(row["recall"] for row in rows)
    return f"{way:22} {statistics.mean(ndcg):.4f} {spread} {recall:.4f}  {held}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--export", type=Path, help="write the ratings to this file and end")
    given = parser.parse_args()
    find_data()
    if given.export:
        found = ratings(given.data)
        scale = (found.scale.low, found.scale.high)
        np.savez_compressed(
            given.export,
            users=found.user_ids,
            items=found.item_ids,
            values=found.values,
            scale=np.array(scale),
        )
        return
    rows = []
    jobs = (
        delayed(measure)(given.data, way, seed) for way in given.ways for seed in range(given.seeds)
    )
    for row in Parallel(given.jobs, return_as="generator_unordered")(jobs):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"data": given.data, "rows": rows}))
        return
    print(f"{given.data}, {given.seeds} seeds: NDCG@10 (deviation), recall@10, what a device holds")
    for way in given.ways:
        print(summary(way, [row for row in rows if row["way"] == way]))


if __name__ == "__main__":
    main()
