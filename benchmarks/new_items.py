"""Items that came after training: the error on their ratings, and the order of lists among them.

    python benchmarks/new_items.py --data ml-100k ml-1m

A fifth of the items, drawn at random, is held out of training with all its ratings. Then
``model.update(items=...)`` brings them back, without a rating: with nothing but their ids, and with
genres, years and titles. The trivial baseline of ratings is each user's own mean, which an item
gets that a model does not know; that of lists is chance, 0.5: an item that the user rates 4 or
higher comes before another of the new ones so often (the area under the ROC curve, mean over
users). Means over three draws; weights are the paper's groups.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import numpy as np

from hdpmf import ItemTable, PrivacySpec, Ratings, load_dataset, make_model

LIKED = 4.0


def order_among(model: Any, held: np.ndarray, test: Ratings) -> float:
    """Return how often a liked new item comes before another new one, mean over users."""
    liked = test.values >= LIKED
    users = model.devices_.users.find(test.user_ids[liked])
    items = np.searchsorted(held, test.item_ids[liked])
    found = []
    everyone = np.unique(users[users >= 0])
    for some in np.array_split(everyone, max(1, len(everyone) // 500)):
        scores = model._order().scores(some)[:, model.catalogue_.items.find(held)]
        for own, user in zip(scores, some.tolist(), strict=True):
            mine = np.zeros(len(held), bool)
            mine[items[users == user]] = True
            before = own[mine][:, None] - own[~mine]
            found.append(float((before > 0).mean() + 0.5 * (before == 0).mean()))
    return float(np.mean(found))


def measure(data: Ratings, method: str, seed: int) -> list[float]:
    """Return errors (own mean, placed by nothing, placed by features), and both orders."""
    if data.item_table is None:
        raise SystemExit(f"{data.name} has no item table")
    rng = np.random.default_rng(seed)
    held = np.sort(rng.choice(data.items.ids, data.n_items // 5, replace=False))
    new = np.isin(data.item_ids, held)
    train, test = data.take(~new).compact(), data.take(new).compact()
    table = data.item_table.select(train.items.ids)
    model = make_model(method, rng=seed).fit(
        train, PrivacySpec().draw(train, rng=seed), items=table
    )
    n = len(held)
    ids_alone = ItemTable.build(held, [""] * n, [()] * n, [None] * n)
    found = [float(model.score(test)["mse"])]
    placed = [
        copy.deepcopy(model).update(items=items)
        for items in (ids_alone, data.item_table.select(held))
    ]
    found += [float(each.score(test)["mse"]) for each in placed]
    return found + [order_among(each, held, test) for each in placed]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["ml-100k"])
    parser.add_argument("--methods", nargs="+", default=["hdp-sum", "hdp-bit", "mf", "biased-mf"])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print("data method | mse: own mean, ids alone, features | order: ids alone, features")
    for name in arguments.data:
        data = load_dataset(name)
        for method in arguments.methods:
            found = np.mean([measure(data, method, seed) for seed in range(arguments.seeds)], 0)
            print(name, method, "|", *(f"{number:.3f}" for number in found), flush=True)


if __name__ == "__main__":
    main()
