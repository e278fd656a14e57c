"""The tables of a server's database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.errors import StorageError
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from tests.unit.aggregator.server_pair import Pair


def test_tables_change_only_with_their_schema(tmp_path: Path) -> None:
    """Whoever changes tables writes a migration, and the new number and digest here."""
    ServerDatabase(f"sqlite:///{tmp_path / 'sums.sqlite'}").close()
    with closing(sqlite3.connect(tmp_path / "sums.sqlite")) as connection:
        run = connection.execute
        tables = [name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {  # name, type, not null, default and place in the key
            table: run(f"SELECT * FROM pragma_table_info('{table}')").fetchall() for table in tables
        }
        unique = {
            table: sorted(
                run(f"SELECT \"unique\", origin, partial FROM pragma_index_list('{table}')")
            )
            for table in tables
        }
        schema = run("SELECT value FROM facts WHERE name = 'schema'").fetchone()[0]
    text = repr((sorted(columns.items()), sorted(unique.items())))
    assert (schema, sha256(text.encode()).hexdigest()[:16]) == ("6", "9212dc6f20f103a8")


@pytest.mark.parametrize("name", ["", "/sums.sqlite"])
def test_any_thread_may_use_a_connection_that_another_one_made(tmp_path: Path, name: str) -> None:
    with closing(
        ServerDatabase(f"sqlite:///{tmp_path}{name}" if name else "sqlite://")
    ) as database:

        def schema() -> str:
            with database.read() as connection:
                found = connection.execute(sa.text("SELECT value FROM facts"))
                return str(found.scalars().all())

        here = schema()
        for _ in range(3):
            with ThreadPoolExecutor(1) as thread:
                assert thread.submit(schema).result() == here


def test_the_file_and_its_log_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sums.sqlite"
    old = os.umask(0o022)
    try:
        with closing(ServerDatabase(f"sqlite:///{path}")) as database:
            database.claim_role("leader")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        path.chmod(0o644)  # as version 1.0.0 made it
        ServerDatabase(f"sqlite:///{path}").close()
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(("sums.sqlite", "sums.sqlite-shm", "sums.sqlite-wal"), 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


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
        with pytest.raises(StorageError, match="deleted or replaced while the server runs"):
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
