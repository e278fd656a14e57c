"""A SuperLink as a child of this process: started, waited for, and gone when we are."""

from __future__ import annotations

import json
import select
import subprocess
from pathlib import Path

import msgspec

from hdpmf.common.net.child import Child
from hdpmf.common.net.flower import superlink_process
from hdpmf.common.net.flower.environment import quiet_environment
from hdpmf.common.net.flower.superlink_process import SuperLinkSettings
from hdpmf.errors import TransportError

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


class SuperLink:
    """Starts on construction.

    Args:
        folder: Its own: for what Flower keeps, and for its log.
        settings: Where it listens and what it asks for.

    Attributes:
        own_port: Where it listens for this process, on this machine.
        secret: What opens the parts that are not for devices.

    Raises:
        StorageError: Its log cannot be written.
        TransportError: It did not start; the message has the end of its log.
    """

    def __init__(self, folder: Path, settings: SuperLinkSettings) -> None:
        self.secret = settings.secret
        self._child = Child(
            "the SuperLink",
            ["-m", superlink_process.__name__],
            folder / "superlink.log",
            {
                **quiet_environment(),
                "FLWR_HOME": str(folder / "flower"),
                "FLWR_LOG_LEVEL": "WARNING",
            },
            talks=True,
        )
        try:
            self.port, self.own_port = self._wait_until_ready(settings)
        except BaseException:
            self.stop()
            raise

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child.running

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.process.pid

    def stop(self) -> None:
        """End it: first by its standard input, then with force. May be called twice."""
        process = self._child.process
        for end in (self._child.release, process.terminate, process.kill):
            end()
            try:
                process.wait(_STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue

    def _wait_until_ready(self, settings: SuperLinkSettings) -> tuple[int, int]:
        stdin, stdout = self._child.process.stdin, self._child.process.stdout
        if stdin is None or stdout is None:
            raise TransportError("the SuperLink has no pipes")
        try:
            stdin.write(msgspec.json.encode(settings) + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended at once") from None
        ready, _, _ = select.select([stdout], [], [], _START_SECONDS)
        line = stdout.readline() if ready else b""
        if not line:
            raise self._failed("did not start")
        ports = json.loads(line)
        return int(ports["port"]), int(ports["own_port"])

    def _failed(self, how: str) -> TransportError:
        return TransportError(
            f"the SuperLink {how}: {self._child.last_words()} (log: {self._child.log})"
        )
