"""Files and uploads over HTTPS, for a device: one recommender's folder, and the leader of two
servers.

Nothing that the other side says makes this device go elsewhere: names are those that the caller
gives, and each request has a connection of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hdpmf.common.net.https import MAX_PROBLEM, HttpsClient
from hdpmf.common.protocol.addresses import check_address
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import TransportError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class WebDoor:
    """A device's way out: a recommender's files, and uploads to a leader.

    Args:
        address: The recommender's folder, ``https://host:port``.
        authority: What its certificate must come from (PEM); the public authorities if empty.
    """

    def __init__(self, address: str, authority: bytes = b"") -> None:
        self._address = check_address(address)
        self._client = HttpsClient("the recommender", authority)
        self._leaders: dict[str, HttpsClient] = {}

    def __repr__(self) -> str:
        return f"WebDoor({self._address})"

    def trust(self, authority: bytes) -> None:
        """From now on the recommender's certificate must come from one of these (PEM)."""
        self._client.trust(authority)

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        """Return a file of the folder and its ETag; None where it still has this one.

        Raises:
            TransportError: It is not there, cannot be reached, is longer than ``most``, or took too
                long.
        """
        if _NAME.fullmatch(name) is None:
            raise TransportError("a file of a recommender has a plain name")
        headers = {"if-none-match": etag} if etag else {}
        try:
            answer = self._client.request(
                "GET", f"{self._address}/{name}", most=most, headers=headers
            )
        except TransportError as error:
            raise TransportError(f"{name} could not be fetched: {error}") from error
        if answer.status == 304 and etag:
            return None
        if answer.status != 200:
            raise TransportError(f"{name} is not there: the answer was {answer.status}")
        return answer.body, answer.headers.get("etag", "")[:200]

    def upload(
        self,
        leader: Server,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        """Put a report to the leader, and return the status of its answer.

        ``leaving`` is called when the connection is open, before anything of the report is given to
        it.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """
        client = self._leaders.get(leader.authority)
        if client is None:
            client = self._leaders[leader.authority] = HttpsClient("the leader", leader.authority)
        url = leader.endpoint(path)
        return client.request(
            "PUT", url, most=MAX_PROBLEM, headers=headers, body=body, leaving=leaving
        ).status
