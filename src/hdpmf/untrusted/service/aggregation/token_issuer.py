"""The issuer of blind tokens: one for each user of an enrolled device, in each task.

A task has a key of its own. Its file has the secret key and, of every device, the digests of what
was signed for it, and is there before anybody sees the task. The same request is answered with the
same bytes, so that a device may ask again after a kill; for other bytes than its users' it gets
nothing. The file ends with the task's period. It is left out of backups (its name begins with a
dot): a folder that was restored issues no more tokens for a task under way, because it has
forgotten who has one.

Answers are HTTP's:

======  =========================================================================
status  meaning
======  =========================================================================
200     a signature; the same for the same request
401     a stranger, or a signature of the device that does not hold
404     no such task is under way
409     the device has tokens for all of its users
410     the task is over, or its file is lost
413     longer than a request
422     no request for a token of this task
======  =========================================================================
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.masks.primitives import verifies
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import REQUEST_SIZE, IssuerKey
from hdpmf.common.base.sqlite import FileKind, make_durable
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.errors import ProtocolError

_KIND = FileKind(
    name="a file of tokens",
    application=0x68647074,  # "hdpt"
    schema=1,
    safe="No token was given out that is not in it; free space, and devices ask again",
    remedy="give the run up",
)

_LAYOUT = (
    "CREATE TABLE key (value BLOB NOT NULL)",
    "CREATE TABLE issued (device BLOB, request BLOB, PRIMARY KEY (device, request)) WITHOUT ROWID",
)

_FILES = ".tokens-*"


class TokenIssuer:
    """Issues tokens for one task at a time, to threads of a web server or a test."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._in_memory: dict[bytes, _TokenFile] = {}
        self._task = b""
        self._users: Mapping[str, int] = {}
        self._file: _TokenFile | None = None
        self._over: set[str] = set()

    def create(self, task: bytes, key: IssuerKey, folder: Path | None = None) -> None:
        """Write down the key of a task, before anybody sees the task.

        Args:
            task: Its id.
            key: Its public half is in the task.
            folder: Where the file is; in memory only where not given.
        """
        made = _TokenFile(_path(folder, task), key)
        if folder is None:
            self._in_memory[task] = made
        else:
            made.close()

    def open(self, task: bytes, users: Mapping[str, int], folder: Path | None = None) -> bool:
        """Issue tokens for a task from now on; False if its file is lost, so that there are none.

        Args:
            task: Its id.
            users: Of each enrolled device.
            folder: As it was created with.
        """
        with self._guard:
            self._shut()
            path = _path(folder, task)
            if path is None:
                self._file = self._in_memory.get(task)
            elif path.exists():
                self._file = _TokenFile(path)
            if self._file is None:
                self._over.add(id_to_text(task))
                return False
            self._task, self._users = task, users
            return True

    def close(self) -> None:
        """Issue no more tokens for the task."""
        with self._guard:
            if self._task:
                self._over.add(id_to_text(self._task))
            self._shut()

    def drop(self, folder: Path | None = None) -> None:
        """Delete the key and who has tokens, after the period of a task."""
        self.close()
        self._in_memory.clear()
        if folder is not None:
            for path in sorted(folder.glob(_FILES)):
                path.unlink(missing_ok=True)

    def refusal(self, task: str, device: str, length: int) -> int:
        """Return the status of a refusal before any of so many bytes is read, or 0."""
        if task in self._over:
            return 410
        if not self._task or task != id_to_text(self._task):
            return 404
        if device not in self._users:
            return 401
        return 413 if length > REQUEST_SIZE else 0

    def take(self, task: str, device: str, signature: bytes, request: bytes) -> tuple[int, bytes]:
        """Return the answer to a request: a status, and the blind signature or nothing.

        Raises:
            StorageError: The disk refused; the device will ask again.
        """
        refused = self.refusal(task, device, len(request))
        if refused:
            return refused, b""
        digest = sha256(request).digest()
        with self._guard:
            file = self._file
            if file is None or task != id_to_text(self._task):
                return 410, b""
            said = signed_token_request(self._task, digest)
            if not verifies(bytes.fromhex(device), signature, said):
                return 401, b""
            try:
                # before it is written down: what is malformed takes nobody's place
                answer = file.key.sign(request)
            except ProtocolError:
                return 422, b""
            if not file.enter(bytes.fromhex(device), digest, self._users[device]):
                return 409, b""
        return 200, answer

    def _shut(self) -> None:
        if self._file is not None and self._task not in self._in_memory:
            self._file.close()
        self._file, self._task = None, b""


class _TokenFile:
    """The key of one task, and digests of what was signed with it.

    With a key it is made; otherwise it is there.
    """

    def __init__(self, path: Path | None, key: IssuerKey | None = None) -> None:
        self._path = Path(":memory:") if path is None else path
        if key is not None and path is not None:
            path.touch(mode=0o600)
        with _KIND.errors(self._path):
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            if path is not None:
                make_durable(self._connection)
            if key is None:
                _KIND.check(self._connection, self._path)
                (value,) = self._connection.execute("SELECT value FROM key").fetchone()
                key = IssuerKey.from_bytes(value)
            else:
                self._lay(key)
        self.key = key

    def _lay(self, key: IssuerKey) -> None:
        execute = self._connection.execute
        execute("BEGIN")
        for statement in _LAYOUT:
            execute(statement)
        execute("INSERT INTO key VALUES (?)", (key.to_bytes(),))
        execute(f"PRAGMA application_id = {_KIND.application}")
        execute(f"PRAGMA user_version = {_KIND.schema}")
        execute("COMMIT")

    def enter(self, device: bytes, request: bytes, most: int) -> bool:
        """Write a request down, durably; False if the device has as many others as it may."""
        here = (device, request)
        with _KIND.errors(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                known = self._connection.execute(
                    "SELECT 1 FROM issued WHERE device = ? AND request = ?", here
                ).fetchone()
                (count,) = self._connection.execute(
                    "SELECT count(*) FROM issued WHERE device = ?", (device,)
                ).fetchone()
                if known is None and count < most:
                    self._connection.execute("INSERT INTO issued VALUES (?, ?)", here)
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        return known is not None or count < most

    def close(self) -> None:
        self._connection.close()


def _path(folder: Path | None, task: bytes) -> Path | None:
    return None if folder is None else folder / f".tokens-{task.hex()[:32]}.sqlite"
