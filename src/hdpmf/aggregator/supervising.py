"""Several workers of one server: they share its port and its database, and one that died is replaced."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from hdpmf.aggregator.folder import AggregatorFolder
from hdpmf.aggregator.metrics import SHARED_FOLDER
from hdpmf.aggregator.serving import check_servable, work
from hdpmf.logs import event, log_to_stderr
from hdpmf.transport.web_server import listen

_RESTART_SECONDS = 1.0
_GRACE_SECONDS = 20.0
_READY = b"ready"


def serve(folder: AggregatorFolder, workers: int = 1, ready: Callable[[], None] = lambda: None) -> None:
    """Run a server until SIGTERM or SIGINT.

    Args:
        folder: The server.
        workers: Processes that share its port and its database.
        ready: Called when it listens.

    Raises:
        ConfigError: It is not paired, the address is taken, or the database is not for several processes.
    """
    check_servable(folder, workers)
    folder.certificates()
    with listen(folder.config.host, folder.config.port) as listener:
        listener.set_inheritable(True)  # by workers
        if workers == 1:
            work(folder.path, listener, ready)
            return
        log_to_stderr(role=folder.config.role)
        with tempfile.TemporaryDirectory(prefix="hdpmf-counts-") as counts:
            os.environ[SHARED_FOLDER] = counts
            try:
                _Workers(folder.path, listener, workers).run(ready)
            finally:
                del os.environ[SHARED_FOLDER]


class _Workers:
    """Processes that do the same."""

    def __init__(self, path: Path, listener: socket.socket, number: int) -> None:
        self._path, self._listener, self._number = path, listener, number
        self._processes: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._stopping = threading.Event()

    def run(self, ready: Callable[[], None]) -> None:
        """Until a signal."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for place in range(self._number):
                self._start(place)
            pipes = [pipe for _, pipe in self._processes.values()]
            while pipes and not self._stopping.is_set():
                heard = wait(pipes, 0.2)
                pipes = [pipe for pipe in pipes if pipe not in heard]
            ready()
            while not self._stopping.wait(_RESTART_SECONDS):
                self._replace_the_dead()
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._stopping.set()

    def _start(self, place: int) -> None:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_worker, args=(self._path, self._listener, theirs), name=f"worker-{place}")
        process.start()
        theirs.close()
        self._processes[place] = process, ours

    def _replace_the_dead(self) -> None:
        for place, (process, pipe) in list(self._processes.items()):
            if process.exitcode is not None:
                event("worker-died", logging.ERROR, status=process.exitcode)
                pipe.close()
                self._start(place)

    def _end_all(self) -> None:
        for process, _ in self._processes.values():
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + _GRACE_SECONDS
        for process, pipe in self._processes.values():
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()


def _worker(path: Path, listener: socket.socket, pipe: Connection) -> None:
    threading.Thread(target=_end_with_starter, args=(pipe,), name="lifeline", daemon=True).start()
    work(path, listener, lambda: pipe.send_bytes(_READY))


def _end_with_starter(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv_bytes()  # nothing comes; it ends when the starter does, even by kill -9
    os.kill(os.getpid(), signal.SIGTERM)
