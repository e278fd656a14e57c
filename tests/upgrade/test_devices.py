"""Stores of older versions come forward, and forget nothing: ratings, weights, pins, and above
all what was spent.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from old_commands import DEVICES, key_of
from old_versions import VERSIONS, content, passphrase, said_before, unpack

from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.store import database as database_module
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.integrity import RowIntegrity

Say = Callable[..., Any]
PLACES = ("", "killed")
BEN = pytest.param("ben", marks=pytest.mark.slow)  # a passphrase takes its time


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return unpack("0.1.0", tmp_path / "old")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("device", [BEN if name == "ben" else name for name in DEVICES])
def test_a_device_says_of_itself_what_it_said_before(
    tmp_path: Path, say: Say, version: str, place: str, device: str
) -> None:
    old = unpack(version, tmp_path / "old")
    store, before = old / place / f"{device}.sqlite", said_before(old / place)[device]
    for _ in range(2):  # when it comes forward, and afterwards
        now, was = say("device", "status", store, *key_of(device, old)), before["status"]
        more = (
            PINNED if was["address"] is None else set()
        )  # 0.2.0 did not say what the owner's page had pinned
        assert as_much(now, was) == was | {name: now[name] for name in CHANGED | more}
        assert now["spent_total"] == pytest.approx(was["spent_total"], rel=1e-12)
        assert now["runs_under_way"] == ([] if version == "0.1.0" else was["runs_under_way"])
    assert was["spent_total"] > 0
    ledger = say("device", "ledger", store, *key_of(device, old))
    assert as_much(ledger["entries"], before["ledger"]["entries"]) == before["ledger"]["entries"]
    assert [run["run"] for run in ledger["runs"]] == [
        run["run"] for run in before["ledger"]["runs"]
    ]
    for person, rated in before["ratings"].items():
        whose = () if person == "me" else ("--user", person)
        listed = say("device", "rate", store, "--list", *whose, *key_of(device, old))["ratings"]
        assert as_much(listed, rated["ratings"]) == rated["ratings"]


def as_much(now: Any, was: Any) -> Any:
    """What is said now, as far as it was said before: a newer version may say more."""
    if isinstance(now, dict) and isinstance(was, dict):
        return {name: as_much(now[name], was[name]) for name in was}
    if isinstance(now, list) and isinstance(was, list) and len(now) == len(was):
        return [as_much(*pair) for pair in zip(now, was, strict=True)]
    return now


CHANGED = {"store", "hdpmf_version", "spent_total", "runs_under_way"}
PINNED = {"address", "authority", "sums", "servers"}


@pytest.mark.parametrize("device", ["ana", BEN])
def test_what_was_spent_cannot_be_spent_again(old: Path, device: str) -> None:
    """Of f00 (weight 1) 0.4 went to the first run and 0.2 to the second; of the person 1.25 in
    all.
    """
    with DeviceStore.open(
        old / "killed" / f"{device}.sqlite", passphrase=passphrase(device)
    ) as store:
        ratings, weights, policy, ledger = (
            store.ratings(),
            store.weights(),
            store.policy,
            store.ledger,
        )
        assert ledger.remaining(ratings, weights, policy).tolist() == pytest.approx(
            [0.4, 0.2, 0.1, 0.8]
        )
        assert ledger.affords(ratings, weights, policy, np.array([0.4, 0.2, 0.1, 0.8])).all()
        assert not ledger.affords(
            ratings, weights, policy, np.array([0.41, 0.21, 0.11, 0.81])
        ).any()
        assert ledger.spent_total() == pytest.approx(1.25)
        charged = ledger.charged()
        assert [float(paid.sum()) for paid in (run.paid for run in charged)] == pytest.approx(
            [0.7, 0.55]
        )
        first = charged[0].entry
        assert ledger.answered(first.recommender, "hdp-sum", ratings).tolist() == [
            True,
            True,
            True,
            False,
        ]
        for room, may in ((1.3, False), (1.4, True)):
            store.set_policy(msgspec.structs.replace(policy, max_total=room))
            chosen, pays = np.array([0]), np.array([0.1])
            if may:
                ledger.charge(msgspec.structs.replace(first, run="ff" * 16), ratings, chosen, pays)
            else:
                with pytest.raises(PrivacyError, match="max_total"):
                    ledger.charge(
                        msgspec.structs.replace(first, run="ff" * 16), ratings, chosen, pays
                    )


def test_nothing_that_was_paid_under_0_1_0_is_given_back(old: Path) -> None:
    with DeviceStore.open(old / "killed" / "ana.sqlite") as store:
        store.forget()
        assert store.ledger.spent_total() == pytest.approx(1.25)


@pytest.mark.parametrize("device", ["ana", BEN])
def test_killed_while_it_comes_forward_it_is_old_or_new(
    old: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copies = old / "killed" / f"{device}.sqlite", list[Path]()

    def snapshot() -> None:
        """What a kill at this instant would leave on the disk."""
        copy = tmp_path / f"instant-{len(copies)}"
        copy.mkdir()
        for path in store.parent.glob(f"{store.name}*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        copies.append(copy / store.name)

    def around(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            snapshot()
            result = real(*given, **named)
            snapshot()
            return result

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        (RowIntegrity, "adopt"),
        (RowIntegrity, "finish"),
        (RowIntegrity, "_write_counter"),
    ):
        around(owner, name)
    monkeypatch.setattr("hdpmf.private.device.store.device_store.write_header", _watched(snapshot))
    with DeviceStore.open(store, passphrase=passphrase(device)) as opened:
        expected = _told(opened)
    monkeypatch.undo()
    assert len(copies) >= 6
    assert {_schema(copy) for copy in copies} == {1, 3}
    for copy in copies:
        with DeviceStore.open(copy, passphrase=passphrase(device)) as again:
            assert _told(again) == expected


def _watched(snapshot: Callable[[], None]) -> Callable[..., None]:
    from hdpmf.private.device.store.tables import write_header

    def write(*given: Any) -> None:
        snapshot()
        write_header(*given)
        snapshot()

    return write


def _told(store: DeviceStore) -> tuple[Any, ...]:
    entries = [msgspec.structs.asdict(entry) for entry in store.ledger.entries()]
    return (
        store.identity.public,
        store.records(),
        entries,
        store.ledger.spent_total(),
        store.roster,
        store.fingerprint,
    )


def _schema(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def test_a_full_disk_leaves_the_old_store(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = old / "ana.sqlite"
    before = content(old)["ana.sqlite"]

    def full(self: RowIntegrity) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(RowIntegrity, "finish", full)
    with pytest.raises(StorageError, match="no space"):
        DeviceStore.open(store)
    monkeypatch.undo()
    assert _schema(store) == 1
    assert content(old)["ana.sqlite"] == before
    with DeviceStore.open(store) as opened:
        assert opened.ledger.spent_total() == pytest.approx(0.7)


def test_the_tables_change_only_with_the_schema(tmp_path: Path) -> None:
    """See ``test_frozen``; that a new store and one that came forward have the same tables is
    seen here.
    """
    old = unpack("0.1.0", tmp_path / "old") / "ana.sqlite"
    DeviceStore.open(old).close()
    DeviceStore.create(tmp_path / "new.sqlite").close()
    assert _tables(old) == _tables(tmp_path / "new.sqlite")
    assert database_module._KIND.schema == _schema(old)


def _tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {" ".join(str(sql).replace(";", "").split()) for (sql,) in rows}
    finally:
        connection.close()
