"""What tests of a device's commands share: the world that it rates, and a run that it paid for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from hdpmf.common.data import synthetic_world
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.store.device_store import DeviceStore

WORLD = synthetic_world(25, 40, 500, rng=2)
TABLE = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
PASSPHRASE = "correct horse battery staple"


def pay(
    path: Path,
    *,
    method: str = "hdp-sum",
    view: str = "sums",
    status: str = "proved",
    run: str = "ab",
) -> None:
    """Note that all ratings were sent to a recommender in a run, for epsilon 0.5 each, or
    without protection.
    """
    with DeviceStore.open(path) as store:
        ratings = store.ratings()
        epsilon = math.inf if status == "none" else 0.5
        common = {
            "recommender": "films.example:9443",
            "run": run * 16,
            "number": 0,
            "method": method,
            "view": view,
            "epsilon": epsilon,
            "status": status,
        }
        store.ledger.note(Entry(**common, action="agreed", words="agreed to the terms"))
        paid = np.full(len(ratings), epsilon)
        store.ledger.charge(
            Entry(**common, action="sent", words="a sum"), ratings, np.arange(len(ratings)), paid
        )
