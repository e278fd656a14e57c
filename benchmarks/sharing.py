"""Those who share help everybody: stars and lists by who shares, beside hdp-sum and hdp-bit.

    python benchmarks/sharing.py                                    # ML-100K, five seeds
    python benchmarks/sharing.py --data ml-1m --who liberal 0.03 0.25
    python benchmarks/sharing.py --data ml-1m --who 0.05:open 0.1:open 0.2:open --seeds 1
    python benchmarks/sharing.py --who active/0.09 inactive/0.09 fans/0.09/Horror   # biased sharers
    python benchmarks/sharing.py --split user-time    # test on each person's last tenth

Ten random test ratings per user (or by time), weights are the paper's, epsilon is 1. WHO is a share
of people at random, ``liberal`` (those of weight 1), ``active/SHARE`` (who rated most),
``inactive/SHARE``, ``fans/SHARE/GENRE`` (of whose ratings most are of a genre), ``half`` (a random
half of the liberal; the other half hides, so that the two can be compared), each with ``:seen`` or
``:open``; ``hdp-sum`` and ``hdp-bit`` are the methods themselves. Results are shown as they come:
of all people, of those who hide everything, and of those who share (for ``half``: the liberal who
hide come last).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np

from hdpmf import PrivacySpec, PrivacyWeights, Ratings, load_dataset, make_model
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.privacy.levels import LEVELS
from lists import find_data

WHO = ["hdp-sum", "0.003", "0.01", "0.03", "liberal", "0.25", "hdp-bit"]


def people(who: str, train: Ratings, weights: PrivacyWeights, seed: int) -> np.ndarray:
    """Return who of the users shares."""
    kind, _, rest = who.partition("/")
    amount, _, genre = rest.partition("/")
    liberal = weights.for_users(train.users) >= 1.0
    generator = np.random.default_rng(seed)
    if kind == "liberal":
        return liberal
    if kind == "half":
        return liberal & (generator.random(train.n_users) < 0.5)
    counts = train.user_counts()
    if kind in ("active", "inactive"):
        score = counts if kind == "active" else -counts
    elif kind == "fans":
        if train.item_table is None:
            raise SystemExit("fans of a genre need an item table")
        features = ItemFeatures.of_table(train.item_table, train.items)
        column = features.matrix[:, features.names.index(f"genre:{genre}")]
        of_genre = np.bincount(train.user_codes, column[train.item_codes], train.n_users)
        score = of_genre / np.maximum(counts, 1)
    else:
        amount, score = kind, generator.random(train.n_users)
    shares = np.zeros(train.n_users, bool)
    shares[np.argsort(-score, kind="stable")[: round(float(amount) * train.n_users)]] = True
    return shares


def measure(data: str, who: str, seed: int, split: str) -> dict[str, Any]:
    """Measure one way of sharing with one seed."""
    ratings = load_dataset(data)
    train, test = (
        ratings.hold_out(10, rng=seed)
        if split == "random"
        else ratings.split_by_time(0.1, per_user=split == "user-time")
    )
    weights = PrivacySpec().draw(train, rng=seed)
    name, _, level = who.partition(":")
    shares = np.zeros(train.n_users, bool)
    method = name if name.startswith("hdp-") else "hdp-share"
    if method == "hdp-share":
        shares = people(name, train, weights, seed)
        weights = weights.with_levels(
            users=np.where(shares, LEVELS.index(level or "seen"), 0).astype(np.int8)
        )
    begin = time.perf_counter()
    model = make_model(method, rng=seed, n_threads=1).fit(train, weights)
    row = {"who": who, "seed": seed, "people": int(shares.sum()), "blend": model.facts_.blend}
    row["seconds"] = time.perf_counter() - begin
    others = ~shares
    if name == "half":
        others = ~shares & (weights.for_users(train.users) >= 1.0)
    for group, members in (
        ("all", np.ones(len(shares), bool)),
        ("hidden", others),
        ("share", shares),
    ):
        theirs = test.take(np.flatnonzero(members[test.user_codes]))
        if len(theirs):
            row[f"mse_{group}"] = model.score(theirs)["mse"]
            row[f"ndcg_{group}"] = model.rank(theirs)["ndcg"]
    return row


def summary(who: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    cells = []
    for group in ("all", "hidden", "share"):
        found = [
            (row[f"mse_{group}"], row[f"ndcg_{group}"]) for row in rows if f"mse_{group}" in row
        ]
        if not found:
            cells.append(f"{'-':>17}")
            continue
        mse, ndcg = (statistics.mean(column) for column in zip(*found, strict=True))
        spread = statistics.stdev(pair[1] for pair in found) if len(found) > 1 else 0.0
        cells.append(f"{mse:.4f} {ndcg:.4f} ({spread:.4f})")
    blends = ", ".join(f"{row['blend']:g}" for row in rows)
    n_people = statistics.mean(row["people"] for row in rows)
    return f"{who:22} {n_people:6.0f}  {'  '.join(cells)}  {blends}"


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--who", nargs="*", default=WHO)
    parser.add_argument("--split", choices=("random", "time", "user-time"), default="random")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    find_data()
    rows: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for who in given.who:
            rows.append(measure(given.data, who, seed, given.split))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"data": given.data, "split": given.split, "rows": rows}))
        return
    print(f"{given.data}, {given.split}, {given.seeds} seeds: who, people; MSE NDCG@10 (deviation)")
    print(f"{'':22} {'':6}  {'all':22}  {'hidden':22}  {'who share':22}  blends")
    for who in given.who:
        print(summary(who, [row for row in rows if row["who"] == who]))


if __name__ == "__main__":
    main()
