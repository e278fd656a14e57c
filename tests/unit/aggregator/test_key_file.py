"""Keys that can be erased: one file for several processes, changed in place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hdpmf.errors import StorageError
from hdpmf.untrusted.aggregator.sealing import NAME_SIZE, KeyFile


def name(number: int) -> bytes:
    return number.to_bytes(NAME_SIZE, "big")


def test_workers_see_each_others_keys_and_what_was_erased(tmp_path: Path) -> None:
    first, second = KeyFile(tmp_path / "keys"), KeyFile(tmp_path / "keys")
    keys = {number: (first, second)[number % 2].make(name(number)) for number in range(6)}
    assert len(set(keys.values())) == 6
    assert all(first.get(name(n)) == second.make(name(n)) == key for n, key in keys.items())
    first.erase([name(1), name(4), name(99)])
    assert [number for number in range(6) if second.get(name(number)) is None] == [1, 4]
    assert sorted(second.names()) == [name(number) for number in (0, 2, 3, 5)]


def test_an_erased_key_is_overwritten_and_its_place_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    keys = [file.make(name(number)) for number in range(3)]
    size, inode = path.stat().st_size, path.stat().st_ino
    file.erase([name(1)])
    assert [key in path.read_bytes() for key in keys] == [True, False, True]
    new = file.make(name(7))
    assert new not in keys
    assert (path.stat().st_size, path.stat().st_ino) == (size, inode)
    assert path.stat().st_mode & 0o777 == 0o600
    assert KeyFile(path).get(name(2)) == keys[2]


@pytest.mark.parametrize("cut", [1, 40, 79])
def test_a_record_that_a_crash_has_cut_is_free(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "keys"
    key = KeyFile(path).make(name(1))
    whole = path.read_bytes()
    KeyFile(path).make(name(2))
    path.write_bytes(path.read_bytes()[: len(whole) + cut])
    file = KeyFile(path)
    assert (file.get(name(1)), file.get(name(2))) == (key, None)
    new = file.make(name(2))
    assert KeyFile(path).get(name(2)) == new


def test_another_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"something of somebody's" * 10)
    with pytest.raises(StorageError, match="another file"):
        KeyFile(path).make(name(1))
    assert path.read_bytes() == b"something of somebody's" * 10


def test_a_full_disk_is_said_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    key = file.make(name(1))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(
            "hdpmf.untrusted.aggregator.sealing.os.write",
            lambda descriptor, data: write(descriptor, data[:30]),
        )
        with pytest.raises(StorageError, match="the disk is full"):
            file.make(name(2))
    assert (file.get(name(1)), file.get(name(2))) == (key, None)
    new = file.make(name(2))
    again = KeyFile(path)
    assert (again.get(name(1)), again.get(name(2))) == (key, new)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a folder cannot be opened")
def test_a_new_file_is_in_its_folder_before_a_key_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what was sealed by it would be lost with the file, if the machine goes down."""
    synced = []
    monkeypatch.setattr("hdpmf.untrusted.aggregator.sealing._sync_folder", synced.append)
    KeyFile(tmp_path / "keys").make(name(1))
    assert synced == [tmp_path]
    KeyFile(tmp_path / "keys").make(name(2))
    assert synced == [tmp_path]
