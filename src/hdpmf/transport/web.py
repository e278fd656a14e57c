"""Files and uploads over HTTPS, for a device: one recommender's folder, and the leader of two servers.

Nothing that the other side says makes this device go elsewhere: redirects are not followed, names are those that the
caller gives, and certificates must come from the authority that is pinned. Sizes are capped before anything is kept,
and everything has an end.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hdpmf.errors import ConfigError, TransportError
from hdpmf.protocol.addresses import check_folder_address
from hdpmf.protocol.servers import Server
from hdpmf.transport.extras import needs

with needs("httpx"):
    import httpx

TIMEOUT = 20.0
"""Seconds that a connection, or a part of an answer, may take."""

LONGEST = 300.0
"""Seconds that a whole answer may take."""

_FAILED = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, RuntimeError)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class WebDoor:
    """A device's way out: a recommender's files, and uploads to a leader.

    Args:
        address: The recommender's folder, ``https://host:port``.
        authority: What its certificate must come from (PEM); the public authorities if empty.
    """

    def __init__(self, address: str, authority: bytes = b"") -> None:
        self._address = check_folder_address(address)
        self._trust = _trust(authority.decode("ascii", "replace"))
        self._leaders: dict[str, ssl.SSLContext] = {}

    def __repr__(self) -> str:
        return f"WebDoor({self._address})"

    def trust(self, authority: bytes) -> None:
        """From now on the recommender's certificate must come from one of these (PEM)."""
        self._trust = _trust(authority.decode("ascii", "replace"))

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        """A file of the folder and its ETag; None where it still has this one.

        Raises:
            TransportError: It is not there, cannot be reached, is longer than ``most``, or took too long.
        """
        if _NAME.fullmatch(name) is None:
            raise TransportError("a file of a recommender has a plain name")
        headers = {"accept-encoding": "identity"} | ({"if-none-match": etag} if etag else {})
        try:
            with (
                _connection(self._trust) as client,
                client.stream("GET", f"{self._address}/{name}", headers=headers) as answer,
            ):
                if answer.status_code == 304 and etag:
                    return None
                if answer.status_code != 200:
                    raise TransportError(f"{name} is not there: the answer was {answer.status_code}")
                if int(answer.headers.get("content-length", "0")) > most:
                    raise TransportError(f"{name} is longer than the {most:,} bytes that it may have")
                return _body(name, answer, most), answer.headers.get("etag", "")[:200]
        except (*_FAILED, ValueError) as error:
            raise TransportError(f"{name} could not be fetched ({type(error).__name__})") from error

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Callable[[], None]
    ) -> int:
        """Put a report to the leader; the status of its answer, which is not read further.

        ``leaving`` is called when the connection is open, before anything of the report is given to it.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """
        trust = self._leaders.get(leader.authority)
        if trust is None:
            trust = self._leaders[leader.authority] = _trust(leader.authority)

        def content() -> Iterator[bytes]:
            leaving()
            yield body

        told = headers | {"content-length": str(len(body)), "accept-encoding": "identity"}
        try:
            with (
                _connection(trust) as client,
                client.stream("PUT", leader.endpoint(path), headers=told, content=content()) as answer,
            ):
                return answer.status_code
        except _FAILED as error:
            raise TransportError(f"the leader could not be reached ({type(error).__name__})") from error


def _body(name: str, answer: httpx.Response, most: int) -> bytes:
    parts, size = [], 0
    for part in answer.iter_raw():
        size += len(part)
        if size > most:
            raise TransportError(f"{name} is longer than the {most:,} bytes that it may have")
        parts.append(part)
    return b"".join(parts)


def _trust(authority: str) -> ssl.SSLContext:
    """Certificates must come from this authority; from a public one, if it is empty."""
    try:
        return ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise ConfigError("the authority that certificates must come from is no certificate (PEM)") from None


@contextmanager
def _connection(trust: ssl.SSLContext) -> Iterator[httpx.Client]:
    """For one request, which ends after a while, however slowly the other side drips."""
    with httpx.Client(verify=trust, timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
        end = threading.Timer(LONGEST, client.close)
        end.daemon = True
        end.start()
        try:
            yield client
        finally:
            end.cancel()
