"""Two versions that meet: a refusal, and a word which side has to be upgraded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.net.flower.gate import OPEN, SECRET_HEADER, Gate
from hdpmf.common.net.flower.http import said_plainly
from hdpmf.common.net.flower.signing import signed_headers
from hdpmf.common.net.flower.versions import (
    OTHER_VERSION,
    PROTOCOL,
    SPOKEN,
    speaks_another,
    who_is_behind,
)
from hdpmf.common.net.keys import NodeKey
from hdpmf.errors import TransportError

ACTIVATE = "/v1/fleet/activate-node"
OF_0_1_0 = {
    "flwr-public-key": "a2V5",
    "flwr-signature": "c2ln",
    "flwr-timestamp": "2026-11-16T00:00:00",
}
BEHIND, AHEAD = (
    "older hdpmf than this device; whoever runs it",
    "newer hdpmf than this device; upgrade here",
)


class Nobody:
    """Enrolled is nobody: whoever speaks as today's devices do is a stranger."""

    def caller(
        self, headers: Mapping[bytes, bytes], method: str, path: str, length: int
    ) -> bytes | None:
        return None


def answer_to(headers: Mapping[str, str]) -> httpx.Response:
    """What the gate says to a device's first call."""
    said: list[Any] = []

    async def call(path: str, sent: Mapping[str, str]) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "client": None,
            "headers": [
                (name.encode(), value.encode())
                for name, value in {**sent, "content-length": "0"}.items()
            ],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        await gate(scope, receive, send)

    async def behind(*given: Any) -> None:
        raise AssertionError("a stranger came through")

    async def play() -> None:
        await call(OPEN, {SECRET_HEADER: "secret"})
        said.clear()
        await call(ACTIVATE, headers)

    gate = Gate(
        behind,
        secret="secret",
        max_bytes=1000,
        guard=Nobody(),
        check=print,
        known=print,
        mailbox=bytes,
    )
    asyncio.run(play())
    start = said[0]
    return httpx.Response(
        start["status"],
        headers=start["headers"],
        request=httpx.Request("POST", f"https://here{ACTIVATE}"),
    )


def words(response: httpx.Response) -> str:
    with pytest.raises(TransportError) as error, said_plainly():
        response.raise_for_status()
    return str(error.value)


def test_a_device_of_0_1_0_is_told_to_upgrade() -> None:
    response = answer_to(OF_0_1_0)
    assert (response.status_code, response.headers[PROTOCOL]) == (OTHER_VERSION, str(SPOKEN))


def test_a_device_of_today_that_is_not_enrolled_is_no_matter_of_versions() -> None:
    response = answer_to(signed_headers(NodeKey.generate(), b"here", "POST", ACTIVATE, b""))
    assert response.status_code == 401
    assert "not enrolled" in words(response)
    assert answer_to({}).status_code == 401


def test_a_device_hears_which_side_is_behind() -> None:
    own = signed_headers(NodeKey.generate(), b"here", "POST", ACTIVATE, b"")
    refused = answer_to({**own, PROTOCOL: str(SPOKEN - 1)})
    assert refused.status_code == OTHER_VERSION
    request = httpx.Request("POST", f"https://here{ACTIVATE}")
    newer = httpx.Response(OTHER_VERSION, headers={PROTOCOL: str(SPOKEN + 1)}, request=request)
    assert AHEAD in words(newer)
    older = httpx.Response(OTHER_VERSION, headers={PROTOCOL: str(SPOKEN - 1)}, request=request)
    assert BEHIND in words(older)
    # A recommender of 0.1.0 knows nothing of our signature, nor of this header.
    assert BEHIND in words(httpx.Response(401, request=request))
    later = httpx.Request("POST", "https://here/v1/fleet/pull-messages")
    assert "not enrolled" in words(httpx.Response(401, request=later))


@given(
    st.dictionaries(
        st.sampled_from([PROTOCOL, "x-hdpmf-key", "flwr-public-key", "x"]), st.text(max_size=5)
    )
)
def test_any_headers_are_answered(headers: dict[str, str]) -> None:
    sent = {name.encode(): value.encode("utf-8", "replace") for name, value in headers.items()}
    assert speaks_another(sent) in (True, False)
    for status in (200, 401, OTHER_VERSION):
        said = who_is_behind(status, headers.get(PROTOCOL))
        assert (said is None) == (status == 200 or (status == 401 and PROTOCOL in headers))
