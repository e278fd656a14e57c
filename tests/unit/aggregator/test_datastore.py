"""The tables of a server's database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

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
