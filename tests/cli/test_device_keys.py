"""Keys of a device on the command line: a new passphrase, new keys, a move to another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.private.device.store.device_store import DeviceStore

from .conftest import Call

OLD, NEW = "correct horse battery staple", "a longer sentence that nobody has heard"


pytestmark = pytest.mark.usefixtures("cheap_passphrases")


def written(path: Path, text: str) -> Path:
    path.write_text(text + "\n")
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return written(tmp_path / "old.txt", OLD)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return written(tmp_path / "new.txt", NEW)


@pytest.fixture
def path(tmp_path: Path, call: Call) -> Path:
    """A plain store that init made."""
    where = tmp_path / "me.hdpmf"
    assert call("device", "init", where, "--name", "mine").code == 0
    return where


def test_a_store_gets_a_passphrase_and_another_one(
    path: Path, call: Call, old: Path, new: Path
) -> None:
    told = call("device", "passphrase", path, "--new-passphrase-file", old)
    assert told.code == 0
    assert "encrypted now" in told.out
    assert "Copies of the file that were made before" in told.err
    assert (
        call("device", "passphrase", path, "--new-passphrase-file", new).code == 5
    )  # the old one is missing
    told = call(
        "device",
        "passphrase",
        path,
        "--passphrase-file",
        old,
        "--new-passphrase-file",
        new,
        "--json",
    )
    assert (
        told.json.items() >= {"store": str(path), "encrypted": True, "was_encrypted": True}.items()
    )
    assert call("device", "status", path, "--passphrase-file", old).code != 0
    assert call("device", "status", path, "--passphrase-file", new).code == 0
    DeviceStore.open(path, passphrase=NEW).close()


def test_a_new_passphrase_is_never_the_one_of_the_environment(
    path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens stores: taken for the new one, it would make a change of nothing to something
    that looks like one.
    """
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", OLD)
    told = call("device", "passphrase", path)
    assert told.code != 0
    assert "--new-passphrase-file" in told.err
    assert not DeviceStore.is_encrypted(path)


def test_a_person_moves_to_another_machine(
    path: Path, call: Call, tmp_path: Path, new: Path
) -> None:
    export, there = tmp_path / "me.export", tmp_path / "there.hdpmf"
    told = call("device", "export", path, export, "--export-passphrase-file", new)
    assert told.code == 0
    assert "Here it is closed" in told.out
    assert "Import it once" in told.err
    refused = call("device", "rate", path, "50", "5")
    assert refused.code != 0
    assert "was moved away" in refused.err
    assert "MOVED AWAY" in call("device", "status", path).out
    assert call("device", "status", path, "--json").json["moved"]["to"] == str(export)
    told = call("device", "import", export, there, "--passphrase-file", new, "--json")
    assert told.json.items() >= {"store": str(there), "export_deleted": True}.items()
    assert not export.exists()
    moved = call("device", "status", there, "--passphrase-file", new, "--json").json
    assert moved["moved"] is None
    assert moved["name"] == "mine"
    assert "--lost" in call("device", "unmove", path).err
    assert "--yes" in call("device", "unmove", path, "--lost").err
    assert (
        call("device", "forget", path, "--everything", "--yes").code == 0
    )  # what is left to do here
    assert not path.exists()


def test_a_move_is_taken_back(path: Path, call: Call, tmp_path: Path, new: Path) -> None:
    export = tmp_path / "me.export"
    assert (
        call("device", "export", path, export, "--export-passphrase-file", new, "--json").code == 0
    )
    told = call("device", "unmove", path, export)
    assert told.code == 0
    assert "can be used again" in told.out
    assert not export.exists()
    assert call("device", "rate", path, "50", "5").code == 0


def test_new_keys_take_the_place_of_the_old_ones(path: Path, call: Call, tmp_path: Path) -> None:
    items, folder = tmp_path / "items.csv", tmp_path / "rec"
    items.write_text("item,title\n7,Seven\n3,Three\n")
    assert call("recommender", "init", folder, "--items", items).code == 0
    before = call(
        "recommender", "enroll", folder, path.with_name("me.hdpmf.card.json"), "--json"
    ).json
    assert "--yes" in call("device", "rotate", path).err
    told = call("device", "rotate", path, "--yes", "--json").json
    assert told["was"] == before["devices"][0]["identity"]
    signed = Path(told["card"])
    assert "one signed card" in call("recommender", "enroll", folder, "--replaces", "mine").err
    assert (
        "no device 'nobody'"
        in call("recommender", "enroll", folder, signed, "--replaces", "nobody").err
    )
    after = call("recommender", "enroll", folder, signed, "--replaces", "mine", "--json").json
    assert [device["identity"] for device in after["devices"]] == [told["identity"]]
    assert after["digest"] != before["digest"]
