"""hdp-pairs against the person's epsilon: lists, stars and clicks, beside what it is compared with.

    python benchmarks/pairs.py --data ml-100k
    python benchmarks/pairs.py --data ml-1m --jobs 2

Ten ratings per user are held out, as in ``benchmarks/lists.py``; seeds are of splits and of noise.
Everything is hidden, epsilon is a whole person's at delta 1e-5, and both servers' noise is in
every number. ``lists`` spends all of it on lists, ``stars`` has both from one budget, ``clicks``
knows no stars and no features and counts every held-out item. ``first recipe`` is what
eigenvalues cut at the noise's edge give of the same sums; the last column is the mean difference of
``lists`` to it, seed by seed. ``no cap`` is ``lists`` with the cap off. ``hdp-sum`` pays by
rating: a rating's epsilon is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed

from hdpmf import HDPPairs, PrivacyWeights, Ratings, make_model
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.privacy.pairs import PAIR_BITS, limit_of
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.private.client import ranking
from lists import find_data, ratings

WAYS: dict[str, dict[str, Any]] = {
    "lists": {"stars": False},
    "no cap": {"stars": False, "cap": 1},
    "stars": {},
    "clicks": {"features": False},
}
OTHERS = ("user-mean", "most-popular", "hdp-sum", "biased-mf", "ease")


def first_recipe(model: HDPPairs, train: Ratings, seed: int) -> ListModel:
    """What goes together by eigenvalues above the edge of the same run's noise."""
    plan, weights = model.plan(train), PrivacyWeights.uniform(train)
    answer = model.answer(plan, train, weights, SeededNoise(seed, stream=3))
    m, limit = plan.heads, limit_of(PAIR_BITS)
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m)] = answer.pairs / limit
    sizes, directions = np.linalg.eigh(matrix + np.triu(matrix, 1).T)
    edge = 2 * np.sqrt(answer.noises * m) * plan.pairs / limit
    kept = sizes > edge
    shrunk = np.sqrt(sizes[kept] ** 2 - edge**2)
    vectors = directions[:, kept] * np.sqrt(shrunk / (shrunk + edge))
    return ListModel(
        "linear",
        Bytes.of(vectors),
        Bytes.of(vectors / max(float(np.abs(vectors).max(initial=0.0)), 1e-12)),  # counts whole
        Entries.none(m),
        np.zeros(m, np.float32),
        heads=answer.heads.items,
        n_items=plan.items,
    )


def measure(data: str, way: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One cell and seed."""
    table = ratings(data)
    if way == "clicks":
        table = Ratings.from_arrays(table.user_ids, table.item_ids, None, name=table.name)
    train, test = table.hold_out(10, rng=seed)
    row: dict[str, Any] = {"data": data, "way": way, "epsilon": epsilon, "seed": seed}
    if way not in WAYS:
        options = {"rng": seed} if way in ("hdp-sum", "biased-mf", "ease") else {}
        model = make_model(way, **options).fit(train)
    else:
        model = HDPPairs(epsilon, rng=seed, **WAYS[way]).fit(train)
    if model.can_rank:
        row["ndcg"] = model.rank(test)["ndcg"]
    if model.predicts_ratings:
        row["mse"] = model.score(test)["mse"]
    if way == "lists":
        model.lists_ = first_recipe(model, train, seed)
        with patch.object(ranking, "FEW", 0.0):
            row["first"] = model.rank(test)["ndcg"]
    return row


def summary(rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    line = f"{rows[0]['way']:14} {rows[0]['epsilon'] or '':>4}"
    for name in ("ndcg", "mse"):
        found = [row[name] for row in rows if name in row]
        line += f"  {statistics.mean(found):.4f}" if found else "        "
        line += f" ({statistics.stdev(found):.4f})" if len(found) > 1 else "         "
    if "first" in rows[0]:
        gain = [row["ndcg"] - row["first"] for row in rows]
        line += f"  {statistics.mean(gain):+.4f} to the first recipe"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--ways", nargs="*", choices=[*WAYS, *OTHERS], default=[*WAYS, *OTHERS])
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    find_data()
    cells = [
        (way, epsilon)
        for way in given.ways
        for epsilon in (given.epsilons if way in WAYS else [0.0])
    ]
    jobs = (
        delayed(measure)(given.data, way, epsilon, seed)
        for way, epsilon in cells
        for seed in range(given.seeds)
    )
    rows = []
    for row in Parallel(given.jobs, return_as="generator_unordered")(jobs):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(f"{given.data}, {given.seeds} seeds: way, person's epsilon, NDCG@10, MSE (deviations)")
    for way, epsilon in cells:
        print(summary([r for r in rows if r["way"] == way and r["epsilon"] == epsilon]))


if __name__ == "__main__":
    main()
