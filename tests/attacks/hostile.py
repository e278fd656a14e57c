"""What a lying recommender has at hand: real devices with real noise on real stores. `tests.world`
makes its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hdpmf.common.protocol import CatalogueTable
from hdpmf.private.device.policy import Policy
from tests.world import Device, make_store, stars

N_ITEMS = 40
STARS = stars(N_ITEMS)


def device(
    ratings: Mapping[str, float] = STARS,
    *,
    policy: Policy | None = None,
    catalogue: CatalogueTable | None = None,
    path: Any = ":memory:",
    weight: float | None = None,
) -> Device:
    """A person's device with the default policy and real noise; the item table is pinned where
    one is given.
    """
    store = make_store(ratings, policy=policy, path=path)
    if weight is not None:
        store.set_weight(beta=weight)
    if catalogue is not None:
        store.pin_catalogue(catalogue)
    return Device(store)
