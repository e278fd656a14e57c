"""A server as one process, or as several that share its port and a PostgreSQL database."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from hdpmf.common.base.logs import event, log_to_stderr
from hdpmf.common.base.traces import exporting
from hdpmf.common.net.certificates import ServerTls
from hdpmf.common.net.server import (
    Connections,
    HttpLimits,
    LimitedServer,
    allow_connections,
    listen,
    settings,
)
from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.datastore import Timer
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.http import HelperResources, LeaderResources, Resources
from hdpmf.untrusted.aggregator.leader import HelperClient, Leader
from hdpmf.untrusted.aggregator.metrics import SHARED_FOLDER, AggregatorMetrics
from hdpmf.untrusted.aggregator.server import PartnerClient

_IDLE_SECONDS = 15

_REQUEST_GRACE_SECONDS = 10


def check_servable(folder: AggregatorFolder, workers: int) -> None:
    """Raise ConfigError if so many workers cannot serve this folder."""
    if workers < 1:
        raise ConfigError("at least one worker is needed")
    if workers > 1 and folder.database_url.startswith("sqlite"):
        raise ConfigError(
            "several workers need a database that they can share: database = "
            '"postgresql+psycopg://..." in '
            f"{folder.path / 'config.toml'}; with SQLite there is one"
        )
    _ = folder.keys  # raises unless it is paired
    folder.open_database().close()


@contextmanager
def open_server(folder: AggregatorFolder, timer: Timer = nullcontext) -> Iterator[Leader | Helper]:
    """Open the server of this folder, without HTTP; ``timer`` is for transactions."""
    keys = folder.keys
    rules = folder.config.tasks
    state = folder.path
    stores = folder.key_stores
    with closing(folder.open_database(timer)) as database:
        if folder.config.role == "helper":
            with PartnerClient(keys) as leader:
                yield Helper(
                    keys, database, state=state, rules=rules, witness=leader, key_stores=stores
                )
            return
        with HelperClient(keys) as client:
            yield Leader(keys, database, client, state=state, rules=rules, key_stores=stores)


_GARBAGE_OBJECTS = 20_000  # no mutant: memory against time


def run_worker(
    path: Path,
    listener: socket.socket,
    ready: Callable[[], None] = lambda: None,
    *,
    tls: bool = True,
) -> None:
    """Serve a folder in this process, until SIGTERM or SIGINT.

    Other workers may share the listener. ``tls=False`` is only to measure the cost of TLS.
    """
    folder = AggregatorFolder(path)
    log_to_stderr(role=folder.config.role)
    if not folder.hpke.rotates:  # a card of version 1.0.0: docs/keys.md says what to do
        event("hpke-key-never-changes", logging.WARNING)
    limits = folder.config.limits
    metrics = AggregatorMetrics()
    allow_connections(limits.connections)
    connections = Connections(
        HttpLimits(
            connections=limits.connections,
            per_address=limits.per_address,
            header_seconds=limits.header_seconds,
            body_seconds=limits.body_seconds,
        ),
        lambda why: metrics.turned_away.labels(why).inc(),
    )
    with (
        exporting(f"hdpmf-{folder.config.role}"),
        open_server(folder, metrics.transaction) as engine,
    ):
        metrics.watch(folder, engine)
        if folder.database_url.startswith("sqlite"):
            engine.take_over()  # with SQLite there is one process, and it has the port
        resources: Resources
        if isinstance(engine, Leader):
            resources = LeaderResources(
                folder, engine, metrics, lambda: connections.make_room(of_senders=True)
            )
        else:
            resources = HelperResources(folder, engine, metrics)
        config = settings(
            resources.app(),
            connections.protocol,
            idle=_IDLE_SECONDS,
            grace=_REQUEST_GRACE_SECONDS,
            lifespan="on",
        )
        identity = ServerTls(folder.certificates) if tls else None
        gc.collect()
        gc.freeze()  # what is here stays: looking through it again and again takes time
        gc.set_threshold(_GARBAGE_OBJECTS)  # requests leave hardly any cycles
        LimitedServer(config, identity, ready).run(sockets=[listener])
    event("stopped")


_RESTART_SECONDS = 1.0

_WORKER_GRACE_SECONDS = 20.0

_READY = b"ready"


def serve(
    folder: AggregatorFolder, workers: int = 1, ready: Callable[[], None] = lambda: None
) -> None:
    """Run a server with so many processes until SIGTERM or SIGINT.

    Raises:
        ConfigError: It is not paired, the address is taken, or SQLite cannot be shared.
    """
    check_servable(folder, workers)
    folder.certificates()
    with listen(folder.config.host, folder.config.port) as listener:
        listener.set_inheritable(True)  # by workers
        if workers == 1:
            run_worker(folder.path, listener, ready)
            return
        log_to_stderr(role=folder.config.role)
        with tempfile.TemporaryDirectory(prefix="hdpmf-counts-") as counts:
            os.environ[SHARED_FOLDER] = counts
            try:
                _Workers(folder.path, listener, workers).run(ready)
            finally:
                del os.environ[SHARED_FOLDER]


class _Workers:
    """Worker processes of one server."""

    def __init__(self, path: Path, listener: socket.socket, number: int) -> None:
        self._path = path
        self._listener = listener
        self._number = number
        self._processes: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._stopping = threading.Event()

    def run(self, ready: Callable[[], None]) -> None:
        """Run until a signal."""
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for index in range(self._number):
                self._start(index)
            pipes = [pipe for _, pipe in self._processes.values()]
            while pipes and not self._stopping.is_set():
                ready_pipes = wait(pipes, 0.2)
                pipes = [pipe for pipe in pipes if pipe not in ready_pipes]
            ready()
            while not self._stopping.wait(_RESTART_SECONDS):
                self._replace_the_dead()
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._stopping.set()

    def _start(self, index: int) -> None:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(
            target=_worker, args=(self._path, self._listener, theirs), name=f"worker-{index}"
        )
        process.start()
        theirs.close()
        self._processes[index] = process, ours

    def _replace_the_dead(self) -> None:
        for index, (process, pipe) in list(self._processes.items()):
            if process.exitcode is not None:
                event("worker-died", logging.ERROR, status=process.exitcode)
                pipe.close()
                self._start(index)

    def _end_all(self) -> None:
        for process, _ in self._processes.values():
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + _WORKER_GRACE_SECONDS
        for process, pipe in self._processes.values():
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()


def _worker(path: Path, listener: socket.socket, pipe: Connection) -> None:
    threading.Thread(target=_end_with_starter, args=(pipe,), name="lifeline", daemon=True).start()
    run_worker(path, listener, lambda: pipe.send_bytes(_READY))


def _end_with_starter(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv_bytes()  # nothing comes; it ends when the starter does, even by kill -9
    os.kill(os.getpid(), signal.SIGTERM)
