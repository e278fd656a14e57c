"""Lists of ten for every method: NDCG, recall, coverage, with the hyper-parameters of the paper's evaluation.

``python benchmarks/ranking.py [ml-100k ml-1m ...]`` prints a Markdown table (K = 10, five seeds, solver and rates from
docs/results/csv/table3.csv). What a list is and which test ratings count: docs/experiments.md, "Lists".
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import numpy as np

from hdpmf import PrivacySpec, Ratings, load_dataset, load_split, make_model

ROOT = Path(__file__).resolve().parents[1]
SEEDS = range(5)


def chosen(data: str) -> list[dict[str, str]]:
    """Table III's rows of one data set at K = 10, one per method that can rank."""
    with open(ROOT / "docs" / "results" / "csv" / "table3.csv", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["dataset"] == data and row["factors"] == "10"]
    return [row for row in rows if row["method"] not in ("user-mean", "global-mean")]


def split(data: str, seed: int) -> tuple[Ratings, Ratings]:
    """The splits of the paper's evaluation."""
    return load_split(data) if data == "ml-100k" else load_dataset(data).hold_out(per_user=10, rng=seed)


def main() -> None:
    """Print the table."""
    shared = ROOT.parent / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("HDPMF_DATA", str(shared))
    print("| data | method | epsilon 1 is | NDCG@10 | recall@10 | coverage@10 | MSE |\n|---|---|---|---|---|---|---|")
    for data in sys.argv[1:] or ["ml-100k", "ml-1m"]:
        for row in chosen(data):
            params = {name: float(row[name]) for name in ("learning_rate", "reg") if row[name]}
            found = []
            for seed in SEEDS:
                train, test = split(data, seed)
                weights = PrivacySpec().draw(train, rng=seed)
                model = make_model(row["method"], solver="sequential", rng=seed, **params).fit(train, weights)
                ranks = model.rank(test, n=10)
                found.append([ranks["ndcg"], ranks["recall"], ranks["coverage"], model.score(test)["mse"]])
            means = np.mean(found, axis=0)
            cells = " | ".join([*(f"{one:.4f}" for one in means[:2]), f"{means[2]:.3f}", f"{means[3]:.3f}"])
            print(f"| {data} | {row['label']} | {model.privacy.status} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
