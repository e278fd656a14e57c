"""A server as one process, or as uvicorn's workers with one port and a PostgreSQL database."""

import gc
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from hdpmf.common.base.logs import event, log_to_stderr
from hdpmf.common.net.server import ended_by_signals, listen, web_server
from hdpmf.errors import ConfigError, needs
from hdpmf.untrusted.aggregator.datastore import Timer
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.http import HelperResources, LeaderResources, Resources
from hdpmf.untrusted.aggregator.leader import HelperClient, Leader
from hdpmf.untrusted.aggregator.metrics import SHARED_FOLDER, AggregatorMetrics

with needs("uvicorn"):
    import uvicorn
    from uvicorn.supervisors import Multiprocess

_IDLE_SECONDS = 15
_REQUEST_GRACE_SECONDS = 10
_HEALTHY_SECONDS = 60  # a worker that does not answer its starter for so long is replaced
_GARBAGE_OBJECTS = 20_000  # no mutant: memory against time


def check_servable(folder: AggregatorFolder, workers: int) -> None:
    """Raise ConfigError if so many workers cannot serve this folder."""
    if workers > 1 and folder.database_url.startswith("sqlite"):
        raise ConfigError(
            "several workers need a database that they can share: database = "
            '"postgresql+psycopg://..." in '
            f"{folder.path / 'config.toml'}; with SQLite there is one"
        )
    _ = folder.keys  # raises unless it is paired
    folder.open_database().close()


@contextmanager
def open_server(
    folder: AggregatorFolder, timer: Timer = nullcontext, *, restored: bool = False
) -> Iterator[Leader | Helper]:
    """Open the server of this folder, without HTTP; arguments as for ``ServerDatabase``."""
    keys = folder.keys
    rules = folder.config.tasks
    with closing(folder.open_database(timer, restored=restored)) as database:
        if folder.config.role == "helper":
            yield Helper(keys, database, folder.path, rules=rules)
            return
        with HelperClient(keys) as client:
            yield Leader(keys, database, folder.path, client, rules=rules)


def run_worker(
    path: Path,
    sockets: list[socket.socket] | None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve a folder in this process, until SIGTERM or SIGINT; others may share the sockets."""
    folder = AggregatorFolder(path)
    log_to_stderr(role=folder.config.role)
    metrics = AggregatorMetrics()
    with open_server(folder, metrics.transaction) as engine:
        metrics.watch(folder, engine)
        resources: Resources
        if isinstance(engine, Leader):
            if folder.database_url.startswith("sqlite"):
                engine.take_over()  # with SQLite there is one process, and it has the port
            resources = LeaderResources(folder, engine, metrics)
        else:
            resources = HelperResources(folder, engine, metrics)
        server = web_server(
            resources.app(),
            folder.certificates(),
            idle=_IDLE_SECONDS,
            grace=_REQUEST_GRACE_SECONDS,
            lifespan="on",
        )
        gc.collect()
        gc.freeze()  # what is here stays: looking through it again and again takes time
        gc.set_threshold(_GARBAGE_OBJECTS)  # requests leave hardly any cycles
        ready()  # the port is open: who comes before the server waits
        with ended_by_signals():
            server.run(sockets=sockets)
    event("stopped")


def serve(
    folder: AggregatorFolder, workers: int = 1, ready: Callable[[], None] = lambda: None
) -> None:
    """Run a server with so many processes until SIGTERM or SIGINT.

    Raises:
        ConfigError: It is not paired, the address is taken, or SQLite cannot be shared.
    """
    check_servable(folder, workers)
    with listen(folder.config.host, folder.config.port) as listener:
        if workers == 1:
            run_worker(folder.path, [listener], ready)
            return
        config = uvicorn.Config(
            f"{__name__}:run_worker",
            workers=workers,
            log_config=None,
            timeout_worker_healthcheck=_HEALTHY_SECONDS,
        )
        with tempfile.TemporaryDirectory(prefix="hdpmf-counts-") as counts:
            os.environ[SHARED_FOLDER] = counts
            ready()
            Multiprocess(config, partial(run_worker, folder.path), [listener]).run()
