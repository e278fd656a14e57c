"""Splits by time, for stars and lists, and what helps there.

    python benchmarks/times.py                              # ML-100K, five seeds
    python benchmarks/times.py --data ml-1m --seeds 3
    python benchmarks/times.py --constants                  # weights of recent ratings

Tested on are each person's last fifth (``user-time``) and the last fifth of all (``time``). Weights
are the paper's, epsilon is 1. Stars: MSE over all test ratings. Lists of ten: NDCG and recall, once
with all ratings alike and once as they are made at the time of the user's first test rating
(``in_time``). Lists are measured for users with a training rating, which with ``time`` are few.

``--constants`` holds out the last fifth of the training part in the same way and never looks at
test ratings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from hdpmf import PrivacySpec, Ratings, load_dataset, make_model
from hdpmf.private.client import recency
from lists import find_data

Row = dict[str, Any]
SPLITS = ("user-time", "time")
RANDOM = ("hdp-bit", "hdp-sum", "biased-mf")
METHODS = (*RANDOM, "ease", "most-popular", "user-mean", "item mean", "global-mean")


def parts(data: str, split: str, within: bool = False) -> tuple[Ratings, Ratings]:
    """Training and test, or the same within the training part."""
    train, test = load_dataset(data).split_by_time(0.2, per_user=split == "user-time")
    return train.split_by_time(0.2, per_user=split == "user-time") if within else (train, test)


def item_mean(train: Ratings, test: Ratings) -> float:
    """The error of each item's mean; of all ratings' mean where an item has none."""
    counts = train.item_counts()
    sums = np.bincount(train.item_codes, train.values, train.n_items)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), train.values.mean())
    return float(np.mean((test.values - means[test.item_codes]) ** 2))


def measure(data: str, split: str, method: str, seed: int) -> Row:
    """One method with one seed."""
    train, test = parts(data, split)
    row: Row = {"data": data, "split": split, "method": method, "seed": seed}
    if method == "item mean":
        return row | {"mse": item_mean(train, test)}
    begin = time.perf_counter()
    options = {"rng": seed} if method in RANDOM else {}
    model = make_model(method, **options).fit(train, PrivacySpec().draw(train, rng=seed))
    row["seconds"] = round(time.perf_counter() - begin, 1)
    if model.predicts_ratings:
        row["mse"] = float(model.score(test)["mse"])
    if model.can_rank:
        for name, in_time in (("", False), ("_in_time", True)):
            found = model.rank(test, in_time=in_time)
            row |= {f"ndcg{name}": found["ndcg"], f"recall{name}": found["recall"]}
            row |= {"users": found["n_users"], "margin": found["ndcg_margin"]}
    return row


def table(rows: list[Row]) -> Iterator[str]:
    """Means over seeds, with deviations where there are several."""
    names = ("mse", "ndcg", "ndcg_in_time", "recall", "recall_in_time")
    keys = list(dict.fromkeys((row["data"], row["split"]) for row in rows))
    for data, split in keys:
        here = [row for row in rows if (row["data"], row["split"]) == (data, split)]
        ranked = next(row for row in here if "users" in row)
        yield f"\n{data}, {split}, lists of {ranked['users']} users (+- {ranked['margin']:.4f})\n"
        yield "| | MSE | NDCG@10 | in time | recall@10 | in time |\n|---|---|---|---|---|---|"
        for method in dict.fromkeys(row["method"] for row in here):
            cells = []
            for name in names:
                values = [row[name] for row in here if row["method"] == method and name in row]
                cell = f"{statistics.mean(values):.4f}" if values else ""
                if len(values) > 1 and "recall" not in name:
                    cell += f" ({statistics.stdev(values):.4f})"
                cells.append(cell)
            yield f"| {method} | " + " | ".join(cells) + " |"


def constants(data: str, seeds: int) -> Iterator[str]:
    """NDCG within training for other weights of recent ratings."""
    grid = {
        "all ratings alike": {"POWER": 0.0, "AFTER_PAUSE": 1.0},
        "in use": {"POWER": recency.POWER},
        **{f"{at:g} seconds": {"SECONDS": at} for at in (1.0, 60.0, 600.0, 3600.0)},
        **{f"power {power:g}": {"POWER": power} for power in (0.25, 0.5, 1.0)},
        **{f"least {least:g}": {"LEAST": least} for least in (0.0, 0.02, 0.1, 0.2)},
        **{f"after a pause {part:g}": {"AFTER_PAUSE": part} for part in (0.25, 0.75, 1.0)},
    }
    for split in SPLITS:
        train, test = parts(data, split, within=True)
        for method in ("hdp-sum", "hdp-bit"):
            models = [
                make_model(method, rng=seed).fit(train, PrivacySpec().draw(train, rng=seed))
                for seed in range(seeds)
            ]
            for name, values in grid.items():
                with patch.multiple(recency, **values):
                    found = [model.rank(test, in_time=True)["ndcg"] for model in models]
                yield f"{data} {split} {method} {name}: {statistics.mean(found):.4f}"


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    find_data()
    if given.constants:
        for line in constants(given.data, given.seeds):
            print(line, flush=True)
        return
    rows: list[Row] = []
    for split in SPLITS:
        for method in given.methods:
            for seed in range(given.seeds if method in RANDOM else 1):
                rows.append(measure(given.data, split, method, seed))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps(rows) if given.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
