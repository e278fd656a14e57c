"""Does one's own choice to share make one's own list better?

    python benchmarks/sharers/own_choice.py                      # ML-100K, 14 seeds
    python benchmarks/sharers/own_choice.py --data ml-1m --seeds 3

A few people are looked at: their own error and lists when nobody shares, when others do and they
hide everything, and when they share in place of as many others. So the number of those who share is
the same, and differences are between the same people on the same test ratings.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lists import find_data


def measure(
    data: str, seed: int, share: float, looked_at: float, level: str
) -> dict[str, list[float]]:
    """Error and NDCG@10 of the people looked at, by who shares."""
    from hdpmf import PrivacySpec, load_dataset, make_model
    from hdpmf.common.privacy.levels import LEVELS

    train, test = load_dataset(data).hold_out(10, rng=seed)
    weights = PrivacySpec().draw(train, rng=seed)
    n = len(weights.users)
    order = np.random.default_rng([seed, 26]).permutation(n)
    few = order[: round(looked_at * n)]
    others = order[len(few) : len(few) + round(share * n)]
    own = test.take(np.isin(test.user_codes, test.users.find(weights.users.ids[few])))
    found = {}
    for name, sharers in (
        ("nobody shares", order[:0]),
        ("others share", others),
        ("they share, too", np.concatenate([others[len(few) :], few])),
    ):
        levels = np.zeros(n, np.int8)
        levels[sharers] = LEVELS.index(level)
        model = make_model("hdp-share", rng=seed).fit(train, weights.with_levels(users=levels))
        found[name] = [model.score(own)["mse"], model.rank(own, 10)["ndcg"]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=14, help="2 or more")
    parser.add_argument("--share", type=float, default=0.09, help="part of people who share")
    parser.add_argument("--looked-at", type=float, default=0.04, help="part of people looked at")
    parser.add_argument("--level", choices=("seen", "open"), default="seen")
    given = parser.parse_args()
    find_data()
    runs = []
    for seed in range(given.seeds):
        runs.append(measure(given.data, seed, given.share, given.looked_at, given.level))
        print(json.dumps({"seed": seed, **runs[-1]}), flush=True)
    for name in runs[0]:
        mse, ndcg = np.mean([run[name] for run in runs], axis=0)
        print(f"{name}: MSE {mse:.4f}, NDCG@10 {ndcg:.4f}")
    change = np.array([np.subtract(run["they share, too"], run["others share"]) for run in runs])
    error = change.std(axis=0, ddof=1) / np.sqrt(len(runs))
    mean = change.mean(axis=0)
    print(
        f"by their own choice (standard error): MSE {mean[0]:+.4f} ({error[0]:.4f}), "
        f"NDCG@10 {mean[1]:+.4f} ({error[1]:.4f})"
    )


if __name__ == "__main__":
    main()
