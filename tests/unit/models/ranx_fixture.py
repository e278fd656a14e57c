"""Writes ranx_fixture.json: lists, what is relevant, and what ranx says about them, user by user.

ranx compiles for minutes and brings a dozen packages along, so that it is not installed for tests.
To write the file again, in an environment of its own: ``pip install ranx==0.3.21 && python
tests/unit/models/ranx_fixture.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

NAMES = ("ndcg", "recall", "precision", "map", "mrr", "hit_rate")


def main() -> None:
    from ranx import Qrels, Run, evaluate

    rng = np.random.default_rng(12)
    n_users, n_items = 40, 30
    scores = np.round(rng.standard_normal((n_users, n_items)), 6)
    kinds = [rng.permutation(n_items) for _ in range(n_users)]
    sizes = rng.integers(1, 12, n_users)
    relevant = [sorted(kind[:size].tolist()) for kind, size in zip(kinds, sizes, strict=True)]
    rated = [
        sorted(kind[size : size + 5].tolist()) for kind, size in zip(kinds, sizes, strict=True)
    ]
    names = [f"{user:03}" for user in range(n_users)]  # ranx sorts them
    qrels = Qrels(
        {
            name: {f"{item}": 1 for item in items}
            for name, items in zip(names, relevant, strict=True)
        }
    )
    run = Run(
        {
            name: {
                f"{item}": float(scores[user, item])
                for item in range(n_items)
                if item not in rated[user]
            }
            for user, name in enumerate(names)
        }
    )
    found = {}
    for n in (1, 5, 10, 20):
        values = evaluate(qrels, run, [f"{name}@{n}" for name in NAMES], return_mean=False)
        found[n] = {name: np.asarray(values[f"{name}@{n}"]).tolist() for name in NAMES}
    stored = {"scores": scores.tolist(), "rated": rated, "relevant": relevant, "ranx": found}
    Path(__file__).with_suffix(".json").write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
