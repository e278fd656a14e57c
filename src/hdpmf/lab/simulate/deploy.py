"""A recommender and devices as separate local processes that start and end together.

::

    with Deployment(folder / "logs") as deployment:
        deployment.recommender(folder / "service")
        for name, store in stores.items():
            deployment.device(name, store, "--once")
        for name in stores:
            deployment.wait(name, seconds=600)

Every process gets a pipe from this one as its standard input and ends when that closes. So nothing
is left behind after an error, Ctrl-C or ``kill -9`` of this process. That is what ``python -m
hdpmf.lab.simulate.deploy MODULE ...`` does in the new process: it runs the module, which gets
SIGTERM when the pipe closes, and is ended if it does not end.
"""

import os
import runpy
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hdpmf.common.base.files import storage_errors
from hdpmf.errors import ConfigError, FederationError

RECOMMENDER = "recommender"
_STOP_SECONDS = 10.0
_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.1


class Child:
    """A process that starts on construction and ends when the pipe to its standard input closes.

    Raises:
        StorageError: The log cannot be written.
    """

    def __init__(
        self, name: str, arguments: list[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = log
        with storage_errors(f"could not write {log}"):
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C is for this process, which then ends the others in order
                start_new_session=True,
            )
        finally:
            os.close(output)

    @property
    def running(self) -> bool:
        """True while it runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    def release(self) -> None:
        """Close the pipe. May be called twice."""
        if self.process.stdin is not None:
            with suppress(OSError):  # what it did not read before it ended
                self.process.stdin.close()


class Deployment:
    """A context that ends every process on the way out, however that comes about.

    ``environment`` is added to this process's for all of them; each has a log in the folder
    ``logs``.
    """

    def __init__(self, logs: Path, environment: dict[str, str] | None = None) -> None:
        self._logs = logs
        self._environment = {**os.environ, **(environment or {})}
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop_all()

    def start(
        self, name: str, module: str, *options: str, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Run ``python -m module options``; a name can be used again once its process has ended.

        ``environment`` is added to that of all processes.

        Raises:
            StorageError: The log cannot be written.
        """
        held = self._children.get(name)
        if held is not None and held.running:
            raise ConfigError(f"{name} runs already")
        if held is not None:
            held.release()
        arguments = ["-m", "hdpmf.lab.simulate.deploy", module, *options]
        added = {**self._environment, **(environment or {})}
        self._children[name] = Child(name, arguments, self._logs / f"{name}.log", added)
        return self._children[name]

    def recommender(self, folder: Path, *options: str) -> Child:
        """``hdpmf recommender serve``: the service of this folder, until it is ended."""
        return self.start(RECOMMENDER, "hdpmf", "recommender", "serve", str(folder), *options)

    def device(self, name: str, store: Path, *options: str) -> Child:
        """``hdpmf device join`` for the device in this store."""
        return self.start(name, "hdpmf", "device", "join", str(store), *options)

    def wait(self, name: str, seconds: float) -> None:
        """Wait until a process has ended well.

        Raises:
            FederationError: It has not after ``seconds``, or it or another process has failed.
        """
        end = time.monotonic() + seconds
        while self._children[name].running:
            self.check()
            if time.monotonic() >= end:
                raise FederationError(
                    f"{name} was not done after {seconds:g} s (log: {self._children[name].log})"
                )
            time.sleep(_POLL_SECONDS)
        self.check()

    def wait_for_port(self, port: int, end: float) -> None:
        """Wait until something listens there.

        Raises:
            FederationError: Nothing does by then (``time.monotonic``), or a process has failed.
        """
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", port), _POLL_SECONDS).close()
                return
            except OSError:
                if time.monotonic() >= end:
                    raise FederationError(f"nothing listens on port {port}") from None
                time.sleep(_POLL_SECONDS)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all processes, running or not."""
        return tuple(self._children)

    def child(self, name: str) -> Child:
        """A process by its name, running or not."""
        return self._children[name]

    def check(self) -> None:
        """FederationError if a process has failed, with the last line of its log."""
        for child in self._children.values():
            if child.process.poll() not in (None, 0):
                raise FederationError(
                    f"{child.name} ended with status {child.process.returncode}: "
                    f"{child.last_words()} (log: {child.log})"
                )

    def kill(self, name: str) -> None:
        """``kill -9``, for tests of what survives it."""
        child = self._children[name]
        child.process.kill()
        child.process.wait()

    def stop(self, name: str) -> None:
        """End one process in order."""
        self._stop([self._children[name]])

    def stop_all(self) -> None:
        """End every process: asked first, all at once, and then made to. May be called twice."""
        self._stop(list(self._children.values()))

    def _stop(self, children: list[Child]) -> None:
        for child in children:
            if child.running:
                child.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        for child in children:
            try:
                child.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.release()


def free_port() -> int:
    """Return a port of this machine that nobody listens on now.

    It is below those that systems give to outgoing connections (32768 and up on Linux, 49152 on
    others): a connection of another process could take one of these before a server listens on it.
    """
    while True:
        port = secrets.choice(range(10_240, 32_768))
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:  # somebody listens there
            continue


def _run_supervised() -> None:
    """Run the module named by the first argument, and end with the process that started this."""
    threading.Thread(target=_end_with_starter, name="lifeline", daemon=True).start()
    module = sys.argv[1]
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    # Not through sys.stdin: its buffer would be locked by this thread while the interpreter shuts
    # down.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    _run_supervised()
