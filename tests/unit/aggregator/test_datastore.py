"""The tables of a server's database."""

from __future__ import annotations

import os
import secrets
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
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, facts, payloads
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
        with pytest.raises(StorageError, match="deleted, replaced or overwritten while the server"):
            pair.upload(task, [2])
    with pytest.raises(StorageError, match="deleted, replaced or"):
        pair.leader.check_database()
    assert path.exists() == replaced  # no empty one was made


def test_what_is_committed_while_the_file_goes_is_not_confirmed(tmp_path: Path) -> None:
    with (
        closing(ServerDatabase(f"sqlite:///{tmp_path / 'x.sqlite'}")) as database,
        pytest.raises(StorageError, match="deleted, replaced or"),
        database.write(),
    ):
        (tmp_path / "x.sqlite").unlink()


FILES = ("", "-wal", "-shm")


def put(database: ServerDatabase, bodies: int = 1) -> None:
    for _ in range(bodies):
        with database.write() as connection:
            row = {
                "task": 1,
                "report": secrets.token_bytes(16),
                "body": secrets.token_bytes(99_999),
            }
            connection.execute(payloads.insert(), row)


def copy_of(path: Path) -> dict[str, bytes]:
    """Copies of the files that there are, by the end of their names."""
    named = {end: path.with_name(path.name + end) for end in FILES}
    return {end: file.read_bytes() for end, file in named.items() if file.exists()}


def write_over(path: Path, copy: dict[str, bytes], *ends: str) -> None:
    """As ``cp`` does: the file stays, its bytes change."""
    for end in ends:
        path.with_name(path.name + end).write_bytes(copy[end])


def assert_notices(database: ServerDatabase) -> None:
    lost = pytest.raises(StorageError, match="deleted, replaced or overwritten")
    with lost:
        put(database)
    with lost, database.read():
        pass


@pytest.mark.parametrize("ends", [FILES[:1], FILES[:2], FILES, FILES[1:2], FILES[1:]])
@pytest.mark.parametrize("made", ["before a checkpoint", "since the last one", "in a longer log"])
def test_an_old_copy_that_is_written_over_the_file_is_noticed(
    tmp_path: Path, made: str, ends: tuple[str, ...]
) -> None:
    path = tmp_path / "x.sqlite"
    with closing(ServerDatabase(f"sqlite:///{path}")) as database:
        database.take_over()
        put(database, 9 if made == "in a longer log" else 3)
        copy = copy_of(path)
        put(database)
        if made != "since the last one":
            database.empty_log()
            put(database, 3)
        write_over(path, copy, *ends)
        if (made, ends) == ("since the last one", ("",)):
            put(database)  # no page of the file has changed since: it is the same one
        else:
            assert_notices(database)


@pytest.mark.parametrize("copied", ["before the start", "another database", "nothing", "half"])
def test_what_was_no_copy_of_the_running_server_is_noticed(tmp_path: Path, copied: str) -> None:
    path = tmp_path / "x.sqlite"
    other = tmp_path / "other.sqlite"
    for each in (other, path):
        with closing(ServerDatabase(f"sqlite:///{each}")) as database:
            database.take_over()
            put(database)
        oldest = copy_of(path)
        with closing(ServerDatabase(f"sqlite:///{each}")) as database:
            database.take_over()
            put(database, 9)  # more than the running server will have counted
    copy = copy_of(other if copied == "another database" else path)
    write_over(path, oldest, "")
    with closing(ServerDatabase(f"sqlite:///{path}")) as database:
        database.take_over()
        put(database)
        now = copy_of(path)
        size = {"nothing": 0, "half": 50}.get(copied, len(copy[""]))
        write_over(path, {"": copy[""][:size]}, "")
        assert_notices(database)
        write_over(path, now, "")
        assert_notices(database)  # pages may be mixed: it stays refused


def test_a_log_that_loses_what_another_process_wrote_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    url = f"sqlite:///{path}"
    with closing(ServerDatabase(url)) as database, closing(ServerDatabase(url)) as other:
        database.take_over()
        put(database)
        copy = copy_of(path)
        put(other)
        write_over(path, copy, "-wal")
        assert_notices(database)


def test_an_index_of_the_log_that_is_written_over_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(ServerDatabase(f"sqlite:///{path}")) as database:
        database.take_over()
        put(database)
        copy = copy_of(path)
        put(database)
        write_over(path, copy, "-shm")
        assert_notices(database)


@pytest.mark.parametrize("end", FILES[1:])
def test_a_log_that_is_deleted_under_a_running_server_is_noticed(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(ServerDatabase(f"sqlite:///{path}")) as database:
        database.take_over()
        put(database)
        path.with_name(path.name + end).unlink()
        assert_notices(database)


def test_what_is_committed_while_an_old_copy_is_written_is_not_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(ServerDatabase(f"sqlite:///{path}")) as database:
        database.take_over()
        put(database)
        copy = copy_of(path)
        put(database)
        writing = database.write()
        connection = writing.__enter__()
        write_over(path, copy, "-wal")
        connection.execute(facts.insert(), {"name": "x", "value": "y"})
        with pytest.raises(StorageError, match="overwritten"):
            writing.__exit__(None, None, None)


def test_other_processes_write_and_checkpoint_and_nothing_is_wrong(tmp_path: Path) -> None:
    """As ``hdpmf aggregator rotate-keys`` or a backup do; a reader delays checkpoints."""
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    with closing(ServerDatabase(url)) as database, closing(ServerDatabase(url)) as other:
        put(database)
        with other.read() as reader:
            reader.execute(sa.select(payloads.c.report)).all()
            database.take_over()
            put(database)
        for _ in range(3):
            put(other, 2)
            other.empty_log()
            put(database, 2)
            database.rewrite()
            put(database)
        for count in ((1 << 31) - 2, -(1 << 30), -2):  # SQLite's number has a sign, and begins anew
            with other.write() as connection:
                connection.exec_driver_sql(f"PRAGMA user_version = {count}")
            put(database, 5)
            database.empty_log()
            put(database)
