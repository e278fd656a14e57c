"""A device's way out: a recommender's files, tokens, and uploads to a leader."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from hdpmf.common.net.https import HEALTH_PATH, MAX_PROBLEM, HttpsAnswer, HttpsClient
from hdpmf.common.protocol.servers import Server, check_address
from hdpmf.errors import TransportError

TOLERANCE = 300.0
"""Seconds that a device's clock may be wrong."""

_KEEP = 20.0  # seconds that an idle connection is kept

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class WebClient:
    """A device's way out: a recommender's files, tokens, and uploads to a leader.

    Args:
        address: The recommender's folder, ``https://host:port``.
        authority: Issuer of its certificate (PEM); the public authorities if empty.
    """

    def __init__(
        self, address: str, authority: bytes = b"", clock: Callable[[], float] = time.time
    ) -> None:
        self._address = check_address(address)
        self._client = HttpsClient("the recommender", authority)
        self._clock = clock

    def __repr__(self) -> str:
        return f"WebClient({self._address})"

    def close(self) -> None:
        """Interrupt the request to the recommender that is under way."""
        self._client.close()

    def fetch(self, name: str, most: int) -> bytes:
        """Return a file of the folder.

        The request is the same for every device and every time. A validator (``If-None-Match``) is
        not sent: an ETag of one device's own would tell the server that it is back.

        Raises:
            TransportError: It is absent, unreachable, or took too long.
            TooLongError: It is longer than ``most``.
        """
        if _NAME.fullmatch(name) is None:
            raise TransportError("a file of a recommender has a plain name")
        try:
            answer = self._client.request("GET", f"{self._address}/{name}", most=most)
        except TransportError as error:
            failed = type(error)(f"{name} could not be fetched: {error}")
            failed.received = error.received
            raise failed from error
        if answer.status != 200:
            failed = TransportError(f"{name} is not there: the answer was {answer.status}")
            failed.received = len(answer.body)
            raise failed
        return answer.body

    def upload(
        self,
        leader: Server,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        """Put a report to the leader, and return the status of its answer.

        Clocks are compared first, over the same connection, by a request that is the same for
        everybody: a report that comes too early or too late is paid for nothing. ``leaving`` is
        called after that, before anything of the report's request is sent.

        Raises:
            TransportError: It cannot be reached, did not answer, or the clocks differ.
        """
        with HttpsClient("the leader", leader.authority, keep=_KEEP) as client:
            health = client.request("GET", leader.endpoint(HEALTH_PATH), most=MAX_PROBLEM)
            self._compare_clocks(health)
            return client.request(
                "PUT",
                leader.endpoint(path),
                most=MAX_PROBLEM,
                headers=headers,
                body=body,
                leaving=leaving,
            ).status

    def _compare_clocks(self, answer: HttpsAnswer) -> None:
        theirs = answer.date
        ahead = 0.0 if theirs is None else self._clock() - theirs
        if abs(ahead) >= TOLERANCE:
            how = "ahead of" if ahead > 0 else "behind"
            raise TransportError(
                f"this machine's clock is {abs(ahead):.0f} s {how} the leader's; set it right. "
                "Nothing has left"
            )

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Post a request for a token to the recommender; return status and body of its answer.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """
        url = f"{self._address}{path}"
        answer = self._client.request("POST", url, most=MAX_PROBLEM, headers=headers, body=body)
        return answer.status, answer.body
