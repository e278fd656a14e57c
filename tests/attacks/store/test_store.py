"""Old copies of a device's file that come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.store.device_store import DeviceStore

from .used_store import change, spend


def test_an_old_copy_is_refused(path: Path, passphrase: str | None, tmp_path: Path) -> None:
    """A store that was rolled back had forgotten what was spent, and spent it again."""
    shutil.copy(path, tmp_path / "backup")
    with DeviceStore.open(path, passphrase=passphrase) as store:
        spend(store)
        left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    shutil.copy(path, tmp_path / "newest")
    shutil.copy(tmp_path / "backup", path)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"old copy: 1 changes were made since; .* --old-copy"
        ):
            DeviceStore.open(path, passphrase=passphrase)
    shutil.copy(tmp_path / "newest", path)
    with DeviceStore.open(path, passphrase=passphrase) as store:
        assert np.array_equal(
            store.ledger.remaining(store.ratings(), store.weights(), store.policy), left
        )
    shutil.copy(tmp_path / "backup", path)
    with DeviceStore.open(path, passphrase=passphrase, old_copy=True) as store:
        assert len(store.ledger.entries()) == 2
    with DeviceStore.open(path, passphrase=passphrase) as store:  # the owner has said so once
        store.rate("item 01", 3.0)


def test_a_copy_without_its_counter_is_refused(
    path: Path, passphrase: str | None, tmp_path: Path
) -> None:
    counter, moved = path.with_name("me.hdpmf.counter"), tmp_path / "elsewhere"
    shutil.copy(path, moved)
    with pytest.raises(StorageError, match="has lost its counter"):
        DeviceStore.open(moved, passphrase=passphrase)
    for spoiled in (b"", b'{"store":"","commits":0}'):
        moved.with_name("elsewhere.counter").write_bytes(spoiled)
        with pytest.raises(StorageError, match="has lost its counter"):
            DeviceStore.open(moved, passphrase=passphrase)
    shutil.copy(counter, moved.with_name("elsewhere.counter"))
    with DeviceStore.open(moved, passphrase=passphrase) as store:
        store.destroy()
    assert not moved.with_name("elsewhere.counter").exists()
    DeviceStore.create(moved).close()


def test_a_policy_does_not_come_back_with_a_copy_from_before_anything_was_sent(
    passphrase: str | None, tmp_path: Path
) -> None:
    """A store that had spent nothing was taken without its counter, with the policy of before."""
    path, counter = tmp_path / "me", tmp_path / "me.counter"
    with DeviceStore.create(path, passphrase=passphrase) as store:
        store.rate("film", 3.0)
    shutil.copy(path, tmp_path / "backup")
    with DeviceStore.open(path, passphrase=passphrase) as store:
        store.set_policy(msgspec.structs.replace(store.policy, epsilon=0.1))
    shutil.copy(tmp_path / "backup", path)
    for spoil in (counter.unlink, lambda: counter.write_bytes(b"")):
        spoil()
        with pytest.raises(StorageError, match="has lost its counter"):
            DeviceStore.open(path, passphrase=passphrase)


def test_a_new_store_whose_counter_was_not_written_opens(
    tmp_path: Path, passphrase: str | None
) -> None:
    """Who was killed when the store had just been made has nothing to lose."""
    DeviceStore.create(tmp_path / "me", passphrase=passphrase).close()
    (tmp_path / "me.counter").unlink()
    DeviceStore.open(tmp_path / "me", passphrase=passphrase).close()
    assert (tmp_path / "me.counter").exists()


def test_a_store_of_a_newer_version_is_refused(path: Path, passphrase: str | None) -> None:
    change(path, "PRAGMA user_version = 999")
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        DeviceStore.open(path, passphrase=passphrase)
