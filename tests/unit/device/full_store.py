"""A store with something of everything in it, and processes that die while they work on it."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.protocol import CatalogueTable
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.store import database
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import (
    AgreedTask,
    Consent,
    HiddenItem,
    ItemsApart,
    LocalModel,
    PastItem,
    PastItems,
    Question,
    RecommenderState,
)
from tests import world
from tests.world import whole_life_policy

RUN = b"r" * 16
TABLE = CatalogueTable(
    ids=("10", "20", "30"), integer_ids=True, scale_low=1.0, scale_high=5.0, scale_step=1.0
)


def full_store(path: Path, passphrase: str | None) -> Path:
    """A store with a row in every table; one of its ratings has paid and is gone."""
    with new_device(
        path, name="mine", passphrase=passphrase, policy=whole_life_policy(epsilon=2.0)
    ) as store:
        store.pin_catalogue(TABLE)
        for item, value in (("10", 4.0), ("20", 1.0), ("30", 5.0)):
            store.rate(item, value)
        store.set_weight(beta=0.5, item="20", gamma=0.25)
        spend(store)
        store.remove("30")
        store.runs.save(RUN, b"how far it is")
        store.runs.put_part(RUN, b"request", b"what was answered")
        _fill(store)
    return path


def _fill(store: DeviceStore) -> None:
    """Put a row into every table that has none."""
    tables, question = store.tables, _question()
    model = LocalModel(
        recommender="a",
        run="b",
        method="hdp-sum",
        view="two-servers",
        survey=None,
        numbers=b"facts",
    )
    tables.models.put(model)
    tables.recommender_states.put(RecommenderState(recommender="films.example", until=5))
    tables.agreed_tasks.put(AgreedTask(id=b"t" * 32, end=9))
    tables.questions.put(question)
    tables.consents.put(Consent(asked=question, answer="always"))
    tables.hidden_items.put(HiddenItem(item="30"))
    tables.items_apart.put(ItemsApart(recommender_id=2, numbers={"10": 1}))
    tables.past_items.put(PastItems(items={"40": PastItem(recommender_id=1, title="gone")}))


def _question() -> Question:
    terms = world.terms(TABLE, minimum=3)
    return Question(recommender="films.example", terms=terms)


def spend(store: DeviceStore) -> None:
    """Let every rating pay 0.75 of its weight."""
    ratings = store.ratings()
    entry = Entry(
        recommender="films.example",
        run="ab" * 16,
        number=0,
        method="hdp-sum",
        view="sums",
        epsilon=1.0,
        status="proved",
        action="sent",
        words="numbers",
    )
    epsilons = store.weights().for_ratings(ratings) * 0.75
    store.ledger.charge(entry, ratings, np.arange(len(ratings)), epsilons)


def facts(path: Path, passphrase: str | None) -> object:
    """Everything that is in such a store."""
    with DeviceStore.open(path, passphrase=passphrase) as store:
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
        return (
            left.tolist(),
            store.ledger.entries(),
            store.records(),
            store.policy,
            store.device.name,
            store.runs.load(RUN),
            store.runs.get_part(RUN, b"request"),
            store.identity.public,
            store.fingerprint,
            store.rated.beta,
            store.rated.gammas(),
            {name: table.rows() for name, table in vars(store.tables).items() if name != "device"},
        )


def killed_at(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Run ``act`` in a process that is killed before its n-th statement or file; how many there
    were, if it was not.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as told:
            said = told.read()
        os.waitpid(child, 0)
        return int(said) if said else None
    done = 0

    def tick() -> None:
        nonlocal done
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1

    class Dying(sqlite3.Connection):
        def execute(self, *given: Any) -> sqlite3.Cursor:
            tick()
            return super().execute(*given)

    def dying(name: str) -> None:
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, **named: (tick(), real(*given, **named))[1])

    try:
        connect = sqlite3.connect
        monkeypatch.setattr(
            database.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Dying)
        )
        for name in ("replace", "rename", "unlink", "link"):
            dying(name)
        act()
        os.write(writer, str(done).encode())
    finally:
        os._exit(0)


def kill_points(count: int, last: int) -> list[int]:
    """Where to kill: here and there, and at each of the last statements, where it is decided."""
    return sorted({*range(0, count, 25), *range(max(count - last, 0), count)})
