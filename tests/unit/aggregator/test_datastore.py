"""The tables of a server's database."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.untrusted.aggregator.datastore import ServerDatabase


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
    assert (schema, sha256(text.encode()).hexdigest()[:16]) == ("2", "eb43b1c94b250c72")


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
