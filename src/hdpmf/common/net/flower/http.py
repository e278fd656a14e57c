"""HTTP with a peer that is not trusted: bounded answers, and failures in words."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.gate import CLOCK_HEADER
from hdpmf.common.net.flower.signing import AHEAD, BEHIND
from hdpmf.common.net.flower.versions import PROTOCOL, who_is_behind
from hdpmf.common.net.flower.wires import Wires
from hdpmf.errors import TransportError

with needs_flower():
    import httpx

ANSWER_SECONDS = 30.0


def bounded_client(
    trust: ssl.SSLContext,
    max_bytes: int,
    headers: dict[str, str] | None = None,
    patience: float = ANSWER_SECONDS,
    wires: Wires | None = None,
) -> Any:
    """An HTTP client that follows no redirects, unpacks nothing and reads no more than
    ``max_bytes`` of an answer.

    Its connections are opened by ``wires``, where given, so that they can be cut from outside.
    """

    def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.DecodingError("compressed answers are not read", request=response.request)
        response.stream = _Bounded(response.stream, max_bytes)

    client = httpx.Client(
        verify=trust,
        timeout=patience,
        follow_redirects=False,
        trust_env=False,
        headers={"accept-encoding": "identity", **(headers or {})},
        limits=httpx.Limits(keepalive_expiry=60.0),
        event_hooks={"response": [bound]},
    )
    if wires is not None:
        client._transport._pool._network_backend = wires  # type: ignore[attr-defined]  # httpx has no option for it
    return client


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: Any, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    def __iter__(self) -> Iterator[bytes]:
        left = self._limit
        for part in self._stream:
            left -= len(part)
            if left < 0:
                raise httpx.ReadError(f"the answer is longer than the limit of {self._limit} bytes")
            yield part

    def close(self) -> None:
        self._stream.close()


@contextmanager
def unless_run_is_over() -> Iterator[None]:
    """A message of a run that has ended needs no more attention, and the connection is as good
    as before.
    """
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.FORBIDDEN:
            raise


@contextmanager
def said_plainly() -> Iterator[None]:
    """Whatever goes wrong on the wire becomes a TransportError in words."""
    try:
        yield
    except TransportError:
        raise
    except Exception as error:
        raise TransportError(_in_words(error)) from error


def _in_words(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return _refusal(error.response)
    if isinstance(error, httpx.ConnectError):
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return (
                "the recommender's certificate is not the one of its authority, or not for "
                f"this address ({error})"
            )
        return f"no connection to the recommender ({error})"
    return f"the connection to the recommender failed ({type(error).__name__}: {error})"


def _refusal(response: Any) -> str:
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return "the recommender is starting or stopping"
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        return f"the recommender cannot answer at the moment (status {response.status_code})"
    first = response.request.url.path.endswith("/activate-node")
    if (
        first
        and (behind := who_is_behind(response.status_code, response.headers.get(PROTOCOL)))
        is not None
    ):
        return behind
    if response.status_code == httpx.codes.UNAUTHORIZED:
        ahead = _clock(response)
        if ahead is not None and not -BEHIND < ahead < AHEAD:
            direction = "ahead of" if ahead > 0 else "behind"
            return (
                f"refused: this machine's clock is {abs(ahead):.0f} s {direction} the "
                "recommender's; set it right"
            )
        return "refused: this device's node key is not enrolled with the recommender"
    if response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return "refused: the reply is longer than the recommender's limit"
    if first:
        return (
            "refused: this device is not enrolled, or a device with the same key is "
            "connected (after a crash the "
            "recommender needs a few seconds to notice)"
        )
    return f"refused with status {response.status_code} on {response.request.url.path}"


def _clock(response: Any) -> float | None:
    """Seconds that this machine's clock is ahead, by what a refusal says about the time there.

    The answer to a question that has waited is dated when that was asked, so a date alone says
    nothing about a clock. Only who refuses because of a signature's time means it.
    """
    try:
        said = response.headers.get(CLOCK_HEADER)
        there = (
            parsedate_to_datetime(response.headers["date"]).timestamp()
            if said is None
            else float(said)
        )
    except (KeyError, ValueError, TypeError):
        return None
    ahead = time.time() - there
    return ahead if math.isfinite(ahead) else None
