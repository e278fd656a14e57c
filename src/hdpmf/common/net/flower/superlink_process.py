"""The SuperLink's own process: ``python -m hdpmf.common.net.flower.superlink_process``, started by
``superlink``.

Its settings come as one line of JSON on standard input, because the secret in them belongs neither
in the arguments nor in the environment, which others on the machine can read. When it listens it
answers with one line on standard output: the port. When standard input ends, the process that
started it is gone, and it ends too. Everything else it has to say goes to standard error, which is
a log file.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
import threading
from typing import Any, TypeVar

import msgspec

from hdpmf.common.base.platform import allow_open_files
from hdpmf.common.net.flower.doors import Listener, Visitors
from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.gate import Gate
from hdpmf.common.net.flower.signing import Doorkeeper, check_body, server_name

S = TypeVar("S", bound=socket.socket)

_FILES = 65_536
"""Connections that there may be, where the system allows so many."""


class SuperLinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a SuperLink is started with.

    Attributes:
        port: Port to listen on; 0 for any free one.
        certificate: File with the server's certificate.
        key: File with its secret key.
        authorities: Certificates of the recommender's authority, and of the one before, by which
            devices name it.
        told: What devices are told about these.
        max_bytes: No request may be longer.
        max_reply: Nor one of a device, where this is less.
        shortest_heartbeat: Seconds; devices may not ask for signs of life more often.
        secret: What opens the parts that are not for devices.
    """

    host: str
    port: int
    certificate: str
    key: str
    authorities: tuple[str, ...]
    told: bytes
    max_bytes: int
    max_reply: int
    shortest_heartbeat: float
    secret: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(32))


def main() -> None:
    """Serve until standard input ends."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=SuperLinkSettings)
    with needs_flower():
        import uvicorn

        from hdpmf.common.net.flower.lane import FastLane
        from hdpmf.common.net.flower.link import superlink_app
    allow_open_files(_FILES)
    visitors = Visitors()
    listener = _listen(Listener, settings.host, settings.port)
    listener.visitors = visitors
    # The recommender's own way in, which nobody else can crowd.
    own = _listen(socket.socket, "127.0.0.1", 0)
    superlink = FastLane(superlink_app(settings.shortest_heartbeat))
    gate = Gate(
        superlink,
        secret=settings.secret,
        max_bytes=settings.max_bytes,
        max_reply=settings.max_reply,
        guard=Doorkeeper(
            [server_name(each.encode()) for each in settings.authorities], superlink.is_enrolled
        ),
        told=settings.told,
        check=check_body,
        known=visitors.is_known,
        mailbox=superlink.number_of,
        here=lambda number, wait: superlink.is_here(number, settings.shortest_heartbeat, wait),
    )
    config = uvicorn.Config(
        gate,
        log_config=None,
        access_log=False,
        # longer than clients keep a connection, so that none is closed under a request
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        ws="none",
        server_header=False,
    )
    server = uvicorn.Server(config)
    asyncio.run(_serve(server, gate, listener, own, visitors))


async def _serve(
    server: Any, gate: Gate, listener: socket.socket, own: socket.socket, visitors: Visitors
) -> None:
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=_end_with_parent, args=(loop, server, gate), name="lifeline", daemon=True
    ).start()
    running = asyncio.ensure_future(server.serve(sockets=[listener, own]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    if server.started:
        ports = {"port": listener.getsockname()[1], "own_port": own.getsockname()[1]}
        print(json.dumps(ports), flush=True)
    watching = asyncio.ensure_future(visitors.watch())
    try:
        await running
    finally:
        watching.cancel()


def _listen(kind: type[S], host: str, port: int) -> S:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = kind(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Answers are small and come in two pieces. Held back for the acknowledgement of the first, each
    # costs 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A restart must not wait until the system forgets the connections of the process before.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2048)
    return listener


def _end_with_parent(loop: asyncio.AbstractEventLoop, server: Any, gate: Gate) -> None:
    sys.stdin.buffer.read()
    loop.call_soon_threadsafe(gate.close)
    server.should_exit = True


if __name__ == "__main__":
    main()
