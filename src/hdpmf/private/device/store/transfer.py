"""A new passphrase for a store, and moving a store to another machine.

A new passphrase seals everything anew with a new key, in one commit: a process that is killed at
any instant leaves a file that opens with the old passphrase, or one that opens with the new. Copies
that were made before stay readable.

A ledger must continue in exactly one store. An export has all rows of a store, sealed with a
passphrase and a key of its own; it is no database (``sealed_export``). The store is marked before
the export appears under its name; the import deletes the export before the new store can be used.
So at most one of the three can be used at any instant, and a killed command is finished by running
it again. A copy of the export that is imported elsewhere cannot be prevented; it would spend the
same budget a second time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from hdpmf.common.base.files import storage_errors
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.disclosures.journal import entry_context, utc_now
from hdpmf.private.device.store.counter import counter_of
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.device_store import DeviceStore, refuse_moved
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.layout import COLUMNS, SCHEMA
from hdpmf.private.device.store.ratings_table import SealedRatings
from hdpmf.private.device.store.schema import Transfer
from hdpmf.private.device.store.sealed_export import ExportFacts, ExportReader, write_export
from hdpmf.private.device.store.tables import ONLY, RawRow, Runs, Tables, read_header, write_header

_NEW_FILE = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)


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
    with _open_rows(path, old) as (database, before):
        after = before.renewed(new)
        database.rewrite_rows(lambda: _rewrite(database, before, after))
        database.shred()


@contextmanager
def _open_rows(
    path: str | os.PathLike[str], passphrase: str | None
) -> Iterator[tuple[Database, StoreCipher]]:
    """Open a store, also one that was moved away, as the only one who answers from it."""
    with closing(Database(path)) as database:
        cipher = StoreCipher.unlock(read_header(database), passphrase)
        database.check(cipher)
        database.serve()
        yield database, cipher


def _rewrite(database: Database, before: StoreCipher, after: StoreCipher) -> None:
    write_header(database, after)
    for table, rows in resealed_rows(database, before, after):
        sealed = list(rows)
        database.execute(f"DELETE FROM {table}")  # noqa: S608  # a name of ours
        insert_rows(database, table, sealed)


def resealed_rows(
    database: Database, before: StoreCipher, after: StoreCipher
) -> Iterator[tuple[str, Iterator[RawRow]]]:
    """Return the rows of each table but the header as another cipher seals them.

    Inside a transaction.
    """
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


def insert_rows(database: Database, table: str, rows: Iterable[RawRow]) -> None:
    """Put rows into a table as they are, inside a transaction."""
    placeholders = ", ".join("?" * len(COLUMNS[table]))
    database.execute_many(f"INSERT INTO {table} VALUES ({placeholders})", rows)  # noqa: S608  # a name of ours


def export_store(
    path: Path,
    file: Path,
    export_passphrase: str,
    *,
    passphrase: str | None = None,
) -> None:
    """Write everything in a store to a file, sealed with a passphrase, and close the store.

    Args:
        path: The store; nobody may answer a recommender from it meanwhile.
        file: Must not exist.
        export_passphrase: Seals the file, and then the new store.
        passphrase: Of the store, where it is encrypted.

    Raises:
        ConfigError: The file exists, or the store was moved already.
        StorageError: The disk refused; the store can be used as before.
    """
    if file.exists():
        raise ConfigError(f"{file} exists already; choose another name for the export")
    part = _part(file)
    with _open_rows(path, passphrase) as (database, cipher):
        device = Tables(database, cipher).device
        mark = device.need(ONLY).transfer
        if mark is None:
            at = utc_now()
            with database.transaction():  # nothing is written here that is not in the export
                digest = _write_part(database, cipher, part, export_passphrase, at)
                mark = Transfer(state="left", at=at, file=str(file.absolute()), digest=digest)
                device.put(msgspec.structs.replace(device.need(ONLY), transfer=mark))
        elif not (
            mark.state == "left" and mark.file == str(file.absolute()) and _is(part, mark.digest)
        ):
            refuse_moved(path, mark)
        _rename(part, file)


def import_store(file: Path, path: Path, passphrase: str) -> None:
    """Make a store of an export, and delete the export.

    Args:
        path: The new store; must not exist.
        passphrase: Of the export; the new store has the same one.

    Raises:
        ConfigError: It is no export, or there is a store already.
        PrivacyError: The passphrase is wrong.
        StorageError: The disk refused. Run the same again.
    """
    if not path.exists():
        _arrive(file, path, passphrase)
    with DeviceStore.open(path, passphrase=passphrase, serving=True, moved=True) as store:
        mark = store.device.transfer
        if mark is None or mark.state != "arriving":
            raise ConfigError(f"{path} exists already; choose another name for the new store")
        if file.exists():
            if not _is(file, mark.digest):
                raise ConfigError(
                    f"{path} is being made of another export than {file}; give that one, or "
                    "another name"
                )
            _delete(file)
        store.change_device(transfer=None)


def take_back(
    path: Path,
    file: Path | None = None,
    *,
    lost: bool = False,
    passphrase: str | None = None,
) -> None:
    """Use a store again that was moved away; its export is deleted.

    Args:
        file: The export, which proves that it was not imported: an import deletes it.
        lost: In place of the file: the owner's word that it was never imported and never will be.
        passphrase: Of the store, where it is encrypted.

    Raises:
        ConfigError: The store was not moved, or this is not its export.
    """
    if (file is None) != lost:
        raise ConfigError(
            "give the export, which is deleted then; if it is lost and was never imported, "
            "say --lost"
        )
    with DeviceStore.open(path, passphrase=passphrase, serving=True, moved=True) as store:
        mark = store.device.transfer
        if mark is None or mark.state not in ("left", "returning"):
            raise ConfigError(f"{path} was not moved away, so that there is nothing to take back")
        found = [
            export
            for export in (file, _part(Path(mark.file)))
            if export is not None and _is(export, mark.digest)
        ]
        if not (found or lost or mark.state == "returning"):
            raise ConfigError(
                f"{file} is not the export of this store (it went to {mark.file}). If that was "
                "imported, this store must stay closed: both would spend"
            )
        store.change_device(transfer=msgspec.structs.replace(mark, state="returning"))
        for export in found:
            _delete(export)
        store.change_device(transfer=None)


def _write_part(database: Database, cipher: StoreCipher, part: Path, new: str, at: str) -> str:
    """Write the export where nobody looks for it; its digest. Inside a transaction."""
    sealed_by = cipher.renewed(new)
    tables = resealed_rows(database, cipher, sealed_by)
    facts = ExportFacts(SCHEMA, database.commits, at)
    try:
        with os.fdopen(os.open(part, _NEW_FILE, 0o600), "wb") as stream:
            rows = ((table, row) for table, found in tables for row in found)
            digest = write_export(stream, sealed_by, facts, rows)
            stream.flush()
            os.fsync(stream.fileno())
            return digest
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise StorageError(
            f"could not write {part}: {error.strerror}. The store can be used as before; free "
            "space or choose another folder, then run the same command again"
        ) from error


def _arrive(file: Path, path: Path, passphrase: str) -> None:
    """Make the new store, which cannot be used yet."""
    try:
        with file.open("rb") as stream, _workshop(path) as folder:
            copy = folder / "store"
            _build(ExportReader(stream, file, passphrase), copy)
            _place_counter(copy, path)
            _rename(copy, path)
    except FileNotFoundError:
        raise ConfigError(f"there is no export at {file}") from None
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror}") from error


def _build(export: ExportReader, copy: Path) -> None:
    """Put the rows of an export into tables of our own, in one commit."""
    facts, cipher = export.facts, export.cipher
    with closing(Database(copy, make=True)) as database, database.transaction():
        database.lay_tables(cipher, commits=facts.commits)
        write_header(database, cipher)
        for table, row in export.rows():
            insert_rows(database, table, [row])
        device = Tables(database, cipher).device
        mark = Transfer(state="arriving", at=facts.at, file="", digest=export.digest())
        device.put(msgspec.structs.replace(device.need(ONLY), transfer=mark))


def _place_counter(copy: Path, path: Path) -> None:
    """The counter first: a store without it is refused, a counter without its store harms nobody.

    One that says the same as ours is left from an import that was killed right after this: from a
    store that was used it would say more.
    """
    there, ours = counter_of(path), counter_of(copy)
    if there.exists() and _names(there) == _names(ours) and there.read_bytes() != ours.read_bytes():
        raise ConfigError(
            f"{there} says that this store was here before: an export that was imported "
            "already, or the machine that "
            "it left. If you know that it is neither, delete that file, or give another name"
        )
    _rename(ours, there)


def _names(counter: Path) -> object:
    """Return the store that a counter is of."""
    try:
        return msgspec.json.decode(counter.read_bytes(), type=dict[str, object]).get("store")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A folder beside a store, for its owner only; what a killed command left there goes first."""
    folder = path.with_name(f".{path.name}.moving")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        yield folder
    except OSError as error:
        raise StorageError(
            f"cannot work in {folder}: {error.strerror}; nothing was moved"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _part(file: Path) -> Path:
    return file.absolute().with_name(f".{file.name}.part")


def _is(file: Path, digest: str) -> bool:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == digest
    except OSError:
        return False


def _rename(source: Path, target: Path) -> None:
    with storage_errors(f"cannot write {target}", "; run the same command again"):
        os.replace(source, target)
        if os.name == "posix":  # Windows opens no folders
            folder = os.open(target.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _delete(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot delete {file} ({error.strerror}), and while it is there it could be imported "
            "a second time; make it deletable and run the same command again"
        ) from error
