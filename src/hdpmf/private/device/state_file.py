"""The one file of a device: SQLite, every commit on disk when it returns, sealed by a passphrase.

A commit names the version that it was decided on; if another process has committed since, it is
refused and nothing changes. A row is a field of the state, or a public file. With a passphrase rows
are sealed (ChaCha20-Poly1305 under a random key, which the passphrase opens by scrypt), and their
names are keyed digests; lengths are padded. A counter beside the file shows that it is an old copy,
which has forgotten what was spent.
"""

import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b, scrypt
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from hdpmf.common.base.files import FileKind, atomic_write, lock_file, storage_errors
from hdpmf.errors import ConfigError, PrivacyError, StorageError, needs
from hdpmf.private.device.state import State

with needs("cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_KIND = FileKind(
    name="a device's file",
    application=0x68647076,  # "hdpv"
    schema=20,
    safe="What was there before is safe and nothing new was written; free space or permissions, "
    "then try again",
    remedy="bring the newest copy, with the counter beside it",
)
_PATIENCE = 30.0  # seconds for another command's commit to end
_COST = 1 << 17  # of scrypt: 128 MB and about half a second for whoever tries one passphrase
_PAD = 4096
_NONCE = 12
_FILES = "file "


class ChangedError(StorageError):
    """Another process has committed since the state was read; nothing was written."""


class Committed(msgspec.Struct, frozen=True):
    """A state that is on disk. ``StateFile`` makes them, and things are sealed of these only."""

    state: State
    version: int

    def __repr__(self) -> str:
        return f"Committed({self.version})"


class _Head(msgspec.Struct, frozen=True):
    """What is not sealed: how to open the rest.

    Attributes:
        key: The rows' key: itself, or sealed by what the passphrase gives.
        salt: Empty without a passphrase.
    """

    store: str
    key: bytes
    salt: bytes = b""


