"""The connection to a store's file: threads, transactions within transactions, and what is
undone.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.device_store import DeviceStore


def test_threads_share_a_store(tmp_path: Path) -> None:
    found: list[object] = []

    def work(store: DeviceStore) -> None:
        store.rate("film", 3.0)
        found.append(store.n_ratings)

    with DeviceStore.create(tmp_path / "me.hdpmf") as made:
        made.rate("other", 1.0)
    with DeviceStore.open(tmp_path / "me.hdpmf") as store:
        thread = threading.Thread(target=work, args=(store,))
        thread.start()
        thread.join()
        assert found == [2]
        assert store.n_ratings == 2


def test_an_error_inside_undoes_all_and_is_counted(tmp_path: Path) -> None:
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        database = store._database
        before = database.rollbacks

        def broken() -> None:
            with store.transaction():
                store.rate("film", 3.0)
                with store.transaction():
                    store.rate("other", 1.0)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            broken()
        assert store.n_ratings == 0
        assert database.rollbacks == before + 1
        with store.transaction():
            with pytest.raises(RuntimeError), store.transaction():
                raise RuntimeError
            store.rate("film", 3.0)
        assert store.n_ratings == 1
        assert database.rollbacks == before + 1
        with DeviceStore.open(tmp_path / "me.hdpmf") as other:  # it is committed
            assert other.n_ratings == 1


def test_only_what_is_erased_is_written_into_the_file_at_once(tmp_path: Path) -> None:
    """The -wal is emptied when a rating is removed, and not after every rating since then."""
    path = tmp_path / "me.hdpmf"
    wal = tmp_path / "me.hdpmf-wal"
    DeviceStore.create(path).close()
    with DeviceStore.open(path) as store:
        store.rate("film", 3.0)
        assert wal.stat().st_size > 0
        store.remove("film")
        assert wal.stat().st_size == 0
        store.rate("other", 3.0)
        assert wal.stat().st_size > 0


def test_what_another_connection_changes_is_told(tmp_path: Path) -> None:
    with (
        DeviceStore.create(tmp_path / "me.hdpmf") as store,
        DeviceStore.open(tmp_path / "me.hdpmf") as other,
    ):
        before = store._database.version()
        store.rate("film", 3.0)
        assert store._database.version() == before
        other.rate("other", 3.0)
        assert store._database.version() != before


def test_a_store_in_memory_is_never_opened_and_never_another() -> None:
    with pytest.raises(ConfigError, match="made with create"):
        Database(":memory:")
    made = Database(":memory:", make=True)
    assert made.version() == made.version()
    made.serve()
    assert made._serving is None
    made.close()


def test_only_its_owner_reads_it_and_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "me.hdpmf"
    before = os.umask(0)
    try:
        DeviceStore.create(path).close()
        with closing(Database(path)) as database:
            database.serve()
            database.serve()  # once more does nothing
            for file in (path, tmp_path / "me.hdpmf.lock"):
                assert file.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    path.chmod(0o644)
    with DeviceStore.open(path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_store_that_cannot_be_made_or_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot make"):
        DeviceStore.create(tmp_path / "no" / "such")
    with pytest.raises(ConfigError, match="there is no device store"):
        DeviceStore.open(tmp_path / "no" / "such")


def test_nothing_is_left_of_a_store_that_is_removed(tmp_path: Path) -> None:
    DeviceStore.create(tmp_path / "me.hdpmf").close()
    store = DeviceStore.open(tmp_path / "me.hdpmf", serving=True)
    store.rate("film", 3.0)
    store.destroy()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_was_not_made_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("hdpmf.private.device.store.tables.Table.put", broken)
    with pytest.raises(OSError, match="no space"):
        DeviceStore.create(tmp_path / "me.hdpmf")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="1 user or more"):
        DeviceStore.create(tmp_path / "me.hdpmf", users=0)


def test_a_transaction_that_the_disk_has_undone_is_an_error_and_leaves_the_file_whole(
    tmp_path: Path,
) -> None:
    """SQLite undoes it by itself where the disk is full; somebody inside may have taken no
    notice.
    """
    store = DeviceStore.create(tmp_path / "me.hdpmf")

    def unnoticed() -> None:
        with store.transaction():
            store.rate("film", 3.0)
            store._database._connection.execute("ROLLBACK")

    with pytest.raises(StorageError, match="nothing was written"):
        unnoticed()
    store.rate("other", 1.0)
    store.close()
    with DeviceStore.open(tmp_path / "me.hdpmf") as again:
        assert [record.item for record in again.records()] == ["other"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BlockingIOError(errno.EAGAIN, "taken"), "one device is one process"),
        (OSError(errno.EIO, "the disk is ill"), "cannot lock .*: the disk is ill"),
    ],
)
def test_a_lock_that_is_not_had_is_let_go_and_can_be_had_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    asked: list[int] = []

    def refuse(file: int) -> None:
        asked.append(file)
        raise error

    with DeviceStore.create(tmp_path / "me"):
        pass
    with closing(Database(tmp_path / "me")) as database:
        with monkeypatch.context() as patch:
            patch.setattr("hdpmf.private.device.store.database.lock_file", refuse)
            with pytest.raises(StorageError, match=words):
                database.serve()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(asked[0])
        database.serve()


def test_who_does_not_wait_gets_an_error_while_another_thread_writes(tmp_path: Path) -> None:
    with DeviceStore.create(tmp_path / "me") as store:
        begun, ended = threading.Event(), threading.Event()

        def write() -> None:
            with store.transaction():
                begun.set()
                ended.wait(30.0)

        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(30.0)
        with pytest.raises(StorageError, match="in use"), store.at_once():
            pass
        ended.set()
        thread.join()
        with store.at_once():
            pass


def test_bytes_that_another_process_keeps_in_the_log_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.private.device.store.database._PATIENCE", 0.05)
    path = tmp_path / "me"
    with DeviceStore.create(path):
        pass
    with closing(Database(path)) as database, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
        with pytest.raises(StorageError, match="another process is reading"):
            database.shred()
        reader.execute("ROLLBACK")
        database.shred()
