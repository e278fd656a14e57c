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

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.federation import CatalogueTable
from hdpmf.errors import (
    ConfigError,
    HdpmfError,
    PrivacyError,
    ProtocolError,
    RatingsError,
    SecureSumError,
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
    store.runs.put_reply(RUN, 1, b"digest", b"reply")
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
        assert again.runs.reply_to(RUN, 1, b"digest") == b"reply"
        assert again.encrypted == (passphrase is not None)


def test_only_the_owner_can_read_any_of_the_files(store: DeviceStore, path: Path) -> None:
    store.rate("a-known-thing", 2.0)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == {f"me.hdpmf{ending}": 0o600 for ending in ("", "-wal", "-shm", ".counter")}


def test_a_file_that_others_could_read_is_closed_to_them(
    store: DeviceStore, path: Path, passphrase: str
) -> None:
    store.close()
    path.chmod(0o644)
    DeviceStore.open(path, passphrase=passphrase).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_encrypted_file_shows_nothing(path: Path, table: CatalogueTable) -> None:
    store = DeviceStore.create(path, passphrase=PASSPHRASE, policy=whole_life_policy())
    fill(store, table)
    charge_all(store, words="very telling words")
    store.runs.save(RUN, b"the user's vector")
    store.runs.put_reply(RUN, 0, b"digest", b"what was answered")
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
        lambda: store.rate("quiet-romance", 4.0, user="somebody"),
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
        "somebody",
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


def test_a_passphrase_for_a_plain_store_is_refused(path: Path) -> None:
    DeviceStore.create(path).close()
    assert not DeviceStore.is_encrypted(path)
    with pytest.raises(ConfigError, match="not encrypted"):
        DeviceStore.open(path, passphrase="something")
    with pytest.raises(ConfigError, match="empty"):
        DeviceStore.create(path.with_name("other"), passphrase="")


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


def test_a_newer_file_is_refused(path: Path) -> None:
    DeviceStore.create(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="newer"):
        DeviceStore.open(path)


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
    except (StorageError, ConfigError, PrivacyError, SecureSumError):
        return
    assert after == before  # records cannot be changed unnoticed


def test_truncated_is_damaged(store: DeviceStore, path: Path, passphrase: str | None) -> None:
    store.close()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StorageError, match="damaged"):
        DeviceStore.open(path, passphrase=passphrase)


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


def test_ratings_change_go_and_come_back(store: DeviceStore) -> None:
    store.rate("zombie-opera", 2.0)
    store.remove("film-of-shame")
    assert [(one.item, one.value) for one in store.records()] == [
        ("quiet-romance", 4.5),
        ("zombie-opera", 2.0),
    ]
    assert len(store.ratings()) == 2
    store.remove("quiet-romance")
    store.remove("zombie-opera")
    assert len(store.ratings()) == 0
    assert store.ratings().n_items == 5
    assert len(store.weights().for_ratings(store.ratings())) == 0


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


def test_whole_number_ids(path: Path) -> None:
    world = synthetic_world(20, 30, 300, rng=1)
    store = DeviceStore.create(path, users=20)
    store.add(world)
    store.pin_catalogue(catalogue_table(world.items, world.scale, world.item_table))
    found = store.ratings()
    assert found.items == world.items
    ours = {
        (u, i): v
        for u, i, v in zip(map(str, world.user_ids), world.item_ids, world.values, strict=True)
    }
    assert ours == {
        (u, i): v for u, i, v in zip(found.user_ids, found.item_ids, found.values, strict=True)
    }


def test_weights_in_bulk(path: Path) -> None:
    world = synthetic_world(6, 10, 40, rng=1)
    store = DeviceStore.create(path, users=6)
    store.add(world)
    store.pin_catalogue(catalogue_table(world.items, world.scale))
    rng = np.random.default_rng(0)

    def held() -> dict[tuple[str, int], float]:
        ratings = store.ratings()
        return dict(
            zip(
                zip(ratings.user_ids, ratings.item_ids, strict=True),
                store.weights().for_ratings(ratings),
                strict=True,
            )
        )

    def given(weights: PrivacyWeights) -> dict[tuple[str, int], float]:
        keys = zip(map(str, world.user_ids), world.item_ids, strict=True)
        return dict(zip(keys, weights.for_ratings(world), strict=True))

    product = PrivacyWeights.from_parts(
        world, rng.uniform(0.1, 1, world.n_users), rng.uniform(0.1, 1, world.n_items)
    )
    store.set_weights(product, world)
    assert held() == pytest.approx(given(product))
    even = PrivacyWeights.uniform(world)
    store.set_weights(even, world)
    assert held() == given(even)
    single = PrivacyWeights.per_rating(world, rng.uniform(0.1, 1, len(world)))
    store.set_weights(single, world)
    assert held() == given(single)


