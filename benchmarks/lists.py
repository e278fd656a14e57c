"""Lists of ten: NDCG and recall of every way to make them, private or not, by several seeds.

    python benchmarks/lists.py                     # ML-100K, five seeds
    python benchmarks/lists.py --data ml-1m --jobs 2 --seeds 5
    python benchmarks/lists.py --data ml-1m --gpu  # the autoencoder on a GPU

Ten ratings per user are held out; relevant are those in the top quarter of the scale; candidates are all items with a
training rating that the user has not rated. Weights are the paper's, epsilon is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics

from joblib import Parallel, delayed

WAYS: dict[str, tuple[str, dict[str, object], str]] = {
    "hdp-bit, EASE": ("hdp-bit", {}, "paper"),
    "hdp-bit, iALS": ("hdp-bit", {"list_model": "ials"}, "paper"),
    "hdp-bit, BPR": ("hdp-bit", {"list_model": "bpr"}, "paper"),
    "hdp-bit, autoencoder": ("hdp-bit", {"list_model": "neural"}, "paper"),
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
    "neural": ("neural", {}, "paper"),
}


def measure(data: str, way: str, seed: int, gpu: bool) -> dict[str, object]:
    """One cell and seed."""
    from hdpmf import PrivacySpec, PrivacyWeights, load_dataset, make_model

    method, options, wishes = WAYS[way]
    train, test = load_dataset(data).hold_out(10, rng=seed)
    weights = PrivacySpec().draw(train, rng=seed) if wishes == "paper" else PrivacyWeights.uniform(train)
    neural = "neural" in (method, options.get("list_model"))
    model = make_model(method, rng=seed, **options, **({"on": "gpu"} if gpu and neural else {}))
    found = model.fit(train, weights).rank(test)
    lists = getattr(model, "lists_", None)
    size = None if lists is None else lists.n_bytes
    return {"way": way, "seed": seed, "ndcg": found["ndcg"], "recall": found["recall"], "bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = Parallel(given.jobs)(
        delayed(measure)(given.data, way, seed, given.gpu) for way in given.ways for seed in range(given.seeds)
    )
    if given.json:
        print(json.dumps({"data": given.data, "rows": rows}))
        return
    print(f"{given.data}, {given.seeds} seeds: NDCG@10 (deviation), recall@10, what a device holds")
    for way in given.ways:
        of_way = [row for row in rows if row["way"] == way]
        ndcg = [row["ndcg"] for row in of_way]
        spread = f"({statistics.stdev(ndcg):.4f})" if len(ndcg) > 1 else ""
        size = of_way[0]["bytes"]
        held = "" if size is None else f"{size / 1e6:.2f} MB"
        recall = statistics.mean(row["recall"] for row in of_way)
        print(f"{way:22} {statistics.mean(ndcg):.4f} {spread} {recall:.4f}  {held}")


if __name__ == "__main__":
    main()
