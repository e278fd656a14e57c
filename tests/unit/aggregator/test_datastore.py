"""The tables of a server's database, its file, and copies of the file that are old."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.errors import ConfigError, StorageError
from hdpmf.untrusted.aggregator import datastore
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, payloads, server
from tests.aggregator.postgres import cluster, new_database
from tests.unit.aggregator.server_pair import Pair


def put(database: ServerDatabase) -> None:
    with database.write() as connection:
        row = {"task": 1, "report": secrets.token_bytes(16), "body": bytes(99)}
        connection.execute(payloads.insert(), row)


def check_migrations(url: str) -> None:
    """Whoever changes a table of the statements writes a migration that makes it."""
    ServerDatabase(url).close()
    engine = sa.create_engine(url)
    made = sa.inspect(engine)
    for table in vars(datastore).values():
        if isinstance(table, sa.TableClause):
            names = [column["name"] for column in made.get_columns(table.name)]
            assert names == table.c.keys()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT * FROM alembic_version")).all() == [("1",)]
    engine.dispose()


def test_migrations_make_the_tables(tmp_path: Path) -> None:
    check_migrations(f"sqlite:///{tmp_path / 'x.sqlite'}")


@pytest.mark.slow
def test_migrations_make_the_tables_on_postgresql() -> None:
    with cluster() as url:
        check_migrations(new_database(url, "x"))


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    ServerDatabase(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '999'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        ServerDatabase(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_database_is_of_one_role(tmp_path: Path) -> None:
    with closing(ServerDatabase(f"sqlite:///{tmp_path / 'x.sqlite'}")) as database:
        database.claim_role("leader")
        with pytest.raises(ConfigError, match="of a leader, not of a helper"):
            database.claim_role("helper")


@pytest.mark.parametrize("name", ["", "/sums.sqlite"])
def test_any_thread_may_use_a_connection_that_another_one_made(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}{name}" if name else "sqlite://"
    with closing(ServerDatabase(url)) as database:
        database.claim_role("leader")

        def role() -> str:
            with database.read() as connection:
                return str(connection.execute(sa.select(server.c.role)).scalar_one())

        for _ in range(3):
            with ThreadPoolExecutor(1) as thread:
                assert thread.submit(role).result() == role() == "leader"


def test_the_file_and_its_log_are_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        with closing(ServerDatabase(f"sqlite:///{tmp_path / 'sums.sqlite'}")) as database:
            database.claim_role("leader")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(old)
    del modes["sums.sqlite.counter"]
    assert modes == dict.fromkeys(("sums.sqlite", "sums.sqlite-shm", "sums.sqlite-wal"), 0o600)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_under_a_running_server_confirms_nothing(
    tmp_path: Path, replaced: bool
) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [1])
    path = tmp_path / "leader.sqlite"
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    if replaced:
        (tmp_path / "copy").rename(path)
    for _ in range(2):
        with pytest.raises(StorageError, match="deleted or replaced while the server"):
            pair.upload(task, [2])
    with pytest.raises(StorageError, match="deleted or replaced"):
        pair.leader.check_database()
    assert path.exists() == replaced  # no empty one was made


def test_what_is_committed_while_the_file_goes_is_not_confirmed(tmp_path: Path) -> None:
    with (
        closing(ServerDatabase(f"sqlite:///{tmp_path / 'x.sqlite'}")) as database,
        pytest.raises(StorageError, match="deleted or replaced"),
        database.write(),
    ):
        (tmp_path / "x.sqlite").unlink()


def remove(path: Path) -> None:
    path.unlink()


def restore(path: Path) -> None:
    shutil.copy(path.with_suffix(".old"), path)


@pytest.mark.parametrize(("harm", "words"), [(remove, "is gone"), (restore, "is an old copy")])
def test_an_old_copy_is_refused_until_a_new_epoch_begins(
    tmp_path: Path, harm: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "x.sqlite"
    url = f"sqlite:///{path}"
    with closing(ServerDatabase(url)) as database:
        database.claim_role("leader")
    shutil.copy(path, path.with_suffix(".old"))
    with closing(ServerDatabase(url)) as database:
        put(database)
    newest = path.read_bytes()
    harm(path)
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"{words}.*aggregator epoch"):
            ServerDatabase(url)
    with closing(ServerDatabase(url, restored=True)) as database:
        database.claim_role("leader")
    with pytest.raises(ConfigError, match=words if harm is restore else "is an old copy"):
        ServerDatabase(url)  # opened to begin an epoch, but none has begun
    with closing(ServerDatabase(url, restored=True)) as database:
        with database.write() as connection:
            database.begin_epoch(connection)
        put(database)
    ServerDatabase(url).close()
    path.write_bytes(newest)
    with pytest.raises(ConfigError, match="is an old copy"):
        ServerDatabase(url)


def test_two_copies_of_a_database_begin_different_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = []
    for now in (5_000_000_000, 5_000_000_001):
        monkeypatch.setattr("hdpmf.untrusted.aggregator.datastore.time.time", lambda now=now: now)
        with closing(ServerDatabase(f"sqlite:///{tmp_path / str(now)}")) as database:
            with database.write() as connection:
                row = {"role": "leader", "epoch": 7, "changes": 0}
                connection.execute(server.insert(), row)
                database.begin_epoch(connection)
            with database.read() as connection:
                epochs.append(connection.execute(sa.select(server.c.epoch)).scalar_one())
    assert epochs == [5_000_000_000, 5_000_000_001]
