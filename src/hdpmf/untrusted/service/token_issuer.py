"""The issuer of blind tokens: one for each enrolled device, in each task.

A task has a key of its own. Its file has the secret key, the devices that may ask and, of each, the
digests of what was signed for it, and is there before anybody sees the task. The same request is
answered with the same bytes, so that a device may ask again after a kill; for other bytes it gets
nothing. The file ends with the task's period. It is left out of copies (its name
begins with a dot): a folder that was put back issues no more tokens for a task under way, because
it has forgotten who has one.

The file is all that an issuer needs, so that other processes of this machine can issue from it,
too: a request is written down by one transaction, which one of them does at a time.

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
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
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
from hdpmf.common.protocol.identity import verifies
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.errors import DapError, ProtocolError, StorageError

_KIND = FileKind(
    name="a file of tokens",
    application=0x68647074,  # "hdpt"
    schema=2,
    safe="No token was given out that is not in it; free space, and devices ask again",
    remedy="give the run up",
)

_LAYOUT = (
    "CREATE TABLE key (value BLOB NOT NULL)",
    "CREATE TABLE devices (device BLOB PRIMARY KEY, request BLOB) WITHOUT ROWID",
)

_FILES = ".tokens-*"

_BUSY_SECONDS = 30.0  # for other processes that write to the same file


class TokenIssuer:
    """Issues tokens for one task at a time, to threads of a web server or a test.

    Args:
        runs: Where a recommender has the folders of its runs. With it this is an issuer beside the
            recommender: it makes no files, and issues from the one of the task that it is asked
            for.
    """

    def __init__(self, runs: Path | None = None) -> None:
        self._runs = runs
        self._guard = threading.Lock()
        self._in_memory: dict[bytes, _TokenFile] = {}
        self._task = ""
        self._file: _TokenFile | None = None
        self._over: set[str] = set()

    def create(
        self, task: bytes, key: IssuerKey, devices: Collection[str], folder: Path | None = None
    ) -> None:
        """Write down the key of a task and who may ask, before anybody sees the task.

        Args:
            task: Its id.
            key: Its public half is in the task.
            devices: Identities of the enrolled.
            folder: Where the file is; in memory only where not given.
        """
        made = _TokenFile(_path(folder, task), of=(key, devices))
        if folder is None:
            self._in_memory[task] = made
        else:
            made.close()

    def open(self, task: bytes, folder: Path | None = None) -> bool:
        """Issue tokens for a task from now on; False if its file is lost, so that there are none.

        Args:
            task: Its id.
            folder: As it was created with.
        """
        with self._guard:
            if self._task == id_to_text(task) and self._file is not None and self._file.is_there():
                return True  # requests under way would be refused for good
            self._shut()
            path = _path(folder, task)
            if path is None:
                self._file = self._in_memory.get(task)
            elif path.exists():
                self._file = _TokenFile(path)
            if self._file is None:
                self._over.add(id_to_text(task))
                return False
            self._task = id_to_text(task)
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
        self._in_memory.clear()
        if folder is not None:
            for path in sorted(folder.glob(_FILES)):
                path.unlink(missing_ok=True)

    def refusal(self, task: str, device: str, length: int) -> int:
        """Return the status of a refusal before any of so many bytes is read, or 0."""
        file = self._find(task)
        if file is None:
            return 410 if task in self._over else 404
        return file.refusal(device) or (413 if length > REQUEST_SIZE else 0)

    def take(self, task: str, device: str, signature: bytes, request: bytes) -> tuple[int, bytes]:
        """Return the answer to a request: a status, and the blind signature or nothing.

        Raises:
            StorageError: The disk refused; the device will ask again.
        """
        refused = self.refusal(task, device, len(request))
        if refused:
            return refused, b""
        file = self._find(task)
        if file is None:
            return 410, b""
        digest = sha256(request).digest()
        said = signed_token_request(id_from_text(task, TASK_ID_SIZE), digest)
        if not verifies(bytes.fromhex(device), signature, said):
            return 401, b""
        try:
            file.key.read(request)  # what is malformed takes nobody's place
        except ProtocolError:
            return 422, b""
        status = file.enter(bytes.fromhex(device), digest)
        if status != 200:
            return status, b""
        try:
            return 200, file.key.sign(request)
        except ProtocolError as error:
            event("token-miscomputed", logging.ERROR, error)
            return 500, b""

    def _find(self, task: str) -> _TokenFile | None:
        """Return the file of a task that is under way."""
        with self._guard:
            if self._runs is not None:
                self._follow(self._runs, task)
            return self._file if task == self._task else None

    def _follow(self, runs: Path, task: str) -> None:
        """Open the file of a task that the recommender has made, unless it is open."""
        if self._file is not None and not self._file.is_there():
            self._over.add(self._task)  # another one of its name would be an old copy
            self._shut()
        if task == self._task or task in self._over:
            return
        try:
            name = _name(id_from_text(task, TASK_ID_SIZE))
        except DapError:
            return
        for path in runs.glob(f"*/{name}"):
            self._shut()
            self._file = _TokenFile(path, check=False)  # the recommender has checked it
            self._task = task

    def _shut(self) -> None:
        if self._file is not None and self._file not in self._in_memory.values():
            self._file.close()
        self._file, self._task = None, ""


class _TokenFile:
    """The key of one task, who may ask, and digests of what was signed with it.

    Args:
        path: Where it is; None for memory.
        of: Makes it: the key, and the devices that may ask.
        check: Look through all of it for damage.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        of: tuple[IssuerKey, Collection[str]] | None = None,
        check: bool = True,
    ) -> None:
        self._path = Path(":memory:") if path is None else path
        if of is not None and path is not None:
            path.touch(mode=0o600)
        self._waiting: deque[_Entry] = deque()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._open = True
        with _KIND.errors(self._path):
            self._connection = self._connect()
            # readers do not wait for a commit
            self._reader = self._connection if path is None else self._connect()
            if path is not None:
                make_durable(self._connection)
                self._identity = _identity(path)
            if of is None:
                (_KIND.check if check else _KIND.read_schema)(self._connection, self._path)
                (value,) = self._connection.execute("SELECT value FROM key").fetchone()
                self.key = IssuerKey.from_bytes(value)
            else:
                self.key = of[0]
                self._lay(*of)

    def _connect(self) -> sqlite3.Connection:
        memory = self._path == Path(":memory:")
        return sqlite3.connect(
            # an issuer beside the recommender must not make a file that was deleted just now
            self._path if memory else f"{self._path.absolute().as_uri()}?mode=rw",
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=not memory,
        )

    def _lay(self, key: IssuerKey, devices: Collection[str]) -> None:
        execute = self._connection.execute
        execute("BEGIN")
        for statement in _LAYOUT:
            execute(statement)
        execute("INSERT INTO key VALUES (?)", (key.to_bytes(),))
        self._connection.executemany(
            "INSERT INTO devices VALUES (?, NULL)", [(bytes.fromhex(each),) for each in devices]
        )
        execute(f"PRAGMA application_id = {_KIND.application}")
        execute(f"PRAGMA user_version = {_KIND.schema}")
        execute("COMMIT")

    def is_there(self) -> bool:
        """Return False if the file was deleted, or another one has its name."""
        memory = self._path == Path(":memory:")
        return memory or _identity(self._path) == self._identity

    def refusal(self, device: str) -> int:
        """Return 0 if a device may ask, by its identity in lower case, or the status for it."""
        try:
            identity = bytes.fromhex(device)
        except ValueError:
            return 401
        with self._reading, _KIND.errors(self._path):
            if not self._open or not self.is_there():
                return 410
            found = self._reader.execute("SELECT 1 FROM devices WHERE device = ?", (identity,))
            return 401 if found.fetchone() is None or device != identity.hex() else 0

    def enter(self, device: bytes, request: bytes) -> int:
        """Write a request down, durably, in one commit with all that came during the last one.

        Returns:
            200; 409 if the device has asked by others; 410 if the file is gone.
        """
        entry = _Entry(device, request)
        self._waiting.append(entry)
        with self._writing:
            if not entry.status.done():
                group = [self._waiting.popleft() for _ in range(len(self._waiting))]
                try:
                    for each, status in zip(group, self._write(group), strict=True):
                        each.status.set_result(status)
                except BaseException as error:
                    for each in group:
                        each.status.set_exception(error)
        return entry.status.result()

    def _write(self, group: list[_Entry]) -> list[int]:
        if not self._open or not self.is_there():
            return [410] * len(group)
        with _KIND.errors(self._path):
            self._connection.execute("BEGIN IMMEDIATE")  # no other process in between
            try:
                statuses = [self._insert(entry) for entry in group]
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        return statuses

    def _insert(self, entry: _Entry) -> int:
        execute = self._connection.execute
        (known,) = execute(
            "SELECT request FROM devices WHERE device = ?", (entry.device,)
        ).fetchone()
        if known is None:
            execute(
                "UPDATE devices SET request = ? WHERE device = ?", (entry.request, entry.device)
            )
        return 200 if known in (None, entry.request) else 409

    def close(self) -> None:
        """Close it; who waits to be written down gets 410."""
        with self._writing, self._reading:
            self._open = False
            self._reader.close()
            self._connection.close()


class _Entry:
    """A request that is to be written down."""

    def __init__(self, device: bytes, request: bytes) -> None:
        self.device = device
        self.request = request
        self.status: Future[int] = Future()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error.strerror}. {_KIND.safe}") from error
    return found.st_dev, found.st_ino


def _name(task: bytes) -> str:
    return f".tokens-{task.hex()[:32]}.sqlite"


def _path(folder: Path | None, task: bytes) -> Path | None:
    return None if folder is None else folder / _name(task)
