"""A recommender's web server with a mailbox, device processes, and what tests may do to them."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.authority_rotation import names_of
from hdpmf.common.net.certificates import ServerTls, ensure_certificates
from hdpmf.common.net.mailbox import Mailbox
from hdpmf.common.net.server import listen, serving
from hdpmf.common.net.signing import server_name
from hdpmf.lab.simulate.deploy import Deployment
from hdpmf.untrusted.service.website import IDLE_SECONDS, LIMITS
from tests.federation.transport_contract import MAX_BYTES, Network

HERE = Path(__file__).parents[2]
ON_PATH = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
HOSTS = ["localhost", "127.0.0.1"]


def wait_until(reached: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Bounded waiting; what was waited for is in the failure."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        time.sleep(0.05)


@dataclass
class Recommender:
    """A mailbox that is served."""

    mailbox: Mailbox
    port: int
    authority: bytes

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@contextmanager
def recommender(
    folder: Path,
    enrolled: list[DeviceIdentity],
    *,
    port: int = 0,
    longest: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Recommender]:
    paths = ensure_certificates(folder, HOSTS)
    tls = ServerTls(lambda: paths)
    mailbox = Mailbox(
        [server_name(authority, "") for authority in names_of(folder)],
        [identity.public.hex() for identity in enrolled],
        longest=None if longest is None else lambda: longest,
        max_bytes=max_bytes,
    )
    app = Starlette(routes=mailbox.routes)
    with serving(app, listen("127.0.0.1", port), tls, LIMITS, idle=IDLE_SECONDS) as used:
        yield Recommender(mailbox, used, paths.authority.read_bytes())
        mailbox.close()


@dataclass
class Live:
    """The deployment and what a test may do to it."""

    recommender: Recommender
    deployment: Deployment
    folder: Path
    keys: dict[str, DeviceIdentity]

    @property
    def names(self) -> tuple[str, str]:
        first, second = self.keys
        return first, second

    def start_device(self, name: str) -> None:
        settings = {
            "name": name,
            "address": self.recommender.address,
            "authority": self.recommender.authority.decode(),
            "key": self.keys[name].secret_bytes().hex(),
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        self.deployment.start(name, "tests.federation.scripted_device", str(path))

    def wait_for(self, *names: str) -> None:
        wait_until(
            lambda: self.recommender.mailbox.present() >= set(names), f"{names} are connected"
        )

    def network(self) -> Network:
        return Network(self.recommender.mailbox, self.names)


class Wire:
    """A stretch of network in front of a server that a test can cut and mend."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        self._end = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._end.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._server))
            self._open += [near, far]
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with near, far, suppress(OSError):
            while not self._end.is_set():
                ready, _, _ = select.select([near, far], [], [], 1.0)
                for end in ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    other[end].sendall(data)


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
