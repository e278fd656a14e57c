"""A store that has spent something, and what somebody who can write its file does to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.attacks.hostile import STARS
from tests.world import table

PASSPHRASE = "correct horse battery staple"


def used_store(path: Path, passphrase: str | None, policy: Policy | None = None) -> Path:
    """Make a store whose ratings have spent a quarter of their budget, twice."""
    with DeviceStore.create(path, passphrase=passphrase, policy=policy) as store:
        for item, value in STARS.items():
            store.rate(item, value)
        store.set_weight(beta=0.5)
        store.pin_catalogue(table())
        spend(store, run="aa" * 16)
        spend(store, run="bb" * 16)
    return path


def spend(store: DeviceStore, run: str = "cc" * 16, part: float = 0.25) -> None:
    """Let every rating pay a part of its budget."""
    ratings = store.ratings()
    entry = Entry(
        recommender="films.example",
        run=run,
        number=0,
        method="hdp-sum",
        view="sums",
        epsilon=0.25,
        status="proved",
        action="sent",
        words="whole numbers into a sum",
    )
    epsilons = store.weights().for_ratings(ratings) * store.policy.epsilon * part
    store.ledger.charge(entry, ratings, np.arange(len(ratings)), epsilons)


@contextmanager
def without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the ledger's triggers away and put them back, as if nothing had been."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    triggers = connection.execute(query).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for _, statement in triggers:
        connection.execute(statement)


def change(path: Path, *statements: str) -> None:
    """Change rows of a store, and leave its schema as it was."""
    connection = sqlite3.connect(path)
    with without_triggers(connection):
        for statement in statements:
            connection.execute(statement)
    connection.commit()
    connection.close()


def facts(path: Path, passphrase: str | None = None) -> object:
    """Return all that a decision about spending reads."""
    with DeviceStore.open(path, passphrase=passphrase) as store:
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
        entries = [(one.run, one.action, one.paid, one.part) for one in store.ledger.entries()]
        return (
            left.tolist(),
            entries,
            store.policy,
            store.scale,
            store.records(),
        )
