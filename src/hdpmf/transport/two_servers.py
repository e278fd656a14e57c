"""The two servers over HTTPS, as their collector talks to them (DAP 09; giving a task is our own)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from hdpmf.dap import (
    COLLECTION_JOB_PATH,
    JOB_ID_SIZE,
    MEDIA_TYPES,
    PROBLEM_MEDIA_TYPE,
    Collection,
    CollectionReq,
    Problem,
    id_to_text,
    problem_from_details,
)
from hdpmf.errors import ConfigError, DapError, TransportError
from hdpmf.protocol.servers import Server, Servers
from hdpmf.protocol.submission import TASK_MEDIA_TYPE, TASK_PATH, encode_submission
from hdpmf.protocol.task import MAX_ENTRIES, task_id
from hdpmf.transport.extras import needs
from hdpmf.transport.parties import PartyKey

with needs("httpx"):
    import httpx

CONNECT_SECONDS, ANSWER_SECONDS = 15.0, 60.0
MAX_ANSWER = 2 * (16 * MAX_ENTRIES + (1 << 20))
"""Bytes of an answer: two shares of the largest sum, in the larger field."""

_MAX_PROBLEM = 64 << 10
_LATER = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which the same again may do."""


class TwoServers:
    """The pair, far away: a ``SumServers``.

    Args:
        servers: Their cards. Each is trusted by the authority on its card, and by the public ones where it has none.
        party: The collector's key.
    """

    def __init__(self, servers: Servers, party: PartyKey) -> None:
        self._leader, self._helper = (_Door(card, party) for card in (servers.leader, servers.helper))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._leader.close()
        self._helper.close()

    def add_task(self, document: bytes, devices: Sequence[tuple[str, int]]) -> None:
        """As in ``SumServers``: the helper first, so that it knows every task that the leader takes reports for."""
        path = TASK_PATH.format(task_id=id_to_text(task_id(document)))
        self._helper.ask("PUT", path, encode_submission(document), TASK_MEDIA_TYPE)
        self._leader.ask("PUT", path, encode_submission(document, devices), TASK_MEDIA_TYPE)

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        """As in ``SumServers``."""
        self._leader.ask("PUT", _job_path(task_id, job_id), request, MEDIA_TYPES[CollectionReq])

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        """As in ``SumServers``."""
        status, kind, body = self._leader.ask("POST", _job_path(task_id, job_id))
        if status == httpx.codes.ACCEPTED:
            return None
        if kind != MEDIA_TYPES[Collection]:
            raise DapError("the leader gave something that is no sum")
        return body


class _Door:
    """One of the two."""

    def __init__(self, card: Server, party: PartyKey) -> None:
        self._card = card
        self._client = httpx.Client(
            verify=_trust(card),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            headers={
                "accept-encoding": "identity",
                "authorization": f"Bearer {party.token(card.identity, to=card.identity)}",
            },
        )

    def close(self) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: bytes = b"", media_type: str | None = None) -> tuple[int, str, bytes]:
        """Status, media type and body of the answer; a refusal is an error."""
        headers = {} if media_type is None else {"content-type": media_type}
        url = self._card.endpoint(path)
        with self._said_plainly(), self._client.stream(method, url, content=body, headers=headers) as answer:
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            whole = answer.is_success
            data = _bounded(answer, MAX_ANSWER if whole else _MAX_PROBLEM)
            if not whole:
                raise self._refusal(answer.status_code, kind, data)
            return answer.status_code, kind, data

    def _refusal(self, status: int, kind: str, data: bytes) -> Exception:
        name = self._card.organisation
        if status in _LATER:
            return TransportError(f"the server of {name!r} cannot do it at the moment (status {status})")
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            return DapError(f"the server of {name!r} does not know this recommender", Problem.UNAUTHORIZED_REQUEST)
        if kind != PROBLEM_MEDIA_TYPE:
            return DapError(f"the server of {name!r} refused with status {status}")
        try:
            details: Any = msgspec.json.decode(data)
        except msgspec.MsgspecError:
            details = None
        error = problem_from_details(details)
        return DapError(f"the server of {name!r}: {error}", error.kind)

    @contextmanager
    def _said_plainly(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            name, cause = self._card.organisation, f"{type(error).__name__}: {error}"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise TransportError(
                    f"the certificate of the server of {name!r} is not from the authority on its card, or not for its "
                    f"address ({cause})"
                ) from error
            raise TransportError(f"the server of {name!r} cannot be reached ({cause})") from error


def _trust(card: Server) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=card.authority or None)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"the authority on the card of {card.organisation!r} is no certificate (PEM)") from None


def _bounded(answer: httpx.Response, most: int) -> bytes:
    """The body, of which no more is read than it may have."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("compressed answers are not read", request=answer.request)
    body = bytearray()
    for part in answer.iter_raw():
        body += part
        if len(body) > most:
            raise httpx.ReadError(f"the answer is longer than {most:,} bytes", request=answer.request)
    return bytes(body)


def _job_path(task_id: bytes, job_id: bytes) -> str:
    if len(job_id) != JOB_ID_SIZE:
        raise ConfigError(f"a collection's id has {JOB_ID_SIZE} bytes")
    return COLLECTION_JOB_PATH.format(task_id=id_to_text(task_id), collection_job_id=id_to_text(job_id))
