"""The issuer of blind tokens: one for each participant, in each task.

A task has a key of its own. Its file has the secret key and, of each participant that has asked,
the digest of what was signed for it, and is there before anybody sees the task. The same request is
answered with the same bytes, so that a device may ask again after a kill; for other bytes it gets
nothing. The file ends with the task's period. It is left out of copies (its name
begins with a dot): a folder that was put back issues no more tokens for a task under way, because
it has forgotten who has one.

Answers are HTTP's:

======  =========================================================================
status  meaning
======  =========================================================================
200     a signature; the same for the same request
401     a stranger, or a signature of the device that does not hold
404     no such task is under way
409     the device has its token
410     the task is over, or its file is lost
413     longer than a request
422     no request for a token of this task
500     this machine has miscomputed; the device may ask again
======  =========================================================================
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.two_servers.dap.messages import (
    TASK_ID_SIZE,
    id_from_text,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.tokens import REQUEST_SIZE, IssuerKey
from hdpmf.common.base.files import FileKind, make_durable
from hdpmf.common.base.logs import event
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.identity import verifies
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.errors import ProtocolError
from hdpmf.untrusted.service.participants import Participants

_KIND = FileKind(
    name="a file of tokens",
    application=0x68647074,  # "hdpt"
    schema=3,
    safe="No token was given out that is not in it; free space, and devices ask again",
    remedy="give the run up",
)

_LAYOUT = (
    "CREATE TABLE key (value BLOB NOT NULL)",
    "CREATE TABLE asked (participant INTEGER PRIMARY KEY, request BLOB NOT NULL)",
)

_FILES = ".tokens-*"


class TokenIssuer:
    """Issues tokens for one task at a time, to threads of a web server or a test.

    Args:
        participants: Who may ask, also those who enrolled after the task began.
    """

    def __init__(self, participants: Participants) -> None:
        self.participants = participants
        self._guard = threading.Lock()
        self._made: dict[bytes, _TokenFile] = {}
        self._task = ""
        self._file: _TokenFile | None = None
        self._over: set[str] = set()

    def create(self, task: bytes, key: IssuerKey, folder: Path | None = None) -> None:
        """Write down the key of a task, before anybody sees the task.

        Args:
            task: Its id.
            key: Its public half is in the task.
            folder: Where the file is; in memory only where not given.
        """
        self._made[task] = _TokenFile(_path(folder, task), key)

    def open(self, task: bytes, folder: Path | None = None) -> bool:
        """Issue tokens for a task from now on; False if its file is lost, so that there are none.

        Args:
            task: Its id.
            folder: As it was created with.
        """
        name = id_to_text(task)
        with self._guard:
            if self._task == name:
                return True  # requests under way would be refused for good
            self._shut()
            path = _path(folder, task)
            if task in self._made:
                self._file = self._made[task]
            elif path is not None and path.exists():
                self._file = _TokenFile(path)
            else:
                self._over.add(name)
                return False
            self._task = name
            return True

    def close(self) -> None:
        """Issue no more tokens for the task."""
        with self._guard:
            if self._task:
                self._over.add(self._task)
            self._shut()

    def drop(self, folder: Path | None = None) -> None:
        """Delete the key and who has tokens, after the period of a task."""
        self.close()
        for file in self._made.values():
            file.close()
        self._made.clear()
        if folder is not None:
            for path in sorted(folder.glob(_FILES)):
                path.unlink(missing_ok=True)

    def refusal(self, task: str, device: str, length: int) -> int:
        """Return the status of a refusal before any of so many bytes is read, or 0."""
        file = self._find(task)
        if file is None:
            return 410 if task in self._over else 404
        if self._number(device) is None:
            return 401
        return 413 if length > REQUEST_SIZE else 0

    def take(self, task: str, device: str, signature: bytes, request: bytes) -> tuple[int, bytes]:
        """Return the answer to a request: a status, and the blind signature or nothing.

        Raises:
            StorageError: The disk refused; the device will ask again.
        """
        refused = self.refusal(task, device, len(request))
        file, number = self._find(task), self._number(device)
        if refused or file is None or number is None:
            return refused or 410, b""
        digest = sha256(request).digest()
        said = signed_token_request(id_from_text(task, TASK_ID_SIZE), digest)
        if not verifies(from_base64(device), signature, said):
            return 401, b""
        try:
            file.key.read(request)  # what is malformed takes nobody's place
        except ProtocolError:
            return 422, b""
        status = file.enter(number, digest)
        if status != 200:
            return status, b""
        try:
            return 200, file.key.sign(request)
        except ProtocolError as error:
            event("token-miscomputed", logging.ERROR, error)
            return 500, b""

    def _number(self, device: str) -> int | None:
        """Return a participant's number, by its identity; None for a stranger."""
        try:
            return self.participants.find(from_base64(device))
        except ProtocolError:
            return None

    def _find(self, task: str) -> _TokenFile | None:
        """Return the file of a task that is under way."""
        with self._guard:
            return self._file if task == self._task else None

    def _shut(self) -> None:
        if self._file is not None and self._file not in self._made.values():
            self._file.close()
        self._file, self._task = None, ""


class _TokenFile:
    """The key of one task, who has asked, and digests of what was signed with it.

    Args:
        path: Where it is; None for memory.
        made: A new file, with this key.
    """

    def __init__(self, path: Path | None, made: IssuerKey | None = None) -> None:
        self._path = Path(":memory:") if path is None else path
        if made is not None and path is not None:
            path.touch(mode=0o600)
        self._writing = threading.Lock()
        self._open = True
        with _KIND.errors(self._path):
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            make_durable(self._connection)
            if made is None:
                _KIND.check(self._connection, self._path)
            else:
                self._lay(made)
            (value,) = self._connection.execute("SELECT value FROM key").fetchone()
            self.key = IssuerKey.from_bytes(value)

    def _lay(self, key: IssuerKey) -> None:
        execute = self._connection.execute
        execute("BEGIN")
        for statement in _LAYOUT:
            execute(statement)
        execute("INSERT INTO key VALUES (?)", (key.to_bytes(),))
        execute(f"PRAGMA application_id = {_KIND.application}")
        execute(f"PRAGMA user_version = {_KIND.schema}")
        execute("COMMIT")

    def enter(self, participant: int, request: bytes) -> int:
        """Write a request down, durably.

        Returns:
            200; 409 if the participant has asked by another one; 410 if the task is over.
        """
        with self._writing, _KIND.errors(self._path):
            if not self._open:
                return 410
            execute = self._connection.execute
            execute("INSERT OR IGNORE INTO asked VALUES (?, ?)", (participant, request))
            query = "SELECT request FROM asked WHERE participant = ?"
            (known,) = execute(query, (participant,)).fetchone()
        return 200 if known == request else 409

    def close(self) -> None:
        """Close it; who waits to be written down gets 410."""
        with self._writing:
            self._open = False
            self._connection.close()


def _path(folder: Path | None, task: bytes) -> Path | None:
    return None if folder is None else folder / f".tokens-{task.hex()[:32]}.sqlite"
