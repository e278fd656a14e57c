"""A small world for device stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.protocol import CatalogueTable
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.store import encryption
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import whole_life_policy

PASSPHRASE = "correct horse battery staple"
SECRET_ITEMS = ("film-of-shame", "quiet-romance", "zombie-opera")


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretching a passphrase is slow on purpose; tests are not the ones to be slowed down."""
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)


@pytest.fixture
def table() -> CatalogueTable:
    """Five items, of which three are in the stores' ratings."""
    return CatalogueTable(
        ids=("a-known-thing", *SECRET_ITEMS, "zz-another"),
        integer_ids=False,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=0.5,
        titles=("A", "B", "C", "D", "E"),
        genres=(("drama",), ("drama", "war"), ("war",), (), ("drama",)),
        years=(1990, 1991, None, 1993, 1994),
    )


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    """Both kinds of store."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store goes."""
    return tmp_path / "me.hdpmf"


@pytest.fixture
def store(path: Path, passphrase: str | None, table: CatalogueTable) -> DeviceStore:
    """A store with three ratings."""
    made = DeviceStore.create(path, passphrase=passphrase, policy=whole_life_policy())
    fill(made, table)
    return made


def fill(store: DeviceStore, table: CatalogueTable) -> None:
    """Three ratings, weights and a catalogue."""
    for item, value in zip(SECRET_ITEMS, (1.5, 4.5, 3.5), strict=True):
        store.rate(item, value)
    store.set_weight(beta=0.53125)
    store.set_weight(item="quiet-romance", gamma=0.28125)
    store.pin_catalogue(table)


def entry(**fields: object) -> Entry:
    """An entry about some run."""
    given: dict[str, object] = {
        "recommender": "films.example",
        "run": "ab" * 16,
        "number": 0,
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": 1.0,
        "status": "proved",
        "action": "sent",
        "words": "whole numbers into a sum",
    }
    return Entry(**(given | fields))  # type: ignore[arg-type]


def charge_all(store: DeviceStore, part: float = 1.0, **fields: object) -> None:
    """Let every rating pay this part of its budget."""
    ratings = store.ratings()
    epsilons = store.weights().for_ratings(ratings) * store.policy.epsilon * part
    store.ledger.charge(entry(**fields), ratings, np.arange(len(ratings)), epsilons)


def damage(store: DeviceStore, table: str) -> None:
    """Make the rows of a table unreadable, although the file is whole."""
    with store.transaction():
        for tag, number in store._database.execute(f"SELECT tag, number FROM {table}"):
            values = (tag, number, b"\xc1")
            store._database.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", values)
