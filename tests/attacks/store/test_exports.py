"""Attack 27b: what is done to an export by whoever carries it."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from hdpmf.errors import ConfigError, HdpmfError, StorageError
from hdpmf.private.device.store import transfer
from hdpmf.private.device.store.database import EXPORT_MAGIC
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.transfer import export_store, import_store

from .used_store import PASSPHRASE, facts, used_store

TRAVEL = "only for the journey"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there" / "me"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    (tmp_path / "stick").mkdir()
    store = used_store(tmp_path / "me", PASSPHRASE)
    file = tmp_path / "stick" / "me.export"
    export_store(store, file, TRAVEL, passphrase=PASSPHRASE)
    return file


def pieces(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the magic and the head of an export, and its pieces, all with their lengths."""
    place, found = len(EXPORT_MAGIC), list[bytes]()
    while place < len(data):
        end = place + 4 + int.from_bytes(data[place : place + 4], "big")
        found.append(data[place:end])
        place = end
    return EXPORT_MAGIC + found[0], found[1:]


@pytest.mark.slow
def test_bytes_that_flip_and_files_that_end_early_are_refused(export: Path, there: Path) -> None:
    data, chance = export.read_bytes(), random.Random(3)
    spoiled = [data[: chance.randrange(len(data))] for _ in range(40)]
    spoiled += [data + b"\0", data + data, data[1:], b"", EXPORT_MAGIC]
    for _ in range(80):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        spoiled.append(bytes(flipped))
    for content in spoiled:
        export.write_bytes(content)
        with pytest.raises(HdpmfError):
            import_store(export, there, TRAVEL)
        assert list(there.parent.iterdir()) == []
        assert export.exists()
    export.write_bytes(data)
    import_store(export, there, TRAVEL)


def test_an_export_that_is_not_sealed_is_none(export: Path, there: Path) -> None:
    """Whoever writes one without a passphrase writes any policy and any ledger."""
    cipher = StoreCipher.new()
    for key in (cipher.header(), b"", b"\xc1"):
        head = msgspec.msgpack.encode({"format": 1, "key": key})
        first = msgspec.msgpack.encode({"schema": 4, "commits": 1, "at": ""})
        piece = len(first).to_bytes(4, "big") + first
        sized = [len(part).to_bytes(4, "big") + part for part in (head, piece)]
        export.write_bytes(EXPORT_MAGIC + b"".join(sized))
        with pytest.raises(StorageError, match="damaged"):
            import_store(export, there, TRAVEL)
    assert list(there.parent.iterdir()) == []


def test_an_export_of_a_newer_version_is_refused_and_stays(export: Path, there: Path) -> None:
    data = export.read_bytes()
    for old, new in (
        (b"\xa6format\x01", b"\xa6format\x02"),
        (b"hdpmf export\n", b"hdpmf export\r"),
    ):
        assert data.count(old) == 1
        export.write_bytes(data.replace(old, new))
        with pytest.raises(ConfigError, match=r"newer hdpmf; upgrade|no export"):
            import_store(export, there, TRAVEL)
        assert export.read_bytes() == data.replace(old, new)
    assert list(there.parent.iterdir()) == []


def test_lengths_are_bounded_before_anything_is_read(export: Path, there: Path) -> None:
    head, _ = pieces(export.read_bytes())
    for content in (
        EXPORT_MAGIC + b"\xff\xff\xff\xff" + bytes(5000),
        head + b"\xff\xff\xff\xff" + bytes(5000),
        head + bytes(4),
    ):
        export.write_bytes(content)
        with pytest.raises(StorageError, match="damaged"):
            import_store(export, there, TRAVEL)


def test_a_full_disk_leaves_the_store_and_no_part_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stick").mkdir()
    store = used_store(tmp_path / "me", PASSPHRASE)
    before = facts(store, PASSPHRASE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transfer, "write_export", full)
    with pytest.raises(StorageError, match=r"No space left.*can be used as before"):
        export_store(store, tmp_path / "stick" / "out", TRAVEL, passphrase=PASSPHRASE)
    assert list((tmp_path / "stick").iterdir()) == []
    assert facts(store, PASSPHRASE) == before
