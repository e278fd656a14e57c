"""The address of an owner's page, which stays the same, and the lock of the one that serves it.

Beside the store lies a file that only its owner can read. It has the page's name and port, so that
a bookmark leads to the same place tomorrow; and hashes of the cookies of browsers that came in by a
link, which may ask for the passphrase without a new one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from hdpmf.common.base.files import atomic_write, lock_file, storage_errors
from hdpmf.common.web.local_server import Loopback
from hdpmf.errors import ConfigError, needs

_STORE = "store.sqlite"
_LOCK = ".page-lock"
_ENDING = ".page"
_MOST_BROWSERS = 8


@dataclass(frozen=True, slots=True)
class PageAddress:
    """The name and port of a store's page.

    Attributes:
        name: First part of the host name; other users of the machine cannot guess it.
        browsers: Hashes of the cookies of browsers that have come in by a link.
    """

    file: Path
    name: str
    port: int
    browsers: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, store: Path) -> PageAddress:
        """Return the address of a store's page; a new one if it has none."""
        file = store.with_name(store.name + _ENDING)
        try:
            kept = json.loads(file.read_bytes())
            name, port = str(kept["name"]), int(kept["port"])
            browsers = tuple(str(each) for each in kept["browsers"])[-_MOST_BROWSERS:]
        except FileNotFoundError:
            return cls(file, f"p{secrets.token_hex(8)}", 0)
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{file}, which has the address of this page, cannot be read; delete it, and the "
                "page gets a new address"
            ) from None
        if not (name.isascii() and name.isalnum() and 0 < port < 65_536):
            raise ConfigError(f"{file} has no address of a page; delete it, and there is a new one")
        return cls(file, name, port, browsers)

    @property
    def host(self) -> str:
        """Host and port, as browsers name them."""
        return f"{self.name}.localhost:{self.port}"

    def listen(self, port: int = 0) -> tuple[PageAddress, Loopback]:
        """Listen at this address.

        Where its port is taken by another program, the address gets another one. A ``port`` that
        is given must be free.
        """
        try:
            loopback = Loopback.listen(port or self.port, self.name)
        except ConfigError:
            if port:
                raise
            loopback = Loopback.listen(0, self.name)
        now = replace(self, port=loopback.port)
        try:
            now.save()
        except BaseException:
            loopback.close()
            raise
        return now, loopback

    def with_browser(self, cookie: str) -> PageAddress:
        """Return the address with one more known browser, saved."""
        browsers = (*self.browsers, sha256(cookie.encode()).hexdigest())[-_MOST_BROWSERS:]
        now = replace(self, browsers=browsers)
        now.save()
        return now

    def knows(self, cookie: str) -> bool:
        """Return True if this cookie was given to a browser that came in by a link."""
        return bool(cookie) and sha256(cookie.encode()).hexdigest() in self.browsers

    def save(self) -> None:
        """Write the address to its file."""
        kept = {
            "name": self.name,
            "port": self.port,
            "browsers": list(self.browsers),
        }
        atomic_write(self.file, json.dumps(kept).encode(), mode=0o600)


def default_store() -> Path:
    """Return the store of who names none, in the folder that this system has for such data."""
    with needs("platformdirs", "page"):
        from platformdirs import user_data_path
    folder = user_data_path("hdpmf", appauthor=False)
    with storage_errors(f"cannot make {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / _STORE


@contextmanager
def only_server(store: Path) -> Iterator[None]:
    """Let one process at a time serve the page of a store.

    Raises:
        ConfigError: Another one does.
    """
    with storage_errors(f"cannot use the folder of {store}"):
        beside = os.open(store.with_name(store.name + _LOCK), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            lock_file(beside)
        except BlockingIOError:
            raise ConfigError(
                f"the page of {store} is open already, at http://{PageAddress.of(store).host}/; "
                "go on there, or end the command that serves it"
            ) from None
        yield
    finally:
        os.close(beside)
