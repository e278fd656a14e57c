"""Servers on a real PostgreSQL, with several workers each."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hdpmf.errors import StorageError
from tests.aggregator.postgres import cluster, new_database
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task, near


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with cluster() as found:
        yield found


def children(pid: int) -> list[int]:
    """The processes that a process has started and that serve."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in found
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_workers_share_a_database_and_one_that_dies_is_replaced(url: str, tmp_path: Path) -> None:
    databases = {role: new_database(url, role) for role in (LEADER, HELPER)}
    rng = random.Random(5)
    vectors = [[rng.randrange(256) for _ in range(4)] for _ in range(40)]
    with Pair(tmp_path, databases=databases) as pair:
        pair.start(HELPER, LEADER, options=("--workers", "2"))
        asked = make_task(pair.servers, pair.collector.card, seconds=12)
        pair.give(asked)
        reports = [asked.report(vector) for vector in vectors]
        parent = pair.deployment.child(LEADER).process.pid
        workers = children(parent)
        assert len(workers) == 2
        with ThreadPoolExecutor(4) as threads:
            # The same reports again, at the same time, to whichever worker takes the connection.
            first = threads.map(lambda report: upload(pair, asked, report), reports + reports[:20])
            os.kill(workers[0], signal.SIGKILL)
            assert set(first) == {200}
        found, count = pair.collect(asked)
        assert count == len(vectors)
        assert near(found, [sum(column) for column in zip(*vectors, strict=True)])
        now = wait_for_two(parent)
        assert workers[0] not in now
        token = {"authorization": f"Bearer {pair.folders[LEADER].metrics_token}"}
        counts = (
            pair.clients[LEADER].get(pair.cards[LEADER].endpoint("/metrics"), headers=token).text
        )
        (line,) = (
            line
            for line in counts.splitlines()
            if line.startswith("hdpmf_aggregator_aggregated_reports_total")
        )
        # On a slow machine a worker's lease ends before its work: then another does it too, and
        # both are counted.
        assert 0 <= float(line.split()[1]) <= 2 * len(vectors)
        child = pair.deployment.child(LEADER).process
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in now)


def upload(pair: Pair, asked, report: bytes) -> int:
    """As a device does: again until it is answered, and taken."""
    import httpx

    end = time.monotonic() + 60
    while True:
        try:
            with httpx.Client(verify=pair.context(LEADER), timeout=30) as client:
                headers = {"content-type": "application/ppm-dap;message=upload-req"}
                answer = client.post(pair.reports_url(asked), content=report, headers=headers)
            # Each worker compares its clock with the helper's first.
            if answer.status_code != 503 or time.monotonic() > end:
                return answer.status_code
        except httpx.HTTPError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def wait_for_two(parent: int) -> list[int]:
    end = time.monotonic() + 60
    while len(children(parent)) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    return children(parent)


def test_a_folder_is_not_made_without_its_database(tmp_path: Path) -> None:
    nowhere = "postgresql+psycopg://nobody@127.0.0.1:9/none"
    with pytest.raises(StorageError, match=r"^the database refused: [^\n]*$"):
        Pair(tmp_path, databases={LEADER: nowhere})


def test_a_database_that_is_gone_is_an_error_of_one_line(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        config = pair.folders[LEADER].path / "config.toml"
        nowhere = 'database = "postgresql+psycopg://nobody@127.0.0.1:9/none"'
        lines = config.read_text().splitlines()
        kept = [line for line in lines if not line.startswith("database")]
        config.write_text("\n".join([nowhere, *kept]))
        pair.deployment.start(
            LEADER, "hdpmf", "aggregator", "serve", str(pair.folders[LEADER].path)
        )
        assert pair.deployment.child(LEADER).process.wait(60) == 8
        assert "the database refused" in pair.log(LEADER)
        assert "Traceback" not in pair.log(LEADER)
