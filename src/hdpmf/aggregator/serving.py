"""A server as a process, or as several that share a PostgreSQL database."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hdpmf.aggregator.app import HelperResources, LeaderResources, Resources
from hdpmf.aggregator.door import HttpsHelper
from hdpmf.aggregator.folder import AggregatorFolder
from hdpmf.aggregator.helper import Helper
from hdpmf.aggregator.leader import Leader
from hdpmf.aggregator.metrics import AggregatorMetrics
from hdpmf.aggregator.store import ServerDatabase
from hdpmf.aggregator.tokens import Tokens
from hdpmf.errors import ConfigError
from hdpmf.logs import event, log_to_stderr
from hdpmf.transport.http_limits import (
    Connections,
    HttpLimits,
    LimitedServer,
    allow_connections,
)
from hdpmf.transport.tls import server_context
from hdpmf.transport.web_server import settings

_IDLE_SECONDS = 15
_GRACE_SECONDS = 10


def check_servable(folder: AggregatorFolder, workers: int) -> None:
    """ConfigError if so many workers could not serve this folder."""
    if workers < 1:
        raise ConfigError("at least one worker is needed")
    if workers > 1 and folder.database_url.startswith("sqlite"):
        raise ConfigError(
            'several workers need a database that they can share: database = "postgresql+psycopg://..." in '
            f"{folder.path / 'config.toml'}; with SQLite there is one"
        )
    _ = folder.keys
    ServerDatabase(folder.database_url).close()


@contextmanager
def engine_of(folder: AggregatorFolder) -> Iterator[Leader | Helper]:
    """The server of this folder, without its HTTP."""
    keys, rules = folder.keys, folder.config.tasks.rules
    with closing(ServerDatabase(folder.database_url)) as database:
        if folder.config.role == "helper":
            yield Helper(keys, database, marks=folder.marks, rules=rules)
            return
        with HttpsHelper(keys) as door:
            yield Leader(keys, database, door, marks=folder.marks, rules=rules)


def _resources(
    folder: AggregatorFolder, engine: Leader | Helper, metrics: AggregatorMetrics, make_room: Callable[[], bool]
) -> Resources:
    keys, tokens, limits = folder.keys, Tokens(folder), folder.config.limits
    if isinstance(engine, Leader):
        return LeaderResources(keys, engine, tokens, limits, metrics, make_room)
    return HelperResources(keys, engine, tokens, limits, metrics)


def work(path: Path, listener: socket.socket, ready: Callable[[], None] = lambda: None, *, tls: bool = True) -> None:
    """Serve a folder in this process, until SIGTERM or SIGINT.

    Args:
        path: The folder.
        listener: Where; other workers may have it, too.
        ready: Called when it listens.
        tls: Without it only for measuring what it costs.
    """
    folder = AggregatorFolder(path)
    log_to_stderr(role=folder.config.role)
    limits, metrics, made = folder.config.limits, AggregatorMetrics(), folder.certificates()
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
    with engine_of(folder) as engine:
        if isinstance(engine, Leader) and folder.database_url.startswith("sqlite"):
            engine.take_over()  # with SQLite there is one process, and it has the port
        config = settings(
            _resources(folder, engine, metrics, lambda: connections.make_room(of_senders=True)).app(),
            connections.protocol,
            idle=_IDLE_SECONDS,
            grace=_GRACE_SECONDS,
            lifespan="on",
        )
        context = server_context(str(made.server), str(made.key)) if tls else None
        LimitedServer(config, context, ready).run(sockets=[listener])
    event("stopped")
