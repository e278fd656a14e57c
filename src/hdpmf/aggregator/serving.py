"""A server as a process, or as several that share a PostgreSQL database."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hdpmf.aggregator.app import HelperResources, LeaderResources, Resources
from hdpmf.aggregator.door import HttpsHelper
from hdpmf.aggregator.folder import AggregatorFolder
from hdpmf.aggregator.helper import Helper
from hdpmf.aggregator.http_limits import limited_protocol
from hdpmf.aggregator.leader import Leader
from hdpmf.aggregator.metrics import AggregatorMetrics
from hdpmf.aggregator.store import ServerDatabase
from hdpmf.aggregator.tokens import Tokens
from hdpmf.errors import ConfigError
from hdpmf.logs import event, log_to_stderr
from hdpmf.transport.extras import needs

with needs("uvicorn", "servers"):
    import uvicorn

_HANDSHAKE_SECONDS = 10.0
_GOODBYE_SECONDS = 1.0  # for the other side's end of a TLS connection
_IDLE_SECONDS = 15
_GRACE_SECONDS = 10
_BACKLOG = 2048


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


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; ConfigError if the address cannot be had."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; see host and port in config.toml"
        ) from None
    listener.set_inheritable(True)
    return listener


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


def _resources(folder: AggregatorFolder, engine: Leader | Helper, metrics: AggregatorMetrics) -> Resources:
    keys, tokens, limits = folder.keys, Tokens(folder), folder.config.limits
    if isinstance(engine, Leader):
        return LeaderResources(keys, engine, tokens, limits, metrics)
    return HelperResources(keys, engine, tokens, limits, metrics)


class _Server(uvicorn.Server):
    """Gives slow handshakes up, and says when it listens."""

    def __init__(self, config: uvicorn.Config, context: ssl.SSLContext | None, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._context, self._ready = context, ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order; uvicorn would raise the signal once more after that."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        loop = asyncio.get_running_loop()
        tls = self._context is not None
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=listener,
                backlog=_BACKLOG,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
                ssl_shutdown_timeout=_GOODBYE_SECONDS if tls else None,
            )
            for listener in sockets or []
        ]
        self.started = True
        self._ready()

    def _protocol(self) -> asyncio.Protocol:
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


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
    _allow_connections(folder.config.limits.connections)
    metrics = AggregatorMetrics()
    with engine_of(folder) as engine:
        config = uvicorn.Config(
            _resources(folder, engine, metrics).app(),
            http=limited_protocol(folder.config.limits, metrics),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody may say that it comes from another address
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        _Server(config, _tls(folder) if tls else None, ready).run(sockets=[listener])
    event("stopped")


def _tls(folder: AggregatorFolder) -> ssl.SSLContext:
    made = folder.certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # a device comes once: nothing to resume, and nothing to know it by
    context.load_cert_chain(made.server, made.key)
    return context


def _allow_connections(wanted: int) -> None:
    """Each takes a file descriptor, of which there are often 1,024 only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + 256
    if soft != resource.RLIM_INFINITY and soft < enough:
        most = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
