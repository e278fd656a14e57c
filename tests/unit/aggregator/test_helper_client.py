"""The leader's client of the helper, against a helper that misbehaves."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pyhpke")

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.aggregation.two_servers.dap.messages import (
    MEDIA_TYPES,
    AggregationJobResp,
    Problem,
)
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import DapError, TransportError
from hdpmf.untrusted.aggregator.leader import HelperClient
from hdpmf.untrusted.aggregator.tasks import ServerKeys

TASK, JOB = bytes(32), bytes(16)
RESPONSE = MEDIA_TYPES[AggregationJobResp]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@contextmanager
def helper(
    certificates: Certificates, status: int, body: bytes, **headers: str
) -> Iterator[HelperClient]:
    """A client of a helper that always sends this answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    lines = {"content-length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    answer = f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body

    def serve() -> None:
        with suppress(OSError):
            raw, _ = listener.accept()
            with raw, context.wrap_socket(raw, server_side=True) as wire:
                while data := wire.recv(65536):
                    if data.endswith(b"request"):
                        wire.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with HelperClient(
            keys(f"https://127.0.0.1:{listener.getsockname()[1]}", certificates.authority)
        ) as client:
            yield client


def keys(url: str, authority: Path) -> ServerKeys:
    party, other, hpke = PartyKey.generate(), PartyKey.generate(), KeyPair.generate()
    own = Server(
        organisation="library",
        url="https://127.0.0.1:1",
        hpke=hpke.config.encode().hex(),
        identity=party.public,
    )
    partner = Server(
        organisation="university",
        url=url,
        hpke=KeyPair.generate().config.encode().hex(),
        identity=other.public,
        authority=authority.read_text("ascii"),
    )
    return ServerKeys("leader", party, hpke, own, partner)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(bytes(300 << 20), 9)


@pytest.mark.parametrize("status", [200, 400])
def test_a_compressed_answer_is_refused_without_decompressing_it(
    certificates: Certificates, bomb: bytes, status: int
) -> None:
    assert len(bomb) < 310_000  # less than any limit on what is received
    tracemalloc.start()
    try:
        with (
            helper(
                certificates, status, bomb, content_type=RESPONSE, content_encoding="gzip"
            ) as client,
            pytest.raises(TransportError, match="compressed"),
        ):
            client.aggregation_job(TASK, JOB, b"request")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_answer_beyond_its_limit_is_refused_unread(certificates: Certificates) -> None:
    with (
        helper(
            certificates, 200, b"x", content_type=RESPONSE, content_length=str(1 << 40)
        ) as client,
        pytest.raises(TransportError, match="longer than"),
    ):
        client.aggregation_job(TASK, JOB, b"request")


def test_answers_of_a_helper(certificates: Certificates) -> None:
    with helper(certificates, 201, b"answer", content_type=RESPONSE) as client:
        assert client.aggregation_job(TASK, JOB, b"request") == b"answer"
        with pytest.raises(TransportError, match="does not answer like a helper"):
            client.aggregate_share(TASK, b"request")
    with (
        helper(certificates, 503, b"") as client,
        pytest.raises(TransportError, match="at the moment"),
    ):
        client.aggregation_job(TASK, JOB, b"request")
    problem = b'{"type": "urn:ietf:params:ppm:dap:error:unrecognizedTask"}'
    with (
        helper(certificates, 404, problem, content_type="application/problem+json") as client,
        pytest.raises(DapError) as refused,
    ):
        client.aggregation_job(TASK, JOB, b"request")
    assert refused.value.kind == Problem.UNRECOGNIZED_TASK
