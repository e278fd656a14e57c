"""What servers refuse, and how early: strangers on the headers, wrong sizes before a byte of the
body.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import (
    AGGREGATE_SHARES_PATH,
    AGGREGATION_JOBS_PATH,
    COLLECTION_JOBS_PATH,
    MEDIA_TYPES,
    REPORTS_PATH,
    AggregateShareReq,
    AggregationJobInitReq,
    CollectionJobReq,
    ReportError,
    ReportUploadStatus,
    UploadErrors,
    UploadRequest,
    id_to_text,
)
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol.documents import canonical
from hdpmf.common.protocol.task import TASK_MEDIA_TYPE, TASK_PATH, task_id
from hdpmf.errors import DapError, TransportError
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.aggregator.leader import HelperClient
from tests.aggregator.server_processes import (
    HELPER,
    LEADER,
    Asked,
    CollectorHere,
    Pair,
    make_task,
    near,
    taken,
)
from tests.world import make_token

DAY = 86_400
REPORT = MEDIA_TYPES[UploadRequest]
LIMITS = Limits(waiting_uploads=8)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), limits=LIMITS) as running:
        running.start(HELPER, LEADER)
        yield running


@pytest.fixture(scope="module")
def asked(pair: Pair) -> Asked:
    made = make_task(pair.servers, pair.collector.card)
    pair.give(made)
    return made


def connect(pair: Pair, role: str = LEADER) -> ssl.SSLSocket:
    plain = socket.create_connection(("localhost", pair.folders[role].config.port), timeout=20)
    return pair.context(role).wrap_socket(plain, server_hostname="localhost")


def head(method: str, path: str, **headers: object) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def answer_to(pair: Pair, role: str, request: bytes) -> tuple[int, dict[str, object]]:
    """What a server says to headers alone: it must not wait for the body that they announce."""
    with connect(pair, role) as stream:
        stream.sendall(request)
        told = b""
        while chunk := stream.recv(65536):
            told += chunk
            start, found, body = told.partition(b"\r\n\r\n")
            if found and body:
                break
    return int(start.split()[1]), json.loads(body)


def paths(asked: Asked) -> list[tuple[str, str, str, str]]:
    task, job = id_to_text(asked.id), "/" + id_to_text(bytes(16))
    collection = COLLECTION_JOBS_PATH.format(task_id=task)
    aggregation = AGGREGATION_JOBS_PATH.format(task_id=task)
    return [
        (LEADER, "PUT", TASK_PATH.format(task_id=task), TASK_MEDIA_TYPE),
        (HELPER, "PUT", TASK_PATH.format(task_id=task), TASK_MEDIA_TYPE),
        (LEADER, "POST", collection, MEDIA_TYPES[CollectionJobReq]),
        (LEADER, "GET", collection + job, ""),
        (HELPER, "POST", aggregation, MEDIA_TYPES[AggregationJobInitReq]),
        (HELPER, "GET", aggregation + job, ""),
        (
            HELPER,
            "POST",
            AGGREGATE_SHARES_PATH.format(task_id=task),
            MEDIA_TYPES[AggregateShareReq],
        ),
        (LEADER, "GET", "/metrics", ""),
        (HELPER, "GET", "/metrics", ""),
    ]


@pytest.mark.parametrize("place", range(9))
def test_strangers_are_turned_away_on_the_headers(pair: Pair, asked: Asked, place: int) -> None:
    role, method, path, media_type = paths(asked)[place]
    stranger = CollectorHere()
    other = HELPER if role == LEADER else LEADER
    tokens = [
        "",
        "Bearer",
        "Bearer x",
        "Basic eDp4",
        f"Bearer {'0' * 64}",
        stranger.headers(pair.cards[role])["authorization"],
        pair.collector.headers(pair.cards[other])[
            "authorization"
        ],  # ours, but for the other server
    ]
    for token in tokens:
        request = head(
            method, path, content_length=50, content_type=media_type, authorization=token
        )
        status, said = answer_to(pair, role, request)
        assert (status, said["type"]) == (403, "about:blank")


def test_sizes_are_compared_before_a_byte_is_read(pair: Pair, asked: Asked) -> None:
    path, size = REPORTS_PATH.format(task_id=id_to_text(asked.id)), len(asked.report([1, 2, 3, 4]))
    wrong = {
        413: head("POST", path, content_type=REPORT, content_length=10**12),
        400: head("POST", path, content_type=REPORT, content_length=size - 1),
        411: head("POST", path, content_type=REPORT, transfer_encoding="chunked"),
        415: head("POST", path, content_type="text/plain", content_length=size),
    }
    for status, request in wrong.items():
        assert answer_to(pair, LEADER, request)[0] == status
    unknown = REPORTS_PATH.format(task_id=id_to_text(bytes(32)))
    status, said = answer_to(
        pair, LEADER, head("POST", unknown, content_type=REPORT, content_length=size)
    )
    assert (status, said["type"]) == (404, "urn:ietf:params:ppm:dap:error:unrecognizedTask")
    no_id = REPORTS_PATH.format(task_id="x" * 43)
    assert (
        answer_to(pair, LEADER, head("POST", no_id, content_type=REPORT, content_length=size))[0]
        == 400
    )


def test_a_recommender_gives_only_its_own_tasks(pair: Pair, asked: Asked) -> None:
    foreign = make_task(pair.servers, CollectorHere("films").card)
    assert pair.put_task(LEADER, foreign.id, foreign.document).status_code == 403
    fresh = make_task(pair.servers, pair.collector.card, seconds=7200)
    assert pair.put_task(LEADER, asked.id, fresh.document).status_code == 400
    assert pair.put_task(LEADER, fresh.id, b"\x81garbage").status_code == 400
    without = msgspec.json.decode(fresh.document)
    without["sums"]["presence"] = 0
    noiseless = canonical(without)
    assert pair.put_task(HELPER, task_id(noiseless), noiseless).status_code == 400


def test_recommenders_count_as_soon_as_they_are_admitted(pair: Pair) -> None:
    films = CollectorHere("films")
    task = make_task(pair.servers, films.card)
    body, headers = task.document, films.headers(pair.cards[LEADER])
    assert pair.put_task(LEADER, task.id, body, headers).status_code == 403
    pair.folders[LEADER].admit(films.card)
    assert pair.put_task(LEADER, task.id, body, headers).status_code == 201
    assert (
        pair.put_task(LEADER, task.id, body, headers).status_code == 201
    )  # the same again is nothing new
    pair.folders[LEADER].dismiss("films")
    assert pair.put_task(LEADER, task.id, body, headers).status_code == 403


def test_only_enrolled_devices_report_and_each_once(pair: Pair) -> None:
    asked = make_task(pair.servers, pair.collector.card, enrolled=True, seconds=6)
    pair.give(asked)
    first = make_token(asked.task, asked.id)
    report, shown = asked.admitted([1, 1, 1, 1], first)
    path = REPORTS_PATH.format(task_id=id_to_text(asked.id))
    assert (
        answer_to(
            pair, LEADER, head("POST", path, content_type=REPORT, content_length=len(report))
        )[0]
        == 403
    )
    for _ in range(2):
        assert taken(pair.upload(asked, report, shown))
    assert pair.upload(asked, asked.report([2, 2, 2, 2]), shown).status_code == 403
    another, _ = asked.admitted([2, 2, 2, 2], first)
    refused = pair.upload(asked, another, shown)
    assert refused.headers["content-type"] == MEDIA_TYPES[UploadErrors]
    (status,) = UploadErrors.decode(refused.content).status
    assert (status.report_id, status.error) == (another[:16], ReportError.REPORT_REPLAYED)
    assert taken(pair.upload(asked, *asked.admitted([2, 2, 2, 2])))
    found, count = pair.collect(asked)
    assert count == 2
    assert near(found, [3, 3, 3, 3])


def test_ten_thousand_hostile_uploads_cost_nothing(pair: Pair, asked: Asked) -> None:
    """Garbage of the right size, true reports with a byte changed, and other requests, on four
    connections.
    """
    good = asked.report([5, 5, 5, 5])
    path = REPORTS_PATH.format(task_id=id_to_text(asked.id))
    start = head("POST", path, content_type=REPORT, content_length=len(good))
    dropped = ReportUploadStatus(good[:16], ReportError.REPORT_DROPPED)
    before = memory(pair)
    for _ in range(4):
        with connect(pair) as stream:
            for _ in range(25):
                bodies = [secrets.token_bytes(len(good)) for _ in range(99)]
                bodies.insert(0, good[:20] + b"\xff" + good[21:])
                stream.sendall(b"".join(start + body for body in bodies))
                seen = b""
                while seen.count(b"HTTP/1.1 ") < 100 or not seen.endswith(b"}"):
                    seen += stream.recv(1 << 20)
                assert seen.count(b"HTTP/1.1 400") == 99
                assert seen.count(UploadErrors((dropped,)).encode()) == 1
    assert memory(pair) < before + 100 * 2**20
    assert taken(pair.upload(asked, good))


def memory(pair: Pair) -> int:
    """Bytes that the leader has in memory."""
    with open(f"/proc/{pair.deployment.child(LEADER).process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_counts_and_logs_tell_nothing_private(pair: Pair) -> None:
    asked = make_task(pair.servers, pair.collector.card, enrolled=True)
    pair.give(asked)
    device = make_token(asked.task, asked.id)
    report, shown = asked.admitted([9, 9, 9, 9], device)
    assert taken(pair.upload(asked, report, shown))
    pair.upload(asked, asked.report([9, 9, 9, 9]), shown)
    token = {"authorization": f"Bearer {pair.folders[LEADER].metrics_token}"}
    counts = pair.clients[LEADER].get(pair.cards[LEADER].endpoint("/metrics"), headers=token)
    assert 'hdpmf_aggregator_uploads_total{outcome="accepted"}' in counts.text
    assert 'outcome="unauthorizedRequest"' in counts.text
    log = [line for line in pair.log(LEADER).splitlines() if "listens on" not in line]
    lines = [json.loads(line) for line in log]
    assert all({"time", "level", "role", "event"} <= line.keys() for line in lines)
    for text in ("\n".join(log), counts.text):
        for private in (
            shown["authorization"],
            device.nonce.hex(),
            report[:16].hex(),
            "127.0.0.1",
            pair.folders[LEADER].metrics_token,
        ):
            assert private not in text


def test_the_leader_talks_to_the_pinned_helper_alone(
    pair: Pair, asked: Asked, tmp_path: Path
) -> None:
    other = ensure_certificates(tmp_path, ("localhost",)).authority.read_text()
    keys = pair.folders[LEADER].keys
    with HelperClient(keys) as client:
        with pytest.raises(DapError) as refused:
            client.aggregation_job(asked.id, b"garbage")
        assert refused.value.kind == "invalidMessage"
        with pytest.raises(DapError) as refused:
            client.aggregate_share(bytes(32), b"x" * 61)
        assert refused.value.kind == "unrecognizedTask"
    elsewhere = {
        "another authority": msgspec.structs.replace(keys.partner, authority=other),
        "nobody there": msgspec.structs.replace(keys.partner, url="https://localhost:9"),
    }
    for card in elsewhere.values():
        with (
            HelperClient(replace(keys, partner=card)) as client,
            pytest.raises(TransportError, match=r"not from the pinned authority|cannot be reached"),
        ):
            client.aggregation_job(asked.id, b"")
