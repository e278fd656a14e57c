"""A SuperLink as a child of this process: started, waited for, and gone when we are."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hdpmf.errors import StorageError, TransportError
from hdpmf.transport.certificates import Certificates
from hdpmf.transport.flower.environment import quiet_environment
from hdpmf.transport.flower.superlink_process import SuperLinkSettings

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


class SuperLink:
    """Starts on construction.

    Args:
        folder: Its own: for what Flower keeps, and for its log.
        certificates: The recommender's.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        max_bytes: No request may be longer.
        shortest_heartbeat: Seconds; devices may not ask for signs of life more often.

    Attributes:
        port: Where it listens.
        secret: What opens the parts that are not for devices.
        log: Its log file.

    Raises:
        TransportError: It did not start; the message has the end of its log.
    """

    def __init__(
        self,
        folder: Path,
        certificates: Certificates,
        *,
        host: str,
        port: int,
        max_bytes: int,
        shortest_heartbeat: float,
    ) -> None:
        self.secret = secrets.token_urlsafe(32)
        self.log = folder / "superlink.log"
        settings = SuperLinkSettings(
            host=host,
            port=port,
            certificate=str(certificates.server),
            key=str(certificates.key),
            secret=self.secret,
            max_bytes=max_bytes,
            shortest_heartbeat=shortest_heartbeat,
        )
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise StorageError(f"could not write {self.log}: {error.strerror}") from error
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hdpmf.transport.flower.superlink_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**quiet_environment(), "FLWR_HOME": str(folder / "flower"), "FLWR_LOG_LEVEL": "WARNING"},
                start_new_session=True,  # Ctrl-C is for us; the child ends when its standard input does
            )
        finally:
            os.close(log)
        try:
            self.port = self._wait_until_ready(settings)
        except BaseException:
            self.stop()
            raise

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def stop(self) -> None:
        """End it: first by its standard input, then with force. May be called twice."""
        for end in (self._close_input, self._process.terminate, self._process.kill):
            if self.alive:
                end()
            try:
                self._process.wait(_STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait_until_ready(self, settings: SuperLinkSettings) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise TransportError("the SuperLink has no pipes")
        try:
            stdin.write(msgspec.json.encode(settings) + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise TransportError(self._why("ended at once")) from None
        end = time.monotonic() + _START_SECONDS
        ready, _, _ = select.select([stdout], [], [], _START_SECONDS)
        line = stdout.readline() if ready and time.monotonic() < end else b""
        if not line:
            raise TransportError(self._why("did not start"))
        return int(json.loads(line)["port"])

    def _why(self, what: str) -> str:
        try:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-1:]
        except OSError:
            tail = []
        return f"the SuperLink {what}: {' '.join(tail) or 'it said nothing'} (log: {self.log})"