class StateFile:
    """A device's file. Make one with `create` or `open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, head: _Head, key: bytes) -> None:
        self.path = path
        self._connection = connection
        self._head = head
        self._cipher = ChaCha20Poly1305(key) if head.salt else None
        self._tags = blake2b(b"rows of a device", key=key, digest_size=16)
        self._held: Committed | None = None
        self._taking_part: IO[bytes] | None = None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], state: State, passphrase: str | None = None
    ) -> Self:
        """Make a file where there is none.

        Raises:
            ConfigError: There is one, or the passphrase is empty.
            StorageError: The disk refused.
        """
        target = Path(path)
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise ConfigError(f"{target} exists already; choose another name") from None
        except OSError as error:
            raise StorageError(f"cannot make {target}: {error.strerror}") from error
        try:
            head, key = _new_head(passphrase)
            connection = _connect(target)
            with _KIND.errors(target):
                connection.executescript(
                    f"PRAGMA application_id = {_KIND.application};"
                    f"PRAGMA user_version = {_KIND.schema};"
                    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), "
                    "version INTEGER NOT NULL, data BLOB NOT NULL) STRICT;"
                    "CREATE TABLE rows (tag BLOB PRIMARY KEY, data BLOB NOT NULL) STRICT"
                )
                connection.execute(
                    "INSERT INTO head VALUES (1, 0, ?)", (msgspec.msgpack.encode(head),)
                )
            made = cls(target, connection, head, key)
            made.commit(state, 0)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return made

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], passphrase: str | None = None, *, old_copy: bool = False
    ) -> Self:
        """Open a file.

        Args:
            passphrase: Where it is sealed.
            old_copy: The owner knows that it is an old copy, or came without its counter.

        Raises:
            ConfigError: There is none, or it needs no passphrase.
            PrivacyError: The passphrase is wrong or missing.
            StorageError: The file is damaged, or an old copy.
        """
        target = Path(path)
        connection, head = _opened(target)
        try:
            made = cls(target, connection, head, _unlocked(head, passphrase))
            made._check_counter(old_copy=old_copy)
            made.load()
        except BaseException:
            connection.close()
            raise
        return made

    @staticmethod
    def needs_passphrase(path: str | os.PathLike[str]) -> bool:
        """Return True if the file is sealed."""
        connection, head = _opened(Path(path))
        with closing(connection):
            return bool(head.salt)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"StateFile({str(self.path)!r})"

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()
        if self._taking_part is not None:
            self._taking_part.close()

    def take_part(self) -> None:
        """Be the only process that answers from this file, until it is closed.

        Raises:
            StorageError: Another one does.
        """
        with storage_errors(f"cannot lock {self.path}"):
            stream = self.path.with_name(self.path.name + ".lock").open("ab")
        try:
            lock_file(stream.fileno())
        except BlockingIOError:
            stream.close()
            raise StorageError(
                f"{self.path} is in use: another 'hdpmf device join' answers from it; end that one"
            ) from None
        self._taking_part = stream

    def load(self) -> Committed:
        """Return the newest state."""
        with _KIND.errors(self.path):
            version = self._version()
            if self._held is None or self._held.version != version:
                with self._transaction("BEGIN"):
                    version = self._version()
                    rows = self._connection.execute("SELECT tag, data FROM rows").fetchall()
                self._held = Committed(self._state(rows), version)
        return self._held

    def commit(self, state: State, expected: int) -> Committed:
        """Write a state that was decided on version ``expected``; it is on disk when this returns.

        Raises:
            ChangedError: There is another version by now.
            StorageError: The disk refused.
        """
        before = None if expected == 0 else self.load()
        if before is not None and state == before.state and before.version == expected:
            return before
        with _KIND.errors(self.path):
            with self._transaction("BEGIN IMMEDIATE"):
                if self._version() != expected:
                    raise ChangedError(f"{self.path} was changed by another command; try again")
                self._write(state, None if before is None else before.state)
                self._connection.execute("UPDATE head SET version = ?", (expected + 1,))
            self._held = Committed(state, expected + 1)
        self._count(expected + 1)
        return self._held

    def change(self, change: Callable[[State], State]) -> Committed:
        """Change the newest state, also if others change it meanwhile."""
        while True:
            held = self.load()
            with suppress(ChangedError):
                return self.commit(change(held.state), held.version)

    # Rows

    def _version(self) -> int:
        row = self._connection.execute("SELECT version FROM head").fetchone()
        if row is None:
            raise StorageError(f"{self.path} is damaged; {_KIND.remedy}")
        return int(row[0])

    def _state(self, rows: list[tuple[bytes, bytes]]) -> State:
        fields: dict[str, Any] = {}
        files: dict[str, bytes] = {}
        try:
            for tag, data in rows:
                name, value = msgspec.msgpack.decode(
                    self._unsealed(data, tag), type=tuple[str, msgspec.Raw]
                )
                if name.startswith(_FILES):
                    files[name.removeprefix(_FILES)] = msgspec.msgpack.decode(value, type=bytes)
                else:
                    fields[name] = msgspec.msgpack.decode(value, type=_TYPES[name])
            return State(**fields, files=files)
        except (msgspec.MsgspecError, ConfigError, KeyError, TypeError, UnicodeDecodeError):
            raise StorageError(f"{self.path} is damaged; {_KIND.remedy}") from None

    def _write(self, state: State, before: State | None) -> None:
        run = self._connection.execute
        known: dict[str, Any] = {} if before is None else _parts(before)
        parts = _parts(state)
        for name in known.keys() - parts.keys():
            run("DELETE FROM rows WHERE tag = ?", (self._tag(name),))
        for name, value in parts.items():
            if name in known and (known[name] is value or known[name] == value):
                continue
            tag = self._tag(name)
            sealed = self._sealed(msgspec.msgpack.encode((name, value)), tag)
            run("INSERT OR REPLACE INTO rows VALUES (?, ?)", (tag, sealed))

    def _tag(self, name: str) -> bytes:
        tags = self._tags.copy()
        tags.update(name.encode())
        return tags.digest()

    def _sealed(self, data: bytes, tag: bytes) -> bytes:
        if self._cipher is None:
            return data
        nonce = secrets.token_bytes(_NONCE)
        padded = data + b"\x80" + bytes(-(len(data) + 1) % _PAD)
        return nonce + self._cipher.encrypt(nonce, padded, tag)

    def _unsealed(self, data: bytes, tag: bytes) -> bytes:
        if self._cipher is None:
            return data
        try:
            padded = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], tag)
        except (InvalidTag, ValueError):
            raise StorageError(f"{self.path} is damaged or was changed; {_KIND.remedy}") from None
        return padded.rstrip(b"\0")[:-1]

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # The counter

    def _count(self, version: int) -> None:
        counted = msgspec.json.encode({"store": self._head.store, "commits": version})
        atomic_write(counter_of(self.path), counted + b"\n", mode=0o600)

    def _check_counter(self, *, old_copy: bool) -> None:
        """Refuse a file with fewer commits than were counted, or one that nobody has counted.

        Not one of a single commit: a process was killed when it had just made it.
        """
        beside = counter_of(self.path)
        counted = -1
        with suppress(FileNotFoundError, msgspec.MsgspecError, KeyError):
            found = msgspec.json.decode(beside.read_bytes(), type=dict[str, str | int])
            if found["store"] == self._head.store:
                counted = int(found["commits"])
        version = self._version()
        if not old_copy and (version < counted or (counted < 0 and version > 1)):
            raise StorageError(
                f"{self.path} is an old copy, or came without its counter {beside.name}: it has "
                "forgotten what was spent since. Bring the newest copy of both; if there is none, "
                "make a new device"
            )
        if version != counted:
            self._count(version)


_TYPES: dict[str, Any] = {
    field.name: field.type for field in msgspec.structs.fields(State) if field.name != "files"
}


def _parts(state: State) -> dict[str, Any]:
    """Return what rows are of, by their names."""
    fields = {name: getattr(state, name) for name in _TYPES}
    return fields | {_FILES + name: data for name, data in state.files.items()}


def counter_of(path: Path) -> Path:
    """Return the path of a file's counter."""
    return path.with_name(path.name + ".counter")


