"""A new passphrase: all or nothing, and nothing of before is left for the old one."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.layout import COLUMNS
from hdpmf.private.device.store.passphrase import change_passphrase

from .conftest import PASSPHRASE
from .full_store import facts, full_store, kill_points, killed_at

NEW = "a longer sentence that nobody has heard"


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def old(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path, old: str | None) -> Path:
    return full_store(tmp_path / "me", old)


def test_everything_is_there_with_the_new_passphrase_only(path: Path, old: str | None) -> None:
    before = facts(path, old)
    change_passphrase(path, NEW, old=old)
    assert facts(path, NEW) == before
    assert DeviceStore.is_encrypted(path)
    with pytest.raises(PrivacyError, match="passphrase"):
        DeviceStore.open(path, passphrase=old)
    change_passphrase(path, "and another one", old=NEW)  # the lasting key is handed on
    assert facts(path, "and another one") == before


def test_every_table_is_sealed_anew(path: Path, old: str | None) -> None:
    """A table that somebody adds and forgets here would be lost, or open with the old key."""

    def rows() -> dict[str, set[Any]]:
        connection = sqlite3.connect(path)
        found = {one: set(connection.execute(f"SELECT * FROM {one}")) for one in COLUMNS}
        tables = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        connection.close()
        assert tables - {"head", "sqlite_sequence"} == set(COLUMNS)
        return found

    before = rows()
    change_passphrase(path, NEW, old=old)
    after = rows()
    for name in COLUMNS:
        assert len(after[name]) == len(before[name]) > 0
        assert not after[name] & before[name]
    tags = {
        name: [{row[0] for row in which[name]} for which in (before, after)]
        for name in ("user_weights", "ratings")
    }
    assert all(
        not was & now for was, now in tags.values()
    )  # or who has the old key knows what is rated later


def test_nothing_of_before_is_left_beside_it(path: Path, old: str | None) -> None:
    connection = sqlite3.connect(path)
    secrets = [bytes(row[1]) for row in connection.execute("SELECT * FROM ratings")]
    secrets += [bytes(row[1]) for row in connection.execute("SELECT * FROM ledger")]
    secrets += [bytes(row[0]) for row in connection.execute("SELECT value FROM header")]
    connection.close()
    assert all(secret in path.read_bytes() for secret in secrets)
    change_passphrase(path, NEW, old=old)
    written = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert not any(secret in written for secret in secrets)


def test_an_old_copy_stays_an_old_copy(path: Path, old: str | None, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "copy")
    change_passphrase(path, NEW, old=old)
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(StorageError, match="old copy"):
        DeviceStore.open(path, passphrase=old)


@pytest.mark.slow
def test_a_kill_leaves_the_old_one_or_the_new(
    path: Path, old: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, saved = facts(path, old), tmp_path / "saved"
    saved.mkdir()
    for one in (path, path.with_name("me.counter")):
        shutil.copy(one, saved)
    opened: list[str | None] = []

    def change_and_die(number: int) -> int | None:
        for one in tmp_path.glob("me*"):
            one.unlink()
        for one in saved.iterdir():
            shutil.copy(one, tmp_path)
        count = killed_at(number, lambda: change_passphrase(path, NEW, old=old), monkeypatch)
        opened.append(NEW if DeviceStore.is_encrypted(path) and _opens(path, NEW) else old)
        assert facts(path, opened[-1]) == before
        return count

    count = change_and_die(-1)
    assert count is not None
    assert opened == [NEW]
    for number in kill_points(count, 8):
        assert change_and_die(number) is None
    assert opened[1] == old
    assert (
        opened[-3:] == [NEW] * 3
    )  # killed before the counter was written, and while the file was tidied up
    assert opened[1:] == sorted(opened[1:], key=lambda one: one == NEW)


def _opens(path: Path, passphrase: str) -> bool:
    try:
        DeviceStore.open(path, passphrase=passphrase).close()
    except PrivacyError:
        return False
    return True
