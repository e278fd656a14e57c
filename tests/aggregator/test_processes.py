"""Two servers as processes over TLS: what is uploaded is summed, what is wrong is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import ReportError, UploadErrors
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task, near, taken

VECTORS = [[1, 2, 3, 4], [200, 0, 0, 1], [255, 255, 255, 255], [0, 0, 0, 0], [17, 4, 99, 6]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair")) as running:
        running.start(HELPER, LEADER)
        yield running


def test_new_keys_count_while_servers_run(pair: Pair) -> None:
    """Reports for old and new keys are in one sum; the leader learns of the helper's by itself."""
    asked = make_task(pair.servers, pair.collector.card, seconds=25)
    pair.give(asked)
    assert taken(pair.upload(asked, asked.report(VECTORS[0])))
    for role in (LEADER, HELPER):
        command = ["-m", "hdpmf", "aggregator", "rotate-keys", str(pair.folders[role].path)]
        subprocess.run([sys.executable, *command], timeout=120, check=True)
    end = time.monotonic() + 20
    report = asked.report(VECTORS[1])
    while not taken(answer := pair.upload(asked, report)):
        (status,) = UploadErrors.decode(answer.content).status
        assert status.error == ReportError.OUTDATED_CONFIG
        assert time.monotonic() < end
        time.sleep(0.5)
    found, count = pair.collect(asked)
    assert count == 2
    assert near(found, [sum(column) for column in zip(*VECTORS[:2], strict=True)])


def test_status_tells_how_many(pair: Pair) -> None:
    asked = make_task(pair.servers, pair.collector.card)
    pair.give(asked)
    pair.upload(asked, asked.report(VECTORS[0]))
    for role in (LEADER, HELPER):
        command = [
            sys.executable,
            "-m",
            "hdpmf",
            "aggregator",
            "status",
            str(pair.folders[role].path),
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        (found,) = (
            task for task in json.loads(done.stdout)["tasks"] if task["task"] == asked.id.hex()
        )
        assert found["recommender"] == "shop"
        assert found["waiting"] + found["counted"] == (1 if role == LEADER else found["counted"])


def test_a_server_stops_in_order(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.start(LEADER)
        child = pair.deployment.child(LEADER)
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(60) == 0
        lines = pair.log(LEADER).splitlines()
        assert "listens on 127.0.0.1" in lines[0]
        assert [json.loads(line)["event"] for line in lines[1:]] == ["helper-away", "stopped"]
