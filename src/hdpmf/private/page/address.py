"""The address of an owner's page, which stays the same, and links to a page that is being served.

Beside the store lies a file that only its owner can read. It has the page's name and port, so that
a bookmark leads to the same place tomorrow; hashes of the cookies of browsers that came in by a
link, which may ask for the passphrase without a new one; and a key, new at every start, by which a
second ``hdpmf device open`` gets a link from the page that runs. The key itself is never sent:
whoever listens on our port, as another user may while our page is off, learns nothing from us.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from hdpmf.common.base.files import atomic_write
from hdpmf.common.web.local_server import ENTER, Loopback, equal_secrets
from hdpmf.errors import ConfigError

LINK = "/link"
"""Path at which a second command asks the page for a link."""

_ENDING = ".page"
_MOST_BROWSERS = 8
_SECONDS = 5.0
_MOST_BYTES = 1000


@dataclass(frozen=True, slots=True)
class PageAddress:
    """The name and port of a store's page.

    Attributes:
        name: First part of the host name; other users of the machine cannot guess it.
        key: Proves to the page that a command is run by its owner, and to the command that the
            page is ours.
        browsers: Hashes of the cookies of browsers that have come in by a link.
    """

    file: Path
    name: str
    port: int
    key: str = field(repr=False)
    browsers: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, store: Path) -> PageAddress:
        """Return the address of a store's page; a new one if it has none."""
        file = store.with_name(store.name + _ENDING)
        try:
            kept = json.loads(file.read_bytes())
            name, port, key = str(kept["name"]), int(kept["port"]), str(kept["key"])
            browsers = tuple(str(each) for each in kept["browsers"])[-_MOST_BROWSERS:]
        except FileNotFoundError:
            return cls(file, f"p{secrets.token_hex(8)}", 0, "")
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{file}, which has the address of this page, cannot be read; delete it, and the "
                "page gets a new address"
            ) from None
        if not (name.isascii() and name.isalnum() and 0 < port < 65_536 and key):
            raise ConfigError(f"{file} has no address of a page; delete it, and there is a new one")
        return cls(file, name, port, key, browsers)

    @property
    def host(self) -> str:
        """Host and port, as browsers name them."""
        return f"{self.name}.localhost:{self.port}"

    def listen(self, port: int = 0) -> tuple[PageAddress, Loopback]:
        """Listen at this address, and return it with a new key.

        Where its port is taken by another program, the address gets another one. A ``port`` that
        is given must be free.
        """
        try:
            loopback = Loopback.listen(port or self.port, self.name)
        except ConfigError:
            if port:
                raise
            loopback = Loopback.listen(0, self.name)
        now = replace(self, port=loopback.port, key=secrets.token_hex(32))
        try:
            now.save()
        except BaseException:
            loopback.close()
            raise
        return now, loopback

    def running_link(self) -> str | None:
        """Return a one-time link from the page that is served here; None if there is none."""
        if not self.port:
            return None
        nonce = secrets.token_hex(16)
        question = json.dumps({"nonce": nonce, "proof": self._proof("ask", nonce)})
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            head = {
                "host": self.host,
                "origin": f"http://{self.host}",
                "content-type": "application/json",
            }
            connection.request("POST", LINK, question, head)
            answer = json.loads(connection.getresponse().read(_MOST_BYTES))
            token, proof = str(answer["token"]), str(answer["proof"])
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return None
        finally:
            connection.close()
        ours = equal_secrets(proof, self._proof("answer", nonce, token))
        return f"http://{self.host}{ENTER}#{token}" if ours else None

    def is_owner(self, fields: Mapping[str, str]) -> bool:
        """Return True if a request for a link was made with the key."""
        nonce = fields.get("nonce", "")
        return bool(nonce) and equal_secrets(fields.get("proof", ""), self._proof("ask", nonce))

    def link_fields(self, fields: Mapping[str, str], token: str) -> dict[str, Any]:
        """Return the answer to a request for a link."""
        return {"token": token, "proof": self._proof("answer", fields["nonce"], token)}

    def with_browser(self, cookie: str) -> PageAddress:
        """Return the address with one more known browser, saved."""
        browsers = (*self.browsers, sha256(cookie.encode()).hexdigest())[-_MOST_BROWSERS:]
        now = replace(self, browsers=browsers)
        now.save()
        return now

    def knows(self, cookie: str) -> bool:
        """Return True if this cookie was given to a browser that came in by a link."""
        return bool(cookie) and sha256(cookie.encode()).hexdigest() in self.browsers

    def _proof(self, *words: str) -> str:
        return hmac.new(bytes.fromhex(self.key), "\n".join(words).encode(), sha256).hexdigest()

    def save(self) -> None:
        """Write the address to its file."""
        kept = {
            "name": self.name,
            "port": self.port,
            "key": self.key,
            "browsers": list(self.browsers),
        }
        atomic_write(self.file, json.dumps(kept).encode(), mode=0o600)
