"""The store keeps what it was given, privately, and says clearly what is wrong with a file."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.errors import (
    ConfigError,
    HdpmfError,
    PrivacyError,
    ProtocolError,
    RatingsError,
    StorageError,
)
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import HiddenItem, LocalModel
from tests.world import whole_life_policy

from .conftest import PASSPHRASE, SECRET_ITEMS, charge_all, fill

RUN, OTHER = b"r" * 16, b"s" * 16


class _HalfwayError(Exception):
    """Something went wrong inside a transaction."""


def test_everything_is_there_after_opening_again(
    store: DeviceStore, path: Path, passphrase: str | None
) -> None:
    store.change_device(last_recommender="films.example:443")
    store.runs.save(RUN, b"state")
    store.runs.put_part(RUN, b"digest", b"reply")
    identity, fingerprint = store.identity.public, store.fingerprint
    store.close()
    with DeviceStore.open(path, passphrase=passphrase) as again:
        ratings = again.ratings()
        assert dict(zip(ratings.item_ids.tolist(), ratings.values.tolist(), strict=True)) == {
            "film-of-shame": 1.5, "quiet-romance": 4.5, "zombie-opera": 3.5,
        }  # fmt: skip
        assert ratings.n_items == 5
        assert np.allclose(
            again.weights().for_ratings(ratings), [0.53125, 0.53125 * 0.28125, 0.53125]
        )
        assert again.identity.public == identity
        assert again.fingerprint == fingerprint
        assert again.device.last_recommender == "films.example:443"
        assert again.tables.hidden_items.rows() == []
        assert again.runs.load(RUN) == b"state"
        assert again.runs.get_part(RUN, b"digest") == b"reply"
        assert again.encrypted == (passphrase is not None)


def test_only_the_owner_can_read_any_of_the_files(store: DeviceStore, path: Path) -> None:
    store.rate("a-known-thing", 2.0)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == {f"me.hdpmf{ending}": 0o600 for ending in ("", "-wal", "-shm", ".counter")}


def test_an_encrypted_file_shows_nothing(path: Path, table: CatalogueTable) -> None:
    store = DeviceStore.create(path, passphrase=PASSPHRASE, policy=whole_life_policy())
    fill(store, table)
    charge_all(store, words="very telling words")
    store.runs.save(RUN, b"the user's vector")
    store.runs.put_part(RUN, b"digest", b"what was answered")
    store.change_device(last_recommender="films.example")
    written = b"".join(one.read_bytes() for one in path.parent.iterdir())
    secrets = [item.encode() for item in SECRET_ITEMS] + [
        b"very telling words",
        b"the user's vector",
    ]
    secrets += [
        b"what was answered",
        b"films.example",
        PASSPHRASE.encode(),
        store.identity.secret_bytes(),
    ]
    secrets += [
        np.array(number, kind).tobytes()
        for number in (1.5, 4.5, 0.53125, 0.28125)
        for kind in (">f8", "<f8")
    ]
    # 1.5 is 3ff8 and zeros; eight bytes do not come up by chance in 100 KB of ciphertext.
    assert [secret for secret in secrets if secret in written] == []


def test_a_plain_file_would_have_failed_that_test(path: Path, table: CatalogueTable) -> None:
    fill(DeviceStore.create(path), table)
    written = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert all(item.encode() in written for item in SECRET_ITEMS)
    assert np.array(4.5, ">f8").tobytes() in written


def test_nothing_private_in_what_is_printed(
    store: DeviceStore, path: Path, passphrase: str | None
) -> None:
    charge_all(store, 0.5)
    said = [
        repr(one)
        for one in (
            store,
            store.ledger,
            store.ledger.entries(),
            store.records(),
            store.ratings(),
            store.weights(),
            store.pinned_catalogue,
            store.identity,
        )
    ]
    for refused in (
        lambda: store.rate("film-of-shame", 4.6875),
        lambda: store.rate("film-of-shame", float("nan")),
        lambda: store.remove("a-known-thing"),
        lambda: store.set_weight(beta=1.71875),
        lambda: charge_all(store, 0.71875),
    ):
        with pytest.raises(HdpmfError) as caught:
            refused()
        said.append(str(caught.value))
    text = " ".join(said)
    for private in (
        *SECRET_ITEMS,
        "a-known-thing",
        "4.6875",
        "1.71875",
        "0.53",
        "0.28",
        "1.5",
        "4.5",
    ):
        assert private not in text, private


def test_a_wrong_or_missing_passphrase_is_said(path: Path) -> None:
    DeviceStore.create(path, passphrase=PASSPHRASE).close()
    assert DeviceStore.is_encrypted(path)
    with pytest.raises(PrivacyError, match="wrong"):
        DeviceStore.open(path, passphrase="guess")
    with pytest.raises(PrivacyError, match="encrypted"):
        DeviceStore.open(path)


def test_a_store_is_made_once(path: Path) -> None:
    DeviceStore.create(path).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="exists"):
        DeviceStore.create(path)
    assert path.read_bytes() == before


def test_files_that_are_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no device store"):
        DeviceStore.open(tmp_path / "absent")
    text = tmp_path / "text"
    text.write_text(
        "this is a letter to my aunt, and much longer than a hundred bytes so that it is no header"
        * 20
    )
    with pytest.raises(StorageError, match="not a device store"):
        DeviceStore.open(text)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(StorageError, match="interrupted"):
        DeviceStore.open(empty)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(ConfigError, match="something else"):
        DeviceStore.open(other)
    with pytest.raises(ConfigError, match="memory"):
        DeviceStore.open(":memory:")
    with pytest.raises(StorageError, match="cannot make"):
        DeviceStore.create(tmp_path / "no-such-folder" / "store")


@pytest.mark.parametrize("where", [0.02, 0.2, 0.4, 0.6, 0.8, 0.97])
def test_damage_is_found_and_never_crashes(
    store: DeviceStore, path: Path, passphrase: str | None, where: float
) -> None:
    for number in range(60):
        store.tables.hidden_items.put(HiddenItem(item=f"thing {number}" + "x" * 400))
    before = store.records(), store.tables.hidden_items.rows()
    store.close()
    data = bytearray(path.read_bytes())
    at = int(where * len(data))
    data[at : at + 2000] = bytes(2000)
    path.write_bytes(data)
    try:
        with DeviceStore.open(path, passphrase=passphrase) as again:
            after = again.records(), again.tables.hidden_items.rows()
            again.ratings()
    except (StorageError, ConfigError, PrivacyError):
        return
    assert after == before  # records cannot be changed unnoticed


def test_sealed_records_cannot_change_places(path: Path) -> None:
    store = DeviceStore.create(path, passphrase=PASSPHRASE)
    store.rate("film-of-shame", 1.0)
    store.rate("quiet-romance", 5.0)
    connection = sqlite3.connect(path)
    (one, first), (other, second) = connection.execute("SELECT tag, sealed FROM ratings").fetchall()
    connection.execute("UPDATE ratings SET sealed = ? WHERE tag = ?", (second, one))
    connection.execute("UPDATE ratings SET sealed = ? WHERE tag = ?", (first, other))
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="tampered"):
        store.records()


def test_ratings_off_the_scale_or_of_unknown_items(path: Path, table: CatalogueTable) -> None:
    store = DeviceStore.create(path)
    store.rate("film-of-shame", 9.0)  # no scale is known yet
    store.rate("not-in-the-catalogue", 3.0)
    store.rate("quiet-romance", 3.0)
    with pytest.raises(ConfigError, match="pinned"):
        store.ratings()
    store.pin_catalogue(table)
    # What is off the scale comes to its end: which ratings take part must not hang on their values.
    assert store.ratings().item_ids.tolist() == ["film-of-shame", "quiet-romance"]
    assert store.ratings().values.tolist() == [5.0, 3.0]
    assert (store.n_left_out, store.n_ratings) == (1, 3)
    for value in (0.5, 5.5, 3.25):
        with pytest.raises(RatingsError, match="scale"):
            store.rate("zombie-opera", value)
    assert store.n_ratings == 3


def test_a_pinned_catalogue_does_not_change(store: DeviceStore, table: CatalogueTable) -> None:
    assert (
        store.pin_catalogue(table).known.fingerprint
        == known_items(table).fingerprint
        == store.fingerprint
    )
    # Neither is in the fingerprint, and a wider scale would change what a rating pays.
    for change in ({"scale_high": 10.0}, {"titles": ("A", "C", "B", "D", "E")}):
        with pytest.raises(ProtocolError, match="pinned"):
            store.pin_catalogue(msgspec.structs.replace(table, **change))
    assert store.pinned_catalogue.table == table
    store.forget(model=True)
    assert store.pinned_catalogue is None
    store.pin_catalogue(msgspec.structs.replace(table, scale_high=10.0))


def test_a_transaction_is_one_commit(
    store: DeviceStore, path: Path, passphrase: str | None
) -> None:
    with suppress(_HalfwayError), store.transaction():
        store.rate("a-known-thing", 1.0)
        charge_all(store, 0.25)
        store.runs.save(RUN, b"state")
        assert len(store.ratings()) == 4
        raise _HalfwayError
    assert len(store.ratings()) == 3
    assert store.ledger.entries() == []
    assert store.runs.load(RUN) is None
    with store.transaction():
        store.rate("a-known-thing", 1.0)
        with store.transaction():
            store.runs.save(RUN, b"state")
    with DeviceStore.open(path, passphrase=passphrase) as again:
        assert len(again.ratings()) == 4
        assert again.runs.load(RUN) == b"state"


_SERVE = """
import sys
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.errors import StorageError
from tests.world import whole_life_policy
try:
    DeviceStore.open(sys.argv[1], serving=True).close()
    print("served")
