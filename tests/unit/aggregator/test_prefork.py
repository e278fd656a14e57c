"""The processes of a server: started together, replaced when they die, ended with the server."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hdpmf.untrusted.aggregator import prefork
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import SHARED_FOLDER


@pytest.fixture(autouse=True)
def _signals_end_no_test() -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def folder_of(path: Path, role: str) -> AggregatorFolder:
    made = {
        each: AggregatorFolder.create(
            path / each,
            AggregatorConfig(role=each, organisation=each, name=f"{each}.example"),  # type: ignore[arg-type]
        )
        for each in ("leader", "helper")
    }
    made["leader"].pair(made["helper"].card)
    made["helper"].pair(made["leader"].card)
    return made[role]


class Process:
    """A worker that does as it is told, or not."""

    def __init__(self, pipe: Connection, *, stubborn: bool, dies: bool) -> None:
        self.exitcode: int | None = None
        self.calls: list[str] = []
        self._pipe, self._stubborn, self._dies = pipe, stubborn, dies

    def start(self) -> None:
        self._pipe.send_bytes(b"ready")
        if self._dies:
            self.exitcode = 1

    def is_alive(self) -> bool:
        return self.exitcode is None

    def terminate(self) -> None:
        self.calls.append("terminate")
        if not self._stubborn:
            self.exitcode = 0

    def kill(self) -> None:
        self.calls.append("kill")
        self.exitcode = -9

    def join(self, seconds: float | None = None) -> None:
        self.calls.append("join" if seconds is None else f"join {seconds > 0}")


class Starter:
    """Makes processes; a signal comes when the last one has started."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds, self.made, self.names = kinds, list[Process](), list[str]()

    def Process(self, *, target: object, args: tuple[Any, ...], name: str) -> Process:
        kind = self.kinds[len(self.made)]
        made = Process(args[2], stubborn=kind == "stubborn", dies=kind == "dies")
        self.made.append(made)
        self.names.append(name)
        if len(self.made) == len(self.kinds):
            os.kill(os.getpid(), signal.SIGTERM)
        return made


def run(monkeypatch: pytest.MonkeyPatch, number: int, kinds: list[str]) -> tuple[Starter, int]:
    starter, heard = Starter(kinds), list[bool]()
    monkeypatch.setattr(prefork, "_RESTART_SECONDS", 0.01)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: starter)
    workers = prefork._Workers(Path("folder"), SimpleNamespace(), number)  # type: ignore[arg-type]
    workers.run(lambda: heard.append(True))
    assert all(pipe.closed for _, pipe in workers._processes.values())
    return starter, len(heard)


def test_a_worker_that_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    starter, ready = run(monkeypatch, 3, ["good", "dies", "good", "good"])
    assert starter.names == ["worker-0", "worker-1", "worker-2", "worker-1"]
    assert ready == 1
    first, dead, third, second = starter.made
    assert dead.calls == []
    for alive in (first, second, third):
        assert alive.calls == ["terminate", "join True"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    starter, _ = run(monkeypatch, 2, ["stubborn", "good"])
    assert starter.made[0].calls == ["terminate", "join True", "kill", "join"]
    assert starter.made[1].calls == ["terminate", "join True"]


def test_a_worker_ends_with_who_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even by kill -9: the pipe ends then, and nothing else tells the worker."""
    ended = threading.Event()
    sent = []

    def kill(process: int, number: int) -> None:
        sent.append((process, number))
        ended.set()

    served = threading.Event()
    monkeypatch.setattr(prefork.os, "kill", kill)
    monkeypatch.setattr(
        prefork, "run_worker", lambda path, listener, ready: (ready(), served.set())
    )
    ours, theirs = multiprocessing.Pipe()
    prefork._worker(Path("folder"), SimpleNamespace(), theirs)  # type: ignore[arg-type]
    assert served.is_set()
    assert ours.recv_bytes() == b"ready"
    assert not ended.wait(0.1)
    # A worker that was told to end must not wait for its starter.
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "lifeline")
    ours.close()
    assert ended.wait(30.0)
    assert sent == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize("workers", [1, 3])
def test_several_workers_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    folder, seen = folder_of(tmp_path, "helper"), list[tuple[str, object]]()
    monkeypatch.setattr(prefork, "check_servable", lambda *_: None)
    monkeypatch.setattr(prefork, "listen", lambda *_: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(prefork, "log_to_stderr", lambda **_: None)

    def one(path: Path, listener: socket.socket, ready: Callable[[], None]) -> None:
        seen.append(("one", listener.get_inheritable()))
        assert SHARED_FOLDER not in os.environ

    class Several:
        def __init__(self, path: Path, listener: socket.socket, number: int) -> None:
            self.number = number

        def run(self, ready: Callable[[], None]) -> None:
            seen.append(("several", self.number))
            assert Path(os.environ[SHARED_FOLDER]).is_dir()

    monkeypatch.setattr(prefork, "run_worker", one)
    monkeypatch.setattr(prefork, "_Workers", Several)
    prefork.serve(folder, workers)
    assert seen == [("one", True) if workers == 1 else ("several", 3)]
    assert SHARED_FOLDER not in os.environ


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_worker_serves_until_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setattr(AggregationJobDriver, "start", lambda driver: None)
    monkeypatch.setattr(prefork, "log_to_stderr", lambda **_: None)
    taken_over = []
    monkeypatch.setattr(Leader, "take_over", lambda _: taken_over.append("leader"))
    monkeypatch.setattr(Helper, "take_over", lambda _: taken_over.append("helper"))
    folder, answers = folder_of(tmp_path, role), list[int]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def ask() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/healthz")
            answers.append(connection.getresponse().status)
            connection.close()
            os.kill(os.getpid(), signal.SIGTERM)

        prefork.run_worker(
            folder.path, listener, lambda: threading.Thread(target=ask).start(), tls=False
        )
    assert answers == [200]
    assert taken_over == [role]
