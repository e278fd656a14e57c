"""All that a device with a carrier can reach, in the test's hands, and a clock that tests move."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from hdpmf.common.aggregation.two_servers.dap.messages import id_from_text
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.protocol import (
    CatalogueTable,
    encode,
)
from hdpmf.common.protocol.identity import verifies
from hdpmf.common.protocol.servers import Server
from hdpmf.common.protocol.task import signed_token_request, task_id
from hdpmf.errors import TransportError
from hdpmf.private.device.participant import Participant
from tests.world.tokens import issuer

HOUR = 3600


class Clock:
    """The time, which only tests move."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, as `time.sleep` does."""
        self.now += seconds


class MemoryCarrier:
    """A recommender's files and a leader, all in the test's hands. It keeps every request, in its
    order.

    Attributes:
        clock: The time.
        files: The recommender's folder.
        answers: What the leader says to the next uploads: a status, or "unreachable" or "silent"
            for an error before or after the bytes left; then ``otherwise``.
        uploads: All uploads whose bytes left: task, nonce of the token (hex), report.
        tokens: All requests for tokens: task, device, request. ``issuer`` signs them.
        issues: What the recommender answers to the next ones: a status, "unreachable", or bytes
            that are no signature; then it signs.
        requests: What was asked for, with the size of what was sent.
        logged: What devices said to their owners.
    """

    def __init__(self, now: float, catalogue: CatalogueTable) -> None:
        self.clock = Clock(now)
        self.files: dict[str, bytes] = {}
        self.index: dict[str, Any] = {}
        self.answers: list[int | str] = []
        self.otherwise: int | str = 201
        self.uploads: list[tuple[bytes, str, bytes]] = []
        self.tokens: list[tuple[bytes, str, bytes]] = []
        self.issues: list[int | str | bytes] = []
        self.requests: list[tuple[str, int]] = []
        self.logged: list[str] = []
        self.tasks: dict[bytes, bytes] = {}
        self.publish(catalogue=encode(catalogue))

    @property
    def now(self) -> float:
        """The time."""
        return self.clock.now

    @now.setter
    def now(self, now: float) -> None:
        self.clock.now = now

    def publish(
        self,
        *,
        catalogue: bytes = b"",
        task: bytes = b"",
        facts: bytes = b"",
        run: str = "ab" * 16,
        keys: bytes = b"",
    ) -> None:
        """Put files into the folder and name them in its index."""
        if catalogue:
            self.index["catalogue"] = self._keep("catalogue", catalogue)
        if task:
            name = task_id(task).hex()
            self.tasks[task_id(task)] = task
            self.files[f"task-{name}.msgpack"] = task
            self.index["task"] = {"file": f"task-{name}.msgpack", "id": name}
        if facts:
            self.index["model"] = self._keep("facts", facts) | {"run": run}
        if keys:
            self.index["keys"] = self._keep("keys", keys)
        self.files["index.json"] = json.dumps(self.index).encode()

    def _keep(self, kind: str, data: bytes) -> dict[str, str]:
        digest = sha256(data).hexdigest()
        self.files[f"{kind}-{digest}.msgpack"] = data
        return {"file": f"{kind}-{digest}.msgpack", "sha256": digest}

    def fetch(self, name: str, most: int) -> bytes:
        """Return a file, as `Carrier.fetch` does."""
        self.requests.append((name, 0))
        data = self.files.get(name)
        if data is None:
            raise TransportError("not there")
        if len(data) > most:
            raise TransportError("too long")
        return data

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Any
    ) -> int:
        """Take a report, as `Carrier.upload` does."""
        self.requests.append((f"{leader.organisation} {path} {sorted(headers)}", len(body)))
        answer = self.answers.pop(0) if self.answers else self.otherwise
        if answer == "unreachable":
            raise TransportError("unreachable")
        leaving()
        task = id_from_text(path.split("/")[2], 32)
        shown = headers.get("authorization")
        token = None if shown is None else Token.from_header(shown)
        assert headers["content-type"] == "application/dap-report"
        self.uploads.append((task, "" if token is None else token.nonce.hex(), body))
        if answer == "silent":
            raise TransportError("no answer")
        return int(answer)

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Sign a token blindly, as `Carrier.request_token` does."""
        self.requests.append((f"recommender {path} {sorted(headers)}", len(body)))
        answer = self.issues.pop(0) if self.issues else 200
        if answer == "unreachable":
            raise TransportError("unreachable")
        task, device = id_from_text(path.split("/")[2], 32), headers["hdpmf-device"]
        said = signed_token_request(task, sha256(body).digest())
        assert verifies(bytes.fromhex(device), bytes.fromhex(headers["hdpmf-signature"]), said)
        self.tokens.append((task, device, body))
        if isinstance(answer, bytes):
            return 200, answer
        return int(answer), issuer().sign(body) if answer == 200 else b""


def live(device: Participant, world: MemoryCarrier, seconds: float) -> None:
    """Let time pass, a step at a time."""
    end = world.now + seconds
    while world.now < end:
        world.now = min(world.now + device.step(), end)
    device.step()