except StorageError as error:
    print(error)
"""


@pytest.mark.slow
def test_one_process_serves_at_a_time(path: Path) -> None:
    DeviceStore.create(path).close()

    def other() -> str:
        ended = subprocess.run(
            [sys.executable, "-c", _SERVE, path], capture_output=True, text=True, check=True
        )
        return ended.stdout

    with DeviceStore.open(path, serving=True) as serving:
        assert "in use" in other()
        with DeviceStore.open(path) as meanwhile:  # rating and looking are allowed
            meanwhile.rate("x", 1.0)
        assert serving.n_ratings == 1
    assert other() == "served\n"


def test_what_is_forgotten_is_not_in_the_file(path: Path, table: CatalogueTable) -> None:
    store = DeviceStore.create(path)
    fill(store, msgspec.structs.replace(table, ids=("1", "2", "3", "4", "5"), integer_ids=True))
    store.runs.save(RUN, b"the user's vector")
    model = LocalModel(
        recommender="a",
        run="b",
        method="hdp-sum",
        view="sums",
        survey=None,
        numbers=b"factors and vectors",
    )
    store.tables.models.put(model)
    charge_all(store, 0.5)
    store.forget()
    assert (store.runs.load(RUN), store.tables.models.rows(), store.n_ratings) == (None, [], 3)
    store.forget(ratings=True)
    assert store.n_ratings == 0
    assert len(store.ledger.entries()) == 1
    written = b"".join(one.read_bytes() for one in path.parent.iterdir())
    for gone in (
        *(item.encode() for item in SECRET_ITEMS),
        b"the user's vector",
        b"factors and vectors",
    ):
        assert gone not in written
    store.destroy()
    assert list(path.parent.iterdir()) == []
