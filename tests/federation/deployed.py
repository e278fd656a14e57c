"""The deployment that tests here share, and what a test may do to it."""

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

from transport_contract import Network

from hdpmf.common.net.flower.recommender import FlowerRecommender
from hdpmf.common.net.keys import NodeKey
from hdpmf.lab.simulate.deploy import Deployment

HEARTBEAT = 1.0  # so that a device that was killed may come back after two seconds
NAMES = ("aa11", "bb22")
HERE = Path(__file__).parent
ON_PATH = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))


def wait_until(reached: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Bounded waiting; what was waited for is in the failure."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        time.sleep(0.05)


@dataclass
class Live:
    """The deployment and what a test may do to it."""

    recommender: FlowerRecommender
    deployment: Deployment
    folder: Path
    keys: dict[str, NodeKey]

    def start_device(self, name: str) -> None:
        settings = {
            "name": name,
            "address": self.recommender.address,
            "authority": self.recommender.authority.decode(),
            "key": self.keys[name].to_bytes().decode(),
            "heartbeat": HEARTBEAT,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        self.deployment.start(name, "scripted_device", str(path))

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: self.recommender.present() >= set(names), f"{names} are connected")

    def network(self) -> Network:
        return Network(self.recommender, NAMES)


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
