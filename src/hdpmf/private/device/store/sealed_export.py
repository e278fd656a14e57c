"""The file in which a store travels: sealed rows, and no database.

An export holds rows only, in pieces
that are sealed one by one with the key of the store that is to be made of them
(ChaCha20-Poly1305). Each piece is sealed for its place, the last one as the last, and all of them
for the head of the file: nobody without the passphrase changes, exchanges, adds or leaves out a
piece unnoticed. The import makes a new database with tables of its own and puts the rows into it.

The file begins with `EXPORT_MAGIC`. After it every part has its length in four bytes before it: the
head in clear (the number of the format, and how the key is made of the passphrase), then the
pieces. Opened and joined, these are rows, each with its length before it; the first one says what
follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from hdpmf.errors import ConfigError, StorageError, made_by_newer
from hdpmf.private.device.store.database import EXPORT_MAGIC
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.layout import COLUMNS, SCHEMA
from hdpmf.private.device.store.tables import RawRow

EXPORT_FORMAT = 1
_PIECE = 1 << 20
_MOST_PIECE = _PIECE + (1 << 12)  # its nonce, padding and tag
_MOST_HEAD = 1 << 12
_MOST_ROW = 1 << 30
_LENGTH = 4

DAMAGED = (
    "is damaged, cut short or was tampered with; nothing was imported. Bring the export again, or "
    "take the store back where it came from: hdpmf device unmove STORE --lost"
)


class _Head(msgspec.Struct, frozen=True):
    format: int
    key: bytes  # the cipher's header


class ExportFacts(msgspec.Struct, frozen=True):
    """The first row of an export.

    Attributes:
        commits: Commits of the store that it was made of.
        at: When it was made.
    """

    schema: int
    commits: int
    at: str


_Row = tuple[str, list[int | bytes | None]]


def write_export(
    stream: BinaryIO, cipher: StoreCipher, facts: ExportFacts, rows: Iterable[tuple[str, RawRow]]
) -> str:
    """Write an export; a piece at a time is in memory.

    Args:
        cipher: Has sealed the rows, and seals the pieces. It has a passphrase.
        facts: About the rows.
        rows: The name of a table and a row of it, each.

    Returns:
        SHA-256 of the file.
    """
    if not cipher.is_encrypted:
        raise ConfigError("an export needs a passphrase")
    digest = sha256()

    def write(data: bytes) -> None:
        digest.update(data)
        stream.write(data)

    head = msgspec.msgpack.encode(_Head(EXPORT_FORMAT, cipher.header()))
    write(EXPORT_MAGIC + _with_length(head))
    index, pending = 0, bytearray(_with_length(msgspec.msgpack.encode(facts)))
    for row in rows:
        pending += _with_length(msgspec.msgpack.encode(row))
        while len(pending) > _PIECE:
            context = _context(head, index, last=False)
            write(_with_length(cipher.seal(bytes(pending[:_PIECE]), context)))
            del pending[:_PIECE]
            index += 1
    write(_with_length(cipher.seal(bytes(pending), _context(head, index, last=True))))
    return digest.hexdigest()


class ExportReader:
    """An export that is read from its beginning to its end, once.

    Args:
        path: Its name, for messages.

    Attributes:
        cipher: Has sealed the rows.
        facts: About the rows.

    Raises:
        ConfigError: It is no export, or a newer version made it.
        PrivacyError: The passphrase is wrong.
        StorageError: It is damaged.
    """

    def __init__(self, stream: BinaryIO, path: Path, passphrase: str) -> None:
        self._stream = stream
        self._path = path
        self._digest = sha256()
        if self._read(len(EXPORT_MAGIC)) != EXPORT_MAGIC:
            raise ConfigError(f"{path} is no export (hdpmf device export writes one)")
        self._head = self._part(_MOST_HEAD)
        try:
            number = msgspec.msgpack.decode(self._head, type=dict[str, object]).get("format")
            if isinstance(number, int) and number > EXPORT_FORMAT:
                raise ConfigError(made_by_newer(path))
            head = msgspec.msgpack.decode(self._head, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._damaged() from None
        # One that is not sealed says what anybody has written.
        if head.format != EXPORT_FORMAT or not StoreCipher.needs_passphrase(head.key):
            raise self._damaged()
        self.cipher = StoreCipher.unlock(head.key, passphrase)
        self._rows = self._decoded_rows()
        try:
            self.facts = msgspec.msgpack.decode(next(self._rows), type=ExportFacts)
        except (StopIteration, msgspec.MsgspecError):
            raise self._damaged() from None
        if self.facts.schema > SCHEMA:
            raise ConfigError(made_by_newer(path))
        if self.facts.schema < SCHEMA:
            raise self._damaged()

    def rows(self) -> Iterator[tuple[str, RawRow]]:
        """Return the name of a table and a row of it, each.

        They count when all of them were read: that the file is whole is known at its end.
        """
        for data in self._rows:
            try:
                table, row = msgspec.msgpack.decode(data, type=_Row)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                raise self._damaged() from None
            if len(row) != len(COLUMNS.get(table, ())):
                raise self._damaged()
            yield table, tuple(row)

    def digest(self) -> str:
        """Return SHA-256 of the file, which was read to its end."""
        return self._digest.hexdigest()

    def _decoded_rows(self) -> Iterator[bytes]:
        pending = bytearray()
        for piece in self._pieces():
            pending += piece
            while len(pending) >= _LENGTH:
                end = _LENGTH + int.from_bytes(pending[:_LENGTH], "big")
                if end > _MOST_ROW:
                    raise self._damaged()
                if len(pending) < end:
                    break
                yield bytes(pending[_LENGTH:end])
                del pending[:end]
        if pending:
            raise self._damaged()

    def _pieces(self) -> Iterator[bytes]:
        """Return the opened pieces. The last one is known by what follows: nothing."""
        index, sealed = 0, self._part(_MOST_PIECE)
        while True:
            following = self._read(_LENGTH)
            try:
                piece = self.cipher.open(sealed, _context(self._head, index, last=not following))
            except StorageError:
                raise self._damaged() from None
            yield piece
            if not following:
                return
            index, sealed = index + 1, self._part(_MOST_PIECE, following)

    def _part(self, most: int, length: bytes | None = None) -> bytes:
        size = int.from_bytes(self._read(_LENGTH) if length is None else length, "big")
        data = self._read(size) if 0 < size <= most else b""
        if not size or len(data) != size:
            raise self._damaged()
        return data

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._digest.update(data)
        return data

    def _damaged(self) -> StorageError:
        return StorageError(f"{self._path} {DAMAGED}")


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH, "big") + data


def _context(head: bytes, index: int, *, last: bool) -> bytes:
    return b"export" + sha256(head).digest() + index.to_bytes(8, "big") + bytes([last])