def _connect(path: Path) -> sqlite3.Connection:
    with _KIND.errors(path):
        # A device may take its steps in any thread, one after the other.
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = FULL")
        # What a person has removed must not be found in the file.
        connection.execute("PRAGMA secure_delete = ON").fetchall()
    return connection


def _opened(path: Path) -> tuple[sqlite3.Connection, _Head]:
    if not path.is_file():
        raise ConfigError(f"there is no device at {path}; make one with: hdpmf device init {path}")
    with storage_errors(f"cannot keep {path} private"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)
    connection = _connect(path)
    try:
        with _KIND.errors(path):
            if not _KIND.is_ours(connection):
                raise ConfigError(f"{path} is no device's file; give the one that init made")
            if _KIND.check(connection, path) < _KIND.schema:
                raise ConfigError(
                    f"{path} was made by an earlier hdpmf, whose files this version does not read; "
                    "make a new device"
                )
            row = connection.execute("SELECT data FROM head").fetchone()
            head = msgspec.msgpack.decode(row[0], type=_Head)
    except (TypeError, msgspec.MsgspecError):
        connection.close()
        raise StorageError(f"{path} is damaged; {_KIND.remedy}") from None
    except BaseException:
        connection.close()
        raise
    return connection, head


def _new_head(passphrase: str | None) -> tuple[_Head, bytes]:
    key, store = secrets.token_bytes(32), secrets.token_hex(16)
    if passphrase is None:
        return _Head(store, key), key
    if not passphrase:
        raise ConfigError("an empty passphrase protects nothing; give one, or do without")
    salt, nonce = secrets.token_bytes(16), bytes(_NONCE)  # the key under it is used once
    wrapped = ChaCha20Poly1305(_stretched(passphrase, salt)).encrypt(nonce, key, store.encode())
    return _Head(store, wrapped, salt), key


def _unlocked(head: _Head, passphrase: str | None) -> bytes:
    if not head.salt:
        if passphrase is not None:
            raise ConfigError("this file is not sealed, so it needs no passphrase; leave it out")
        return head.key
    if passphrase is None:
        raise PrivacyError("this file is sealed; give its passphrase")
    cipher = ChaCha20Poly1305(_stretched(passphrase, head.salt))
    try:
        return cipher.decrypt(bytes(_NONCE), head.key, head.store.encode())
    except InvalidTag:
        raise PrivacyError("the passphrase is wrong; nothing was opened") from None


def _stretched(passphrase: str, salt: bytes) -> bytes:
    most = 128 * 8 * _COST + (1 << 20)
    return scrypt(passphrase.encode(), salt=salt, n=_COST, r=8, p=1, maxmem=most, dklen=32)