def test_no_more_users_than_it_was_made_for(path: Path) -> None:
    store = DeviceStore.create(path, users=2)
    store.rate("x", 1.0, user="one")
    store.rate("x", 1.0, user="two")
    with pytest.raises(RatingsError, match="2 users"):
        store.rate("x", 1.0, user="three")
    with pytest.raises(ConfigError, match="1 user"):
        DeviceStore.create(path.with_name("other"), users=0)


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


def test_the_roster_has_this_device_on_it(store: DeviceStore) -> None:
    others = [DeviceIdentity.generate().public for _ in range(3)]
    assert store.roster is None
    with pytest.raises(SecureSumError, match="not on the roster"):
        store.pin_roster(others, (1, 1, 1))
    with pytest.raises(ProtocolError, match="number of users"):
        store.pin_roster([*others, store.identity.public], (1, 1, 1, 7))
    with pytest.raises(ProtocolError, match="1 or more"):
        store.pin_roster([*others, store.identity.public], (1, 0, 1, 1))
    made = store.pin_roster([*others, store.identity.public], (4, 1, 1, 1))
    found = store.roster
    assert found is not None
    assert found.roster.digest == made.roster.digest
    assert found.users == (4, 1, 1, 1)


def test_replies_of_earlier_jobs_go(store: DeviceStore) -> None:
    store.runs.put_reply(RUN, 0, b"a", b"0a")
    store.runs.put_reply(RUN, 0, b"b", b"0b")
    store.runs.put_reply(OTHER, 0, b"a", b"other")
    assert store.runs.reply_to(RUN, 0, b"a") == b"0a"
    with pytest.raises(
        StorageError, match="UNIQUE"
    ):  # a second answer to one request must never be made
        store.runs.put_reply(RUN, 0, b"a", b"again")
    store.runs.put_reply(RUN, 1, b"a", b"1a")
    assert store.runs.reply_to(RUN, 0, b"a") is None
    assert store.runs.reply_to(RUN, 1, b"a") == b"1a"
    assert store.runs.reply_to(OTHER, 0, b"a") == b"other"
    store.runs.save(RUN, b"one")
    store.runs.save(OTHER, b"two")
    store.runs.save(RUN, b"three")
    assert (store.runs.load(OTHER), store.runs.load(RUN)) == (b"two", b"three")
    store.runs.drop(RUN)
    assert (store.runs.load(RUN), store.runs.reply_to(RUN, 1, b"a")) == (None, None)
    assert store.runs.load(OTHER) == b"two"


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


def test_another_command_changes_what_this_one_sees(
    store: DeviceStore, path: Path, passphrase: str | None
) -> None:
    assert len(store.ratings()) == 3
    with DeviceStore.open(path, passphrase=passphrase) as other:
        other.rate("a-known-thing", 1.0)
    assert len(store.ratings()) == 4


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
        plan=None,
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


def test_in_memory_is_the_same_without_a_file(table: CatalogueTable, tmp_path: Path) -> None:
    store = DeviceStore.create(":memory:", policy=whole_life_policy())
    fill(store, table)
    charge_all(store)
    assert len(store.ratings()) == 3
    assert store.fingerprint == known_items(table).fingerprint
    with pytest.raises(PrivacyError):
        charge_all(store)
    second = DeviceStore.create(":memory:")
    second.pin_catalogue(msgspec.structs.replace(table))
    assert second.pinned_catalogue is store.pinned_catalogue  # thousands of devices share one
    third = DeviceStore.create(":memory:")
    with suppress(_HalfwayError), third.transaction():
        third.pin_catalogue(table)
        raise _HalfwayError
    assert third.pinned_catalogue is None
