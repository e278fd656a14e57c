"""Hosts on this machine: network namespaces around a router, each with its own address, names and
disk at /srv.

``ip netns`` needs root. A host sees the others by their addresses only: /srv is its own, so nobody
can read anybody's keys. What runs on it ends with the thread that started it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.deploy.router import DEVICE, Router

HOME = "/srv/hdpmf"
DELAY, LOSS = 0.02, 0.01
"""Seconds from host to host, and the share of packets that are lost."""

DISK = 64 << 20
"""Bytes of a host's disk."""

_ENTER = (
    'mount --bind "$1" /srv && mount --bind "$2" /etc/hosts && cd /srv/hdpmf && '
    'shift 2 && exec "$@"'
)


def lacking() -> str:
    """What this machine lacks for hosts; empty if they can be made."""
    if os.geteuid() != 0:
        return "hosts as network namespaces need root"
    absent = [tool for tool in ("ip", "mount", "umount", "setpriv") if shutil.which(tool) is None]
    if absent:
        return (
            f"hosts as network namespaces need {absent[0]} (iproute2, util-linux): install "
            "it, or run .ci/run"
        )
    if not Path("/srv").is_dir():
        return "hosts as network namespaces need a folder /srv"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"the router between hosts needs {DEVICE}"
    name = f"hdpmf-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespace can be made here: {made.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def ip(*arguments: str) -> None:
    """``ip``, which has to succeed."""
    _succeed("ip", *arguments)


def _succeed(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Hosts:
    """Use as a context: on the way out processes, links, disks and namespaces are gone.

    Args:
        folder: For their files and logs.
        names: The host names that each host has, by the host.
        environment: Added to the environment of all commands.
        delay: Seconds from host to host.
        loss: The share of packets that are lost.
        programs: The folder with the hdpmf that is run.

    Attributes:
        router: Carries what they say to each other.
    """

    def __init__(
        self,
        folder: Path,
        names: Mapping[str, tuple[str, ...]],
        environment: Mapping[str, str],
        *,
        delay: float = DELAY,
        loss: float = LOSS,
        programs: Path = Path(sys.executable).parent,
    ) -> None:
        self._folder, self._names = folder, names
        self._environment = {**os.environ, **environment, "HOME": HOME}
        self._environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        self._prefix = f"hdpmf-{os.getpid()}-"
        self._stack = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses = {host: f"10.77.0.{number}" for number, host in enumerate(names, 1)}
        self.router = Router(delay, loss)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            known = ["127.0.0.1 localhost"]
            for host, names in self._names.items():
                self._connect(stack, host)
                known.append(f"{self._addresses[host]} {' '.join(names)}")
            (self._folder / "hosts").write_text("\n".join([*known, ""]))
            stack.enter_context(self.router)
            stack.callback(self._stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def home(self, host: str) -> Path:
        """A host's /srv/hdpmf, as this process sees it."""
        return self._folder / host / "hdpmf"

    def log(self, process: str) -> str:
        """What a process has said."""
        return (self._folder / f"{process}.log").read_text(errors="replace")

    def call(self, host: str, *command: str, fails: bool = False) -> str:
        """Run a command on a host; what it said. AssertionError, with that, unless it ends as it
        should.
        """
        done = subprocess.run(
            self.entered(host, command),
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=60,
        )
        assert (done.returncode != 0) is fails, (
            f"{host}$ {' '.join(command)}\n{done.stdout}{done.stderr}"
        )
        return done.stderr if fails else done.stdout

    def start(self, process: str, host: str, *command: str) -> None:
        """Start a command on a host; its words go to a log, also if it was started before."""
        with (self._folder / f"{process}.log").open("ab") as log:
            self._running[process] = subprocess.Popen(
                self.entered(host, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def failed(self) -> str:
        """A process that has ended by itself, with an error; empty if there is none."""
        return next(
            (name for name, process in self._running.items() if process.poll() not in (None, 0)), ""
        )

    def kill(self, *processes: str) -> None:
        """``kill -9``."""
        for name in processes:
            process = self._running.pop(name)
            process.kill()
            process.wait()

    def link(self, host: str, state: str) -> None:
        """Pull a host's plug ("down"), or put it back ("up")."""
        self.router.link(self._addresses[host], state == "up")

    def fill_disk(self, host: str) -> None:
        """Leave no byte."""
        with (
            (self.home(host) / "ballast").open("ab", buffering=0) as ballast,
            contextlib.suppress(OSError),
        ):
            while True:
                ballast.write(bytes(1 << 16))

    def free_disk(self, host: str) -> None:
        """Make room again."""
        (self.home(host) / "ballast").unlink()

    def entered(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs a command on a host."""
        space, place = self._prefix + host, self._folder / host
        inside = ["sh", "-c", _ENTER, "sh", str(place), str(self._folder / "hosts"), *command]
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", space, *inside]

    def _connect(self, stack: ExitStack, host: str) -> None:
        """Its disk, its namespace, its interface."""
        disk, space, address = self._folder / host, self._prefix + host, self._addresses[host]
        disk.mkdir()
        _succeed("mount", "-t", "tmpfs", "-o", f"size={DISK}", "hdpmf", str(disk))
        stack.callback(_succeed, "umount", "--lazy", str(disk))
        self.home(host).mkdir()
        ip("netns", "add", space)
        stack.callback(ip, "netns", "del", space)
        interface = f"h{os.getpid()}-{host[:4]}"
        self.router.port(interface, address)
        ip("link", "set", interface, "netns", space, "name", "eth0")
        ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", space, "link", "set", device, "up")

    def _stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
