"""What fitting its own vector costs one device with 500 ratings: ``python
benchmarks/device_fit.py``.

Processor time, best of ten, on one thread, of the device's whole part of ``hdp-bit`` on a synthetic
world of as many items as ML-1M has: columns from item facts (once per model), and the vector
(whenever a rating is new).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hdpmf import HDPBit, Ratings, synthetic_world
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import device_fit
from hdpmf.common.protocol import encode
from hdpmf.private.client.devices import fit_vectors, ratings_by_user

RATINGS, ITEMS, TIMES = 500, 3_706, 10


def best(work: Callable[[], object]) -> float:
    """Milliseconds."""
    found = []
    for _ in range(TIMES):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return 1e3 * min(found)


def main() -> None:
    world = synthetic_world(n_users=400, n_items=ITEMS, n_ratings=100_000, rng=0)
    facts = HDPBit(rng=0).fit(world).facts_
    table = world.item_table
    features = None if table is None else ItemFeatures.of_table(table, world.items)
    rng = np.random.default_rng(0)
    rated = np.sort(rng.permutation(ITEMS)[:RATINGS]).astype(np.int32)
    stars = rng.integers(1, 6, RATINGS).astype(np.float32)
    person = Ratings(
        IdIndex(np.array([1])),
        world.items,
        np.zeros(RATINGS, np.int32),
        rated,
        stars,
        scale=world.scale,
    )
    by_user = ratings_by_user(person)
    print(f"item facts: {len(encode(facts)) / 1e6:.2f} MB for {ITEMS} items")
    fit = device_fit(facts, features)
    with Workers(1) as workers:
        spent = best(lambda: fit_vectors(fit, by_user, workers))
    columns = best(lambda: device_fit(facts, features))
    print(
        f"{fit.features.shape[1]} columns, made in {columns:.1f} ms; "
        f"vector of {RATINGS} ratings in {spent:.1f} ms"
    )


if __name__ == "__main__":
    main()
