"""The way out: the only module of the private side that can send. It reads, and sends `Sealed`.

It knows the origins of the recommenders that were joined and of their leaders, and no ratings.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from hdpmf.common.aggregation.two_servers.dap.messages import MEDIA_TYPES, UploadRequest
from hdpmf.common.net.https import HEALTH_PATH, MAX_PROBLEM, HttpsAnswer, HttpsClient
from hdpmf.common.protocol.identity import MOST_INVITATION_BYTES, Invitation, InvitationLink
from hdpmf.common.protocol.published import INVITATION
from hdpmf.errors import TransportError
from hdpmf.private.device.seal import Sealed

TOLERANCE = 300.0
"""Seconds that a device's clock may be wrong."""

_KEEP = 20.0  # seconds that a connection to a leader is kept: the time is asked for first


class Told(NamedTuple):
    """What the other side answered."""

    status: int
    body: bytes


class Carrier(Protocol):
    """The connection to recommenders and leaders. Whoever answers may be lying."""

    def read(self, url: str, most: int) -> bytes:
        """Return a public file.

        Raises:
            TransportError: It is not there, cannot be reached, or took too long.
            TooLongError: It is longer than ``most``.
        """

    def send(self, sealed: Sealed) -> Told:
        """Send something.

        Raises:
            TransportError: The other side cannot be reached, or did not answer.
        """


def read_invitation(link: InvitationLink, authority: str = "") -> Invitation:
    """Return the invitation that a link is about.

    Args:
        authority: Issuer of the recommender's certificate (PEM), in a trial.

    Raises:
        TransportError: The recommender cannot be reached.
        ConfigError: It shows another one.
    """
    url = f"{link.address}/{INVITATION}"
    with HttpsClient("the recommender", authority) as client:
        answer = client.request("GET", url, most=MOST_INVITATION_BYTES)
    if answer.status != 200:
        raise TransportError(f"{url} is not there: the answer was {answer.status}")
    return link.opened(answer.body, authority)


class WebCarrier:
    """The carrier by HTTPS, for the origins of some invitations."""

    def __init__(
        self, invitations: Iterable[Invitation], clock: Callable[[], float] = time.time
    ) -> None:
        self._origins: dict[str, tuple[str, str]] = {}  # name and authority
        for each in invitations:
            leader = each.servers.leader
            self._origins[each.address] = "the recommender", each.authority
            self._origins[leader.url.rstrip("/")] = "the leader", leader.authority
        self._clock = clock

    def __repr__(self) -> str:
        return f"WebCarrier({len(self._origins)} origins)"

    def read(self, url: str, most: int) -> bytes:
        """Return a public file, by a request that is the same for every device and every time.

        No validator (``If-None-Match``) is sent: an ETag of one device's own would tell the server
        that it is back.
        """
        with self._client(url) as client:
            answer = client.request("GET", url, most=most)
        if answer.status != 200:
            failed = TransportError(f"{url} is not there: the answer was {answer.status}")
            failed.received = len(answer.body)
            raise failed
        return answer.body

    def send(self, sealed: Sealed) -> Told:
        """Send something; a report only where this clock and the leader's agree.

        One that comes too early or too late counts for nothing, and is paid.
        """
        if type(sealed) is not Sealed:
            raise TypeError("a carrier sends what was sealed, and nothing else")
        with self._client(sealed.url) as client:
            if sealed.headers.get("content-type") == MEDIA_TYPES[UploadRequest]:
                self._compare_clocks(client, sealed.url)
            answer = client.request(
                sealed.method,
                sealed.url,
                most=MAX_PROBLEM,
                headers=sealed.headers,
                body=sealed.body,
            )
        return Told(answer.status, answer.body)

    def _client(self, url: str) -> HttpsClient:
        for origin, (name, authority) in self._origins.items():
            if url.startswith(origin + "/"):
                return HttpsClient(name, authority, keep=_KEEP)
        raise TransportError("this address is of nobody that was joined; nothing was sent")

    def _compare_clocks(self, client: HttpsClient, url: str) -> None:
        origin = next(each for each in self._origins if url.startswith(each + "/"))
        answer: HttpsAnswer = client.request("GET", origin + HEALTH_PATH, most=MAX_PROBLEM)
        ahead = 0.0 if answer.date is None else self._clock() - answer.date
        if abs(ahead) >= TOLERANCE:
            how = "ahead of" if ahead > 0 else "behind"
            raise TransportError(
                f"this machine's clock is {abs(ahead):.0f} s {how} the leader's; set it right. "
                "Nothing has left"
            )
