"""The two servers over HTTPS, as their collector calls them (DAP 18; adding tasks is our own)."""

from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol, Self

import msgspec

from hdpmf.common.aggregation.two_servers.dap.messages import (
    COLLECTION_JOBS_PATH,
    MEDIA_TYPES,
    PROBLEM_MEDIA_TYPE,
    CollectionJobReq,
    CollectionJobResp,
    Problem,
    id_to_text,
    problem_from_details,
)
from hdpmf.common.aggregation.two_servers.dap.messages import media_type as media_type_of
from hdpmf.common.net.https import DATE_HEADER, HEALTH_PATH, HttpsAnswer, HttpsClient
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.key_list import (
    MAX_LIST,
    SIGNED_KEYS_MEDIA_TYPE,
    SIGNED_KEYS_PATH,
    PublishedKeys,
)
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.common.protocol.task import (
    MAX_ENTRIES,
    TASK_MEDIA_TYPE,
    TASK_PATH,
    task_id,
)
from hdpmf.errors import ConfigError, DapError, TransportError


class SumServers(Protocol):
    """The pair of servers as their collector sees it; every call may be repeated.

    Calls raise ``TransportError`` where a server is unreachable or busy, so that a retry may help,
    and ``DapError`` where one refuses.
    """

    def add_task(self, document: bytes) -> None:
        """Give a task to both servers."""

    def collect(self, task_id: bytes, request: bytes) -> bytes | None:
        """Ask the leader for the sum of a task by a DAP ``CollectionJobReq``.

        Returns a ``CollectionJobResp``, or None while it is not ready.
        """

    def signed_keys(self) -> PublishedKeys:
        """The lists of both servers' keys, unchecked."""

    def close(self) -> None:
        """End the connections."""


ANSWER_SECONDS = 60.0
"""Seconds that a connection, or a part of an answer, may take."""

KEEP_SECONDS = 10.0
"""Seconds that an idle connection is kept; the servers end it after 15."""

MAX_ANSWER = 2 * (16 * MAX_ENTRIES + (1 << 20))
"""Bytes of an answer: two shares of the largest sum, in the larger field."""

_LATER = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which the same again may do."""


class TwoServers:
    """The pair over HTTPS: a ``SumServers``.

    Args:
        servers: Their cards. Each is trusted by the authority on its card, or by the public ones.
        party: The collector's key.
    """

    def __init__(self, servers: Servers, party: PartyKey) -> None:
        self._leader, self._helper = (
            ServerClient(card, party) for card in (servers.leader, servers.helper)
        )

    def close(self) -> None:
        """End the connections."""
        self._leader.close()
        self._helper.close()

    def add_task(self, document: bytes) -> None:
        """Give the task to the helper first, so that it knows every task with reports."""
        path = TASK_PATH.format(task_id=id_to_text(task_id(document)))
        self._helper.ask("PUT", path, document, TASK_MEDIA_TYPE)
        self._leader.ask("PUT", path, document, TASK_MEDIA_TYPE)

    def collect(self, task_id: bytes, request: bytes) -> bytes | None:
        """As in ``SumServers``: the same request makes one job, and tells how far it is."""
        path = COLLECTION_JOBS_PATH.format(task_id=id_to_text(task_id))
        _, kind, body = self._leader.ask("POST", path, request, MEDIA_TYPES[CollectionJobReq])
        if not body:
            return None
        if kind != MEDIA_TYPES[CollectionJobResp]:
            raise DapError("the leader gave something that is no sum")
        return body

    def signed_keys(self) -> PublishedKeys:
        """As in ``SumServers``."""
        return PublishedKeys.of(self._leader.signed_keys(), self._helper.signed_keys())


class ServerClient:
    """An HTTPS client of one of the two servers, pinned to its card.

    Args:
        party: The caller's key, which it authenticates with.
        timeout: Seconds for a connection, or a part of an answer.
    """

    def __init__(self, card: Server, party: PartyKey, timeout: float = ANSWER_SECONDS) -> None:
        self._card = card
        self._authorization = f"Bearer {party.token(card.identity, to=card.identity)}"
        try:
            self._client = HttpsClient(
                f"the server of {card.organisation!r}",
                card.authority,
                timeout=timeout,
                keep=KEEP_SECONDS,
            )
        except ConfigError as error:
            raise ConfigError(f"the card of {card.organisation!r}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def ask(
        self, method: str, path: str, body: bytes = b"", media_type: str | None = None
    ) -> tuple[int, str, bytes]:
        """Return status, media type and body of the answer.

        Raises:
            TransportError: The server is unreachable, or cannot answer now.
            DapError: It refused.
        """
        answer = self._request(method, path, body, media_type)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        kind = media_type_of(answer.headers.get("content-type", ""))
        return answer.status, kind, answer.body

    def now(self) -> float:
        """Return the time of its clock, to the second.

        Raises:
            TransportError: The server is unreachable, or does not say it.
        """
        found = self._request("GET", HEALTH_PATH).date
        if found is None:
            raise TransportError(f"the server of {self._card.organisation!r} does not say its time")
        return found

    def _request(
        self, method: str, path: str, body: bytes = b"", media_type: str | None = None
    ) -> HttpsAnswer:
        """Send a request, with this side's time: servers compare their clocks."""
        headers = {"authorization": self._authorization, DATE_HEADER: formatdate(usegmt=True)}
        if media_type is not None:
            headers["content-type"] = media_type
        return self._client.request(
            method, self._card.endpoint(path), most=MAX_ANSWER, headers=headers, body=body
        )

    def signed_keys(self) -> bytes:
        """Return the list of its keys, unchecked.

        Raises:
            TransportError: The server is unreachable, or gives something else.
            DapError: It refused.
        """
        _, kind, body = self.ask("GET", SIGNED_KEYS_PATH)
        if kind != SIGNED_KEYS_MEDIA_TYPE or len(body) > MAX_LIST:
            raise TransportError(f"the server of {self._card.organisation!r} gave no list of keys")
        return body

    def _refusal(self, answer: HttpsAnswer) -> Exception:
        name = self._card.organisation
        if answer.status in _LATER:
            return TransportError(
                f"the server of {name!r} cannot do it at the moment (status {answer.status})"
            )
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return DapError(
                f"the server of {name!r} does not know this caller", Problem.UNAUTHORIZED_REQUEST
            )
        if answer.media_type != PROBLEM_MEDIA_TYPE:
            return DapError(f"the server of {name!r} refused with status {answer.status}")
        try:
            details: Any = msgspec.json.decode(answer.body)
        except msgspec.MsgspecError:
            details = None
        error = problem_from_details(details)
        return DapError(f"the server of {name!r}: {error}", error.kind)
