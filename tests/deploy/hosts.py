"""Hosts on this machine: network namespaces on a bridge, each with its own address, names and /srv.

``ip netns`` needs root. A host sees the others by their addresses only: /srv is its own, so nobody can read anybody's
keys. What runs on it ends with the thread that started it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

HOME = "/srv/hdpmf"
NETEM = ("delay", "20ms", "loss", "1%")
_ENTER = 'mount --bind "$1" /srv && mount --bind "$2" /etc/hosts && cd /srv/hdpmf && shift 2 && exec "$@"'


def lacking() -> str:
    """What this machine lacks for hosts; empty if they can be made."""
    if os.geteuid() != 0:
        return "hosts as network namespaces need root"
    absent = [tool for tool in ("ip", "mount", "setpriv") if shutil.which(tool) is None]
    if absent:
        return f"hosts as network namespaces need {absent[0]} (iproute2, util-linux): install it, or run .ci/run"
    if not Path("/srv").is_dir():
        return "hosts as network namespaces need a folder /srv"
    name = f"hdpmf-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespace can be made here: {made.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def ip(*arguments: str) -> None:
    """``ip``, which has to succeed."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """Use as a context: on the way out processes, links and namespaces are gone.

    Args:
        folder: For their files and logs.
        names: The host names that each host has, by the host.
        environment: Added to the environment of all commands.

    Attributes:
        netem: Whether links have latency and loss.
    """

    def __init__(self, folder: Path, names: Mapping[str, tuple[str, ...]], environment: Mapping[str, str]) -> None:
        self._folder, self._names = folder, names
        self._environment = {**os.environ, **environment, "HOME": HOME}
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._prefix = f"hdpmf-{os.getpid()}-"
        self._stack = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.netem = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stop)
            switch = self._space(stack, "switch")
            ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", switch, "link", "set", "bridge", "up")
            known = ["127.0.0.1 localhost"]
            for number, (host, names) in enumerate(self._names.items(), 1):
                self._connect(stack, switch, host, f"10.77.0.{number}")
                known.append(f"10.77.0.{number} {' '.join(names)}")
            (self._folder / "hosts").write_text("\n".join([*known, ""]))
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

    def call(self, host: str, *command: str) -> str:
        """Run a command on a host; its standard output. AssertionError, with its words, if it fails."""
        done = subprocess.run(
            self._entered(host, command), capture_output=True, text=True, env=self._environment, timeout=60
        )
        assert done.returncode == 0, f"{host}$ {' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, process: str, host: str, *command: str) -> None:
        """Start a command on a host; its words go to a log, also if it was started before."""
        with (self._folder / f"{process}.log").open("ab") as log:
            self._running[process] = subprocess.Popen(
                self._entered(host, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def status(self, process: str) -> int | None:
        """How a process ended; None while it runs."""
        return self._running[process].poll()

    def kill(self, process: str) -> None:
        """``kill -9``."""
        self._running[process].kill()
        self._running[process].wait()

    def link(self, host: str, state: str) -> None:
        """Pull a host's plug ("down"), or put it back ("up")."""
        ip("-n", self._prefix + "switch", "link", "set", host, state)

    def _entered(self, host: str, command: tuple[str, ...]) -> list[str]:
        space, place = self._prefix + host, self._folder / host
        inside = ["sh", "-c", _ENTER, "sh", str(place), str(self._folder / "hosts"), *command]
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", space, *inside]

    def _space(self, stack: ExitStack, host: str) -> str:
        ip("netns", "add", self._prefix + host)
        stack.callback(ip, "netns", "del", self._prefix + host)
        return self._prefix + host

    def _connect(self, stack: ExitStack, switch: str, host: str, address: str) -> None:
        self.home(host).mkdir(parents=True)
        space = self._space(stack, host)
        ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", host, "netns", switch)
        ip("-n", switch, "link", "set", host, "master", "bridge", "up")
        ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", space, "link", "set", device, "up")
        slower = ["tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "netem", *NETEM]
        self.netem = self.netem and _succeeds(slower)

    def _stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
