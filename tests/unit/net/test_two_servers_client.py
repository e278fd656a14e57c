"""The collector's way to two servers: whatever these answer, it is a sum, a refusal with a
reason, or a later try.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyhpke")

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.common.net.https import HttpsAnswer, HttpsClient
from hdpmf.common.net.sum_servers import MAX_ANSWER, TwoServers
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.key_list import (
    MAX_LIST,
    SIGNED_KEYS_MEDIA_TYPE,
    KeyList,
    PublishedKeys,
    SignedKeyList,
)
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import DapError, TransportError
from hdpmf.lab.simulate.simulate import ServersHere

TASK = bytes(32)


@dataclass
class Sent:
    method: str
    url: str
    most: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def host(self) -> str | None:
        return urlsplit(self.url).hostname

    @property
    def path(self) -> str:
        return urlsplit(self.url).path


Answer = Callable[[Sent], HttpsAnswer]


class Far:
    """Two servers whose answers a test gives."""

    def __init__(self, answer: Answer) -> None:
        self.keys = [PartyKey.generate() for _ in range(2)]
        cards = [
            Server(
                organisation=name,
                url=f"https://{name}.example:1",
                identity=key.public,
                signing=PartyKey.generate().public,
            )
            for name, key in zip(("library", "university"), self.keys, strict=True)
        ]
        self.party = PartyKey.generate()
        self.seen: list[Sent] = []
        self.client = TwoServers(Servers(leader=cards[0], helper=cards[1]), self.party)

        def heard(method: str, url: str, **more: object) -> HttpsAnswer:
            self.seen.append(Sent(method, url, **more))  # type: ignore[arg-type]
            return answer(self.seen[-1])

        for server in (self.client._leader, self.client._helper):
            server._client.request = heard  # type: ignore[method-assign]


def answering(status: int, content: bytes = b"", kind: str = "", **headers: str) -> Answer:
    return lambda request: HttpsAnswer(status, {"content-type": kind, **headers}, content)


def test_the_helper_gets_a_task_first() -> None:
    far = Far(answering(201))
    far.client.add_task(b"document")
    first, second = far.seen
    assert (first.host, second.host) == ("university.example", "library.example")
    assert first.path == second.path
    assert first.body == second.body == b"document"
    for request, key in zip(far.seen, reversed(far.keys), strict=True):
        # What one of the two is shown, the other could not use.
        assert (
            request.headers["authorization"]
            == f"Bearer {key.token(far.party.public, to=key.public)}"
        )
    assert first.headers["authorization"] != second.headers["authorization"]


def test_a_sum_is_polled() -> None:
    far = Far(answering(200))
    assert far.client.collect(TASK, b"request") is None
    assert (far.seen[0].method, far.seen[0].body) == ("POST", b"request")
    kind = 'application/ppm-dap; message="collection-job-resp"'
    assert Far(answering(200, b"sum", kind)).client.collect(TASK, b"") == b"sum"
    for other in ("text/html", "application/ppm-dap", "application/ppm-dap;message=upload-req"):
        with pytest.raises(DapError, match="no sum"):
            Far(answering(200, b"sum", other)).client.collect(TASK, b"")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with pytest.raises(TransportError, match="at the moment"):
        Far(answering(status)).client.collect(TASK, b"")


def problem(kind: str) -> bytes:
    return json.dumps(
        {"type": f"urn:ietf:params:ppm:dap:error:{kind}", "detail": "<script>"}
    ).encode()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            answering(400, problem("invalidBatchSize"), "application/problem+json"),
            Problem.INVALID_BATCH_SIZE,
        ),
        (
            answering(403, problem("unrecognizedTask"), "application/problem+json"),
            Problem.UNAUTHORIZED_REQUEST,
        ),
        (answering(401), Problem.UNAUTHORIZED_REQUEST),
        (answering(400, b"{", "application/problem+json"), Problem.INVALID_MESSAGE),
        (answering(400, b"[1]", "application/problem+json"), Problem.INVALID_MESSAGE),
        (answering(302, location="https://elsewhere.example"), Problem.INVALID_MESSAGE),
        (answering(404, b"<html>", "text/html"), Problem.INVALID_MESSAGE),
    ],
)
def test_a_refusal_has_its_reason_and_nothing_else_of_what_the_server_wrote(
    answer: Answer, kind: Problem
) -> None:
    far = Far(answer)
    with pytest.raises(DapError) as refused:
        far.client.collect(TASK, b"")
    assert (refused.value.kind, len(far.seen)) == (kind, 1)
    assert "library" in str(refused.value)
    assert "<" not in str(refused.value)


def test_no_more_is_read_than_an_answer_may_have() -> None:
    far = Far(answering(200))
    far.client.collect(TASK, b"")
    assert far.seen[0].most == MAX_ANSWER


def test_a_server_that_cannot_be_reached_is_named() -> None:
    far = Far(answering(200))
    del far.client._leader._client.request  # type: ignore[method-assign]
    assert isinstance(far.client._leader._client, HttpsClient)
    with pytest.raises(TransportError, match=r"the server of 'library' cannot be reached \("):
        far.client.collect(TASK, b"")


KEYS = {"kind": SIGNED_KEYS_MEDIA_TYPE}
LIST = SignedKeyList(
    keys=KeyList(serial=1, not_after=2, configs="AAA"), signature="unchecked"
).to_bytes()


def test_lists_of_keys_are_asked_for() -> None:
    far = Far(answering(200, LIST, **KEYS))
    assert far.client.signed_keys() == PublishedKeys.of(LIST, LIST)
    assert [sent.method for sent in far.seen] == ["GET", "GET"]


@pytest.mark.parametrize(
    "answer",
    [answering(200, b"list", kind="text/html"), answering(200, bytes(MAX_LIST + 1), **KEYS)],
)
def test_what_is_no_list_of_keys_is_not_taken(answer: Answer) -> None:
    with pytest.raises(TransportError, match="'library' gave no list of keys"):
        Far(answer).client.signed_keys()


def test_both_connections_are_ended() -> None:
    far, ended = Far(answering(200)), list[str]()
    for name, server in (("leader", far.client._leader), ("helper", far.client._helper)):
        server._client.close = lambda name=name: ended.append(name)  # type: ignore[method-assign]
    far.client.close()
    assert ended == ["leader", "helper"]


class Here:
    """A server in this process, which notes what it is asked."""

    def __init__(self, name: str, calls: list[tuple[object, ...]]) -> None:
        self._name, self._calls, self.waiting = name, calls, 2

    def add_task(self, *given: object) -> None:
        self._calls.append((self._name, "task", *given))

    def aggregate(self) -> int:
        self.waiting -= 1
        return self.waiting

    def collect(self, *given: object) -> bytes:
        assert self.waiting == 0  # all reports are in it
        self._calls.append((self._name, "collect", *given))
        return b"sum"

    def signed_keys(self) -> bytes:
        return LIST


def test_servers_in_this_process_do_the_same() -> None:
    calls: list[tuple[object, ...]] = []
    servers = ServersHere(Here("leader", calls), Here("helper", calls))  # type: ignore[arg-type]
    servers.add_task(b"document")
    assert servers.collect(TASK, b"request") == b"sum"
    assert calls == [
        ("helper", "task", b"document"),
        ("leader", "task", b"document"),
        ("leader", "collect", TASK, b"request"),
    ]
    assert servers.signed_keys() == PublishedKeys.of(LIST, LIST)
