"""Lists of clicks: a data set's pairs without its stars (docs/lists.md, "Clicks")."""

from __future__ import annotations

import argparse

import numpy as np

from hdpmf import HDPSum, Ratings, load_dataset, make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    stars = load_dataset(asked.data)
    clicks = Ratings.from_arrays(stars.user_ids, stars.item_ids, None, item_table=stars.item_table)
    found: dict[str, list[float]] = {}
    for seed in range(asked.seeds):
        train, test = clicks.hold_out(10, rng=seed)
        models = {
            "hdp-sum": HDPSum(rng=seed),
            "hdp-sum, no features": HDPSum(features=False, rng=seed),
            "private-popular": make_model("private-popular", epsilon=0.75, rng=seed),
            "most-popular": make_model("most-popular"),
            "ease": make_model("ease"),
        }
        for name, model in models.items():
            found.setdefault(name, []).append(model.fit(train).rank(test)["ndcg"])
    for name, values in found.items():
        print(f"{name:22} NDCG@10 {np.mean(values):.4f} ({np.std(values, ddof=1):.4f})")


if __name__ == "__main__":
    main()
