"""A recommender that ships an app to steal the ratings: Flower's own device runs it, ours never
even fetches it.

The server here is Flower's own SuperLink without our gate: a hostile recommender would not use the
gate either.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from deployed import wait_until
from transport_contract import MAX_BYTES, ScriptedDevice

from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.net.flower.device import FlowerDevice
from hdpmf.common.net.flower.environment import quiet_environment
from hdpmf.common.net.flower.link import Link
from hdpmf.common.net.flower.messages import Outgoing
from hdpmf.common.net.keys import NodeKey
from hdpmf.errors import TransportError

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "thief"
version = "1.0.0"
description = "Steals"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "mallory"

[tool.flwr.app.components]
serverapp = "thief.app:server"
clientapp = "thief.app:client"
"""

APP = """
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()

@client.query()
def steal(message, context):
    secret = Path({secret!r}).read_text()
    with Path({loot!r}).open("a") as loot:
        loot.write(secret)
    return Message(RecordDict({{"letter": ConfigRecord({{"data": secret.encode(), "token": ""}})}}), reply_to=message)
"""  # noqa: E501


@dataclass
class Trap:
    """A hostile recommender, and the file that it is after."""

    link: Link
    address: str
    certificates: Certificates
    folder: Path
    log: Path

    @property
    def loot(self) -> str:
        path = self.folder / "loot"
        return path.read_text() if path.exists() else ""

    def node(self, key: NodeKey) -> int:
        wait_until(lambda: key.public in self.link.online(), "the device is connected")
        return self.link.online()[key.public]

    def ask(self, node: int, data: bytes) -> bytes:
        (name,) = self.link.send([Outgoing(node, data, "token")], 120.0)
        replies: list[bytes | None] = []

        def came() -> bool:
            replies.extend(reply.data for reply in self.link.pull([name], 0.2))
            return bool(replies)

        wait_until(came, "a reply came", 90.0)
        assert replies[0] is not None
        return replies[0]


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    folder = tmp_path_factory.mktemp("trap")
    (folder / "ratings").write_text("Alien 5 stars\n")
    certificates = ensure_certificates(folder / "tls", ["127.0.0.1"])
    with _superlink(folder, certificates) as address:
        trust = ssl.create_default_context(cafile=str(certificates.authority))
        bundle = _hostile_bundle(folder)
        links: list[Link] = []

        def up() -> bool:
            try:
                links.append(Link(address, trust, "", max_bytes=MAX_BYTES, bundle=bundle))
            except TransportError:
                return False
            return True

        wait_until(up, "the SuperLink listens")
        yield Trap(links[0], address, certificates, folder, folder / "superlink.log")
        links[0].close()


def test_our_device_answers_with_its_own_code_and_never_fetches_the_app(trap: Trap):
    key = NodeKey.generate()
    trap.link.register(key.public)
    device = FlowerDevice(
        trap.address,
        trap.certificates.authority.read_bytes(),
        key,
        max_bytes=MAX_BYTES,
        plain_flower=True,
    )
    stop = threading.Event()
    thread = threading.Thread(target=device.serve, args=(ScriptedDevice("honest"), stop))
    thread.start()
    try:
        node = trap.node(key)
        for _ in range(3):
            assert trap.ask(node, b"name") == b"honest"
    finally:
        stop.set()
        thread.join(30)
    log = trap.log.read_text()
    assert f"Activated node_id={node}" in log  # the log would show what follows
    assert "GetFab" not in log
    assert "GetRun" not in log
    assert trap.loot == ""


def test_flowers_own_device_runs_what_the_server_ships(trap: Trap):
    """The control: without it, the test above might only show that the trap does not work."""
    key = NodeKey.generate()
    trap.link.register(key.public)
    (trap.folder / "key").write_bytes(
        key.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    with _process(
        trap.folder,
        "supernode",
        "flwr.supernode.cli.flower_supernode:flower_supernode",
        *("--superlink", trap.address, "--root-certificates", str(trap.certificates.authority)),
        *("--auth-supernode-private-key", str(trap.folder / "key")),
        *("--host", "127.0.0.1", "--port", str(_free_port())),
    ):
        assert trap.ask(trap.node(key), b"name") == b"Alien 5 stars\n"
    assert "Alien" in trap.loot
    assert "GetFab" in trap.log.read_text()


@contextmanager
def _superlink(folder: Path, certificates: Certificates) -> Iterator[str]:
    port = _free_port()
    with _process(
        folder,
        "superlink",
        "flwr.superlink.cli.flower_superlink:flower_superlink",
        *(
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--enable-supernode-auth",
            "--isolation",
            "process",
        ),
        *(
            "--ssl-ca-certfile",
            str(certificates.authority),
            "--ssl-certfile",
            str(certificates.server),
        ),
        *("--ssl-keyfile", str(certificates.key), "--disable-runtime-dependency-installation"),
    ):
        yield f"127.0.0.1:{port}"


@contextmanager
def _process(folder: Path, name: str, entry: str, *arguments: str) -> Iterator[None]:
    module, function = entry.split(":")
    code = f"import sys; sys.argv[0] = {name!r}; from {module} import {function} as run; run()"
    scripts = str(Path(sys.executable).parent)  # Flower starts helpers by name
    environment = {
        **quiet_environment(),
        "FLWR_HOME": str(folder / name),
        "PATH": scripts + os.pathsep + os.environ["PATH"],
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _hostile_bundle(folder: Path) -> bytes:
    from flwr.cli.build import build_fab_from_disk

    project = folder / "project"
    (project / "thief").mkdir(parents=True, exist_ok=True)
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "LICENSE").write_text("Apache-2.0")
    (project / "README.md").write_text("Steals")
    (project / "thief" / "__init__.py").write_text("")
    app = APP.format(secret=str(folder / "ratings"), loot=str(folder / "loot"))
    (project / "thief" / "app.py").write_text(app)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own
        return build_fab_from_disk(project)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
