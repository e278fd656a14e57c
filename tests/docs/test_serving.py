"""docs/serving.md, as it is written: a service of many threads that is killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

import hdpmf
from tests.docs.doc_pages import read

pytestmark = pytest.mark.slow

WORLD = hdpmf.synthetic_world(80, 50, 1200, rng=4)
KNOWN = WORLD.users.ids[:20].tolist()
NEW = list(range(1001, 1021))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def service(folder: Path, end: signal.Signals) -> Iterator[httpx.Client]:
    """The service, which is ended by this signal."""
    port = free_port()
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "serve:app", "--port", str(port)],
            cwd=folder,
            env={
                **os.environ,
                "MODEL": str(folder / "model"),
                "PYTHONPATH": str(Path(hdpmf.__file__).parents[1]),
            },
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(600):
                if process.poll() is not None:
                    pytest.fail((folder / "log").read_text())
                try:
                    client.get("/openapi.json")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield client
    finally:
        process.send_signal(end)
        process.wait(60)


def test_the_service_loses_nothing_in_many_threads_and_restarts(tmp_path: Path) -> None:
    (code,) = (
        block.text for block in read(Path("docs/serving.md"))[0] if block.language == "python"
    )
    (tmp_path / "serve.py").write_text(code)
    hdpmf.HDPSum(epsilon=4, rng=0).fit(WORLD).save(tmp_path / "model")
    items = {user: WORLD.items.ids[user % 50].item() for user in KNOWN + NEW}

    def listed(client: httpx.Client, user: int) -> set[int]:
        answer = client.get(f"/users/{user}/list", params={"n": 50})
        answer.raise_for_status()
        return {row["item"] for row in answer.json()}

    def everything_is_there(client: httpx.Client) -> None:
        for user, item in items.items():
            assert item not in listed(client, user), user

    with service(tmp_path, signal.SIGKILL) as client:
        assert client.get("/users/1001/list").status_code == 404
        jobs = [
            lambda user=user, item=item: client.put(
                f"/users/{user}/ratings/{item}", params={"rating": 5}
            )
            for user, item in items.items()
        ] + [lambda user=user: client.get(f"/users/{user}/list") for user in KNOWN * 8]
        with ThreadPoolExecutor(16) as pool:
            found = [done.result() for done in [pool.submit(job) for job in jobs[::3] + jobs]]
        assert {answer.status_code for answer in found} <= {200, 404}
        everything_is_there(client)
        refused = client.put("/users/1001/ratings/1", params={"rating": 9})
        assert (refused.status_code, "scale" in refused.text) == (422, True)

    def in_journal() -> int:
        with closing(sqlite3.connect(tmp_path / "model.db")) as journal:
            return int(journal.execute("SELECT count(*) FROM later").fetchone()[0])

    assert in_journal() == len(items)
    with service(tmp_path, signal.SIGTERM) as client:
        everything_is_there(client)
    assert in_journal() == 0
    with service(tmp_path, signal.SIGKILL) as client:
        everything_is_there(client)
        client.put("/users/1001/ratings/7", params={"rating": 1})
        client.post("/save").raise_for_status()
        assert in_journal() == 0
    assert 7 not in hdpmf.load_model(tmp_path / "model").recommend(1001, 50).to_frame()["item"]
