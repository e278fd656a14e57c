"""A new passphrase for a store.

Everything is sealed anew with a new key, in one commit: a process that is killed at any instant
leaves a file that opens with the old passphrase, or one that opens with the new. Copies that were
made before stay readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from hdpmf.errors import ConfigError
from hdpmf.private.device.disclosures.journal import entry_context
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.layout import COLUMNS
from hdpmf.private.device.store.ratings_table import SealedRatings
from hdpmf.private.device.store.tables import RawRow, Runs, Tables, read_header, write_header


def change_passphrase(path: str | os.PathLike[str], new: str, *, old: str | None = None) -> None:
    """Seal a store with a new passphrase; one that was plain is encrypted from now on.

    Args:
        path: The store's file; nobody may answer a recommender from it meanwhile.
        old: The one before, where the store is encrypted.

    Raises:
        ConfigError: Both are the same, or the new one is empty.
        PrivacyError: The old passphrase is wrong or missing.
        StorageError: Another process serves the store, it is damaged, or the disk refused. Nothing
            has changed then.
    """
    if new == old:
        raise ConfigError("the new passphrase is the old one; nothing was changed")
    with closing(Database(path)) as database:
        before = StoreCipher.unlock(read_header(database), old)
        database.check(before)
        database.serve()
        after = before.renewed(new)
        database.rewrite_rows(lambda: _rewrite(database, before, after))
        database.shred()


def _rewrite(database: Database, before: StoreCipher, after: StoreCipher) -> None:
    write_header(database, after)
    for table, rows in _resealed_rows(database, before, after):
        sealed = list(rows)
        database.execute(f"DELETE FROM {table}")  # noqa: S608  # a name of ours
        placeholders = ", ".join("?" * len(COLUMNS[table]))
        database.execute_many(f"INSERT INTO {table} VALUES ({placeholders})", sealed)  # noqa: S608  # a name of ours


def _resealed_rows(
    database: Database, before: StoreCipher, after: StoreCipher
) -> Iterator[tuple[str, Iterator[RawRow]]]:
    yield from Tables(database, before).resealed(after)
    yield from SealedRatings(database, before).resealed(after)
    yield from Runs(database, before).resealed(after)
    yield "ledger", _resealed_ledger(database, before, after)


def _resealed_ledger(
    database: Database, before: StoreCipher, after: StoreCipher
) -> Iterator[RawRow]:
    def again(kind: bytes, number: int, sealed: bytes | None) -> bytes | None:
        context = entry_context(kind, number)
        return None if sealed is None else after.seal(before.open(sealed, context), context)

    query = "SELECT number, entry, charges FROM ledger ORDER BY number"
    for number, entry, charges in database.iterate(query):
        yield number, again(b"ledger", number, entry), again(b"charges", number, charges)
