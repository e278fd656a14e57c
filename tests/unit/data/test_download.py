from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from hdpmf.common.data import datasets, fetch_dataset, load_dataset
from hdpmf.errors import ConfigError, DatasetError, StorageError


class Answer(NamedTuple):
    """What the server says; ``missing`` bytes of the body never come, ``length`` tells how long
    it should be.
    """

    status: int = 200
    body: bytes | None = None
    missing: int = 0
    length: bool = True


Serve = Callable[[Answer], str]


@pytest.fixture
def serve(whole: bytes) -> Iterator[Serve]:
    """Serve one answer from 127.0.0.1, whatever is asked."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answer: Answer) -> str:
        body = whole if answer.body is None else answer.body

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(answer.status)
                if answer.length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) - answer.missing])

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,)
        )  # seconds between looks at shutdown
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/ml-100k.zip"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def use_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(
        datasets.REGISTRY._known,
        "ml-100k",
        dataclasses.replace(datasets.REGISTRY["ml-100k"], url=url),
    )


@pytest.mark.parametrize("length", [True, False])
def test_download(
    tiny: Path, serve: Serve, whole: bytes, monkeypatch: pytest.MonkeyPatch, length: bool
) -> None:
    use_url(monkeypatch, serve(Answer(length=length)))
    seen: list[tuple[int, int | None]] = []
    path = fetch_dataset("ml-100k", progress=lambda done, total: seen.append((done, total)))
    assert path == tiny / "cache" / "ml-100k.zip"
    assert path.read_bytes() == whole
    assert len(load_dataset("ml-100k")) == 3
    assert [file.name for file in (tiny / "cache").iterdir()] == ["ml-100k.zip"]
    if length:
        assert seen[-1] == (len(whole), len(whole))
    else:
        assert seen[-1][1] is None
    assert fetch_dataset("ml-100k") == path  # again, over the old one and without progress


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(status=404, body=b"gone"), "answered 404; get it from https://.*--from FILE"),
        (Answer(status=500, body=b""), "answered 500"),
        (Answer(missing=50), "broke off; get it from https://.*--from FILE"),
        (Answer(missing=50, length=False), "not a usable archive"),
        (Answer(body=b"<html>"), "not a usable archive"),
        (Answer(body=b""), "not a usable archive"),
    ],
)
def test_bad_downloads_leave_no_trace(
    tiny: Path,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    message: str,
) -> None:
    use_url(monkeypatch, serve(answer))
    (tiny / "cache" / "ml-100k.zip").write_bytes(b"what was there before")
    with pytest.raises(DatasetError, match=message) as caught:
        fetch_dataset("ml-100k", progress=lambda done, total: None)
    assert "\n" not in str(caught.value)
    assert [file.name for file in (tiny / "cache").iterdir()] == ["ml-100k.zip"]
    assert (tiny / "cache" / "ml-100k.zip").read_bytes() == b"what was there before"


def test_no_network(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/ml-100k.zip", "http://no-such-host.invalid/ml-100k.zip"):
        use_url(monkeypatch, url)
        with pytest.raises(
            DatasetError, match=r"no connection to .*get it from https://.*ml-100k --from FILE"
        ) as caught:
            fetch_dataset("ml-100k")
        assert "\n" not in str(caught.value)
    assert list((tiny / "cache").iterdir()) == []


def test_from_file(tiny: Path, whole: bytes) -> None:
    archive = tiny / "somewhere.zip"
    archive.write_bytes(whole)
    assert fetch_dataset("ml-100k", from_file=archive).read_bytes() == whole
    assert archive.exists()
    archive.write_bytes(whole[:100])
    with pytest.raises(DatasetError, match="not a usable archive"):
        fetch_dataset("ml-100k", from_file=archive)
    with pytest.raises(DatasetError, match="there is no file"):
        fetch_dataset("ml-100k", from_file=tiny / "absent.zip")
    with pytest.raises(DatasetError, match="there is no file"):
        fetch_dataset("ml-100k", from_file=tiny)
    assert len(load_dataset("ml-100k")) == 3


def test_from_the_real_file(data_folder: Path, empty: Path) -> None:
    assert (
        fetch_dataset("yelp-sample", from_file=data_folder / "yelp-sample.tsv.gz").name
        == "yelp-sample.parquet"
    )
    assert len(load_dataset("yelp-sample")) == 122_687
    fetch_dataset("ml-100k", from_file=data_folder / "ml-100k.zip")
    assert len(load_dataset("ml-100k")) == 100_000


def test_nothing_to_download(empty: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to get"):
        fetch_dataset("synthetic")
    for name in ("yelp", "douban", "yelp-sample"):
        with pytest.raises(
            DatasetError, match=f"cannot be downloaded .*hdpmf data get {name} --from FILE"
        ):
            fetch_dataset(name)


def test_a_full_disk(tiny: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tiny / "somewhere.zip"
    archive.write_bytes(whole)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=r"No space left on device.*HDPMF_CACHE"):
        fetch_dataset("ml-100k", from_file=archive)
    assert os.listdir(tiny / "cache") == []
    monkeypatch.setenv("HDPMF_CACHE", str(archive))  # a file where the folder should be
    with pytest.raises(StorageError, match="HDPMF_CACHE"):
        fetch_dataset("ml-100k", from_file=archive)
