"""A new passphrase for a device's file: everything in it is sealed anew with a new key, in one commit.

A process that is killed at any instant leaves a file that opens with the old passphrase, or one that opens with the
new. The ledger stays what it was, row by row, and so does the counter beside the file. Afterwards the old passphrase
opens neither the file nor anything that is left in its free pages or its journal. What nobody can take back: copies of
the file that were made before, and what flash memory keeps of blocks that were overwritten.
"""

from __future__ import annotations

import os

from hdpmf.device.database import Database
from hdpmf.device.ledger import entry_place
from hdpmf.device.named_values import HEADER, read_header, value_place
from hdpmf.device.rated import RatedItems
from hdpmf.device.runs import reply_place, state_place
from hdpmf.device.vault import Vault
from hdpmf.errors import ConfigError


def change_passphrase(
    path: str | os.PathLike[str], new: str, *, old: str | None = None, old_copy: bool = False
) -> None:
    """Seal a store with a new passphrase; one that was plain is encrypted from now on.

    Args:
        path: The store's file; nobody may answer a recommender from it meanwhile.
        new: The new passphrase.
        old: The one before, where the store is encrypted.
        old_copy: As in ``DeviceStore.open``.

    Raises:
        ConfigError: Both are the same, or the new one is empty.
        PrivacyError: The old passphrase is wrong or missing.
        StorageError: Another process serves the store, it is damaged, or the disk refused. Nothing has changed then.
    """
    if new == old:
        raise ConfigError("the new passphrase is the old one; nothing was changed")
    seal_anew(path, new, old=old, old_copy=old_copy)


def seal_anew(path: str | os.PathLike[str], new: str, *, old: str | None = None, old_copy: bool = False) -> None:
    """The same, whatever the new passphrase is: the key is another one in any case."""
    database = Database(path)
    try:
        before = Vault.unlock(read_header(database), old)
        database.check_rows(before, old_copy=old_copy)
        database.serve()
        after = before.renewed(new)
        database.rewrite_rows(after, lambda: _rewrite(database, before, after))
        database.shred()
    finally:
        database.close()


def _rewrite(database: Database, before: Vault, after: Vault) -> None:
    _settings(database, before, after)
    # How many users there may be is checked when they come.
    RatedItems(database, before, 1).move_to(RatedItems(database, after, 1))
    _runs(database, before, after)
    _ledger(database, before, after)


def _settings(database: Database, before: Vault, after: Vault) -> None:
    rows = database.execute("SELECT name, sealed FROM settings")
    database.execute("DELETE FROM settings")
    for name, sealed in rows:
        place = value_place(name)
        value = after.header() if name == HEADER else after.seal(before.open(sealed, place), place)
        database.execute("INSERT INTO settings VALUES (?, ?)", (name, value))


def _runs(database: Database, before: Vault, after: Vault) -> None:
    states = database.execute("SELECT number, run, sealed FROM states ORDER BY number")
    replies = database.execute("SELECT run, number, request, sealed FROM replies")
    database.execute("DELETE FROM states")
    database.execute("DELETE FROM replies")
    for number, run, sealed in states:
        place = state_place(run)
        row = (number, run, after.seal(before.open(sealed, place), place))
        database.execute("INSERT INTO states VALUES (?, ?, ?)", row)
    for run, number, request, sealed in replies:
        place = reply_place(run, number, request)
        kept = (run, number, request, after.seal(before.open(sealed, place), place))
        database.execute("INSERT INTO replies VALUES (?, ?, ?, ?)", kept)


def _ledger(database: Database, before: Vault, after: Vault) -> None:
    rows = database.execute("SELECT number, entry, charges FROM ledger ORDER BY number")
    database.execute("DELETE FROM ledger")

    def again(kind: bytes, number: int, sealed: bytes | None) -> bytes | None:
        place = entry_place(kind, number)
        return None if sealed is None else after.seal(before.open(sealed, place), place)

    for number, entry, charges in rows:
        row = (number, again(b"ledger", number, entry), again(b"charges", number, charges))
        database.execute("INSERT INTO ledger VALUES (?, ?, ?)", row)
