"""The leader's way to the helper: HTTPS, to the helper whose card was pinned and to nobody else."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Self

from hdpmf.aggregator.keys import ServerKeys
from hdpmf.dap import (
    AGGREGATE_SHARES_PATH,
    AGGREGATION_JOB_PATH,
    MEDIA_TYPES,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    Message,
    id_to_text,
    problem_from_details,
)
from hdpmf.errors import ConfigError, TransportError
from hdpmf.transport.extras import needs

with needs("httpx", "servers"):
    import httpx

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
_MOST_ANSWER = 256 << 20


class HttpsHelper:
    """Asks the helper over HTTPS. It tries once: the caller knows when to try again.

    Args:
        keys: The leader's.
        answer_seconds: How long the helper may take.
    """

    def __init__(self, keys: ServerKeys, answer_seconds: float = ANSWER_SECONDS) -> None:
        card = keys.partner
        self._card = card
        token = keys.party.token(card.identity, to=card.identity)
        self._client = httpx.Client(
            verify=tls_context(card.authority),
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(answer_seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=3.0),  # shorter than the helper's own
            follow_redirects=False,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def aggregation_job(self, task_id: bytes, job_id: bytes, body: bytes) -> bytes:
        """As ``HelperDoor`` says.

        Raises:
            TransportError: The helper cannot be reached, or cannot answer now.
            DapError: It refused.
        """
        path = AGGREGATION_JOB_PATH.format(task_id=id_to_text(task_id), aggregation_job_id=id_to_text(job_id))
        return self._ask("PUT", path, AggregationJobInitReq, body, AggregationJobResp)

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """As ``HelperDoor`` says; errors as above."""
        path = AGGREGATE_SHARES_PATH.format(task_id=id_to_text(task_id))
        return self._ask("POST", path, AggregateShareReq, body, AggregateShare)

    def _ask(self, method: str, path: str, sent: type[Message], body: bytes, wanted: type[Message]) -> bytes:
        headers = {"content-type": MEDIA_TYPES[sent], "accept": MEDIA_TYPES[wanted]}
        url = self._card.endpoint(path)
        try:
            with self._client.stream(method, url, content=body, headers=headers) as response:
                answer = _read(response)
        except (httpx.HTTPError, httpx.StreamError, ssl.SSLError) as error:
            raise TransportError(f"the helper could not be reached ({type(error).__name__})") from None
        if response.is_success:
            kind = response.headers.get("content-type", "")
            if kind != MEDIA_TYPES[wanted]:
                raise TransportError("the helper's address answers something that is no answer of a helper")
            return answer
        if response.status_code >= 500 or response.status_code in (408, 429):
            raise TransportError(f"the helper cannot answer now (status {response.status_code})")
        try:
            details = response.json()
        except ValueError:
            details = None
        raise problem_from_details(details)


def tls_context(authority: str) -> ssl.SSLContext:
    """TLS to a server whose certificate comes from this authority (PEM), or from a public one if it is empty."""
    if not authority:
        return ssl.create_default_context()
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ConfigError("the authority on the other server's card is no certificate (PEM)") from None
    return context


def _read(response: httpx.Response) -> bytes:
    """The answer, which may not be longer than any honest one."""
    stated = response.headers.get("content-length", "")
    if not stated.isdigit() or int(stated) > _MOST_ANSWER:
        raise TransportError("the helper's answer does not say how long it is, or is too long")
    return response.read()
