"""A leader and a helper as processes, with a collector and devices in this one: what tests and
benchmarks share.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
    input_share_info,
    seal,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    COLLECTION_JOBS_PATH,
    MEDIA_TYPES,
    REPORTS_PATH,
    AggregateShareAad,
    CollectionJobReq,
    CollectionJobResp,
    InputShareAad,
    Interval,
    PlaintextInputShare,
    Report,
    ReportMetadata,
    Role,
    TaskConfiguration,
    UploadRequest,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.prio import Prio3, prio3_bounded_vector
from hdpmf.common.aggregation.two_servers.tokens import TOKEN_HEADER, Token
from hdpmf.common.net.https import client_context
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.task import (
    EVERYBODY,
    TASK_MEDIA_TYPE,
    TASK_PATH,
    Linear,
    Pairs,
    Task,
    configuration_of,
    prio_of,
    task_id,
)
from hdpmf.lab.simulate.deploy import Deployment, free_port
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder, Limits
from hdpmf.untrusted.aggregator.tasks import Rules
from tests.world.tokens import issuer, make_token

LEADER, HELPER = ROLES = ("leader", "helper")
SMALL = Linear(items=4, bits=8, bound=(1 << 20) - 1, cap=16, presence=1, values=0)
MINIMUM = 2


_FOLDERS: dict[str, AggregatorFolder] = {}
"""Of the servers of this process, by identity: for their newest keys."""


class CollectorHere:
    """A recommender as servers know it."""

    def __init__(self, name: str = "shop") -> None:
        self.party, self.hpke = PartyKey.generate(), KeyPair.generate(7)
        self.card = Collector(
            organisation=name, hpke=to_base64(self.hpke.config.encode()), identity=self.party.public
        )

    def headers(self, server: Server) -> dict[str, str]:
        return {"authorization": f"Bearer {self.party.token(server.identity, to=server.identity)}"}

    def open(self, asked: Asked, answer: bytes) -> tuple[list[int], int]:
        """The sum, and how many reports are in it."""
        collection = CollectionJobResp.decode(answer)
        wanted = CollectionJobReq(asked.interval)
        aad = AggregateShareAad(asked.id, asked.configuration, wanted).encode()
        shares = [
            self.hpke.open(share, aggregate_share_info(role), aad)
            for share, role in (
                (collection.leader_encrypted_agg_share, Role.LEADER),
                (collection.helper_encrypted_agg_share, Role.HELPER),
            )
        ]
        return asked.prio.unshard(shares), collection.report_count


@dataclass(frozen=True)
class Asked:
    """A task."""

    task: Task
    document: bytes
    id: bytes
    prio: Prio3

    @property
    def interval(self) -> Interval:
        """The whole of it, in steps."""
        whole = Interval(self.task.begin, self.task.end - self.task.begin)
        return whole.in_steps(self.task.precision)

    @property
    def configuration(self) -> TaskConfiguration:
        return configuration_of(self.task, self.id)

    def report(
        self, vector: Sequence[int], *, when: float | None = None, report_id: bytes = b""
    ) -> bytes:
        """What a device makes of a row of numbers."""
        encoded = self.prio.circuit.encode(np.array(vector))
        now = self.task.begin if when is None else when
        metadata = ReportMetadata(
            report_id or secrets.token_bytes(16),
            int(now // self.task.precision),
        )
        sharded = self.prio.shard(encoded, metadata.report_id)
        aad = InputShareAad(self.id, self.configuration, metadata, sharded.public_share).encode()
        pair = self.task.servers
        sealed = [
            seal(
                _FOLDERS[server.identity].hpke.config,
                input_share_info(role),
                aad,
                PlaintextInputShare(share).encode(),
            )
            for server, role, share in zip(
                (pair.leader, pair.helper),
                (Role.LEADER, Role.HELPER),
                sharded.input_shares,
                strict=True,
            )
        ]
        return Report(metadata, sharded.public_share, *sealed).encode()

    def admitted(
        self, vector: Sequence[int], token: Token | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """A report of an enrolled device, and the headers with its token."""
        token = make_token(self.task, self.id) if token is None else token
        report = self.report(vector, report_id=token.report_id)
        return report, {TOKEN_HEADER: token.to_header()}


def make_task(
    servers: Servers,
    collector: Collector,
    sums: Linear | Pairs = SMALL,
    *,
    seconds: int = 3600,
    enrolled: bool = False,
    minimum: int = MINIMUM,
    precision: int = 1,
    begin: int | None = None,
) -> Asked:
    """A task that begins now; if ``enrolled``, who reports needs a token."""
    _warm()
    start = int(time.time()) // precision * precision if begin is None else begin
    task = Task(
        servers=servers,
        collector=collector,
        sums=sums,
        catalogue="items",
        run=to_base64(bytes(16)),
        asked=EVERYBODY,
        begin=start,
        end=start + seconds,
        precision=precision,
        minimum=minimum,
        token_key=to_base64(issuer().public.encoded) if enrolled else "",
    )
    document = task.to_bytes()
    found = task_id(document)
    return Asked(task, document, found, prio_of(task, found))


@cache
def _warm() -> None:
    """Load what computes, before the time of a task begins."""
    prio = prio3_bounded_vector(SMALL.entries, 255, SMALL.bound, True, b"")
    prio.shard(prio.circuit.encode(np.zeros(SMALL.entries, np.int64)), bytes(16))


class Pair:
    """Two servers of two organisations on this machine. Use as a context; they end with it."""

    def __init__(
        self,
        folder: Path,
        *,
        databases: dict[str, str] | None = None,
        limits: Limits | None = None,
        rules: Rules | None = None,
        environment: dict[str, str] | None = None,
        clocks: bool = False,
    ) -> None:
        self.collector = CollectorHere()
        self._clocks = {role: folder / f"{role}.clock" for role in ROLES} if clocks else {}
        self.folders = {
            role: AggregatorFolder.create(
                folder / role,
                AggregatorConfig(
                    role=role,  # type: ignore[arg-type]
                    organisation=name,
                    name="localhost",
                    port=free_port(),
                    database=(databases or {}).get(role, ""),
                    limits=limits or Limits(),
                    tasks=rules or Rules(minimum=MINIMUM, lease=2.0),
                ),
            )
            for role, name in ((LEADER, "North"), (HELPER, "South"))
        }
        cards = {role: made.card for role, made in self.folders.items()}
        _FOLDERS.update({made.card.identity: made for made in self.folders.values()})
        self.servers = self.folders[LEADER].pair(cards[HELPER], same_host=True)
        self.folders[HELPER].pair(cards[LEADER], same_host=True)
        for made in self.folders.values():
            made.admit(self.collector.card)
        for role in self._clocks:
            self.set_clock(role, 0)
        self.cards = cards
        self.deployment = Deployment(folder / "logs", environment)
        self.clients = {
            role: httpx.Client(verify=self.context(role), timeout=30.0) for role in cards
        }

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.deployment.stop_all()
        for client in self.clients.values():
            client.close()

    def context(self, role: str) -> ssl.SSLContext:
        return client_context(self.cards[role].authority)

    @property
    def has_clocks(self) -> bool:
        """Clocks of the servers can be set."""
        return bool(self._clocks)

    def set_clock(self, role: str, ahead: int) -> None:
        """Set a server's clock so many seconds ahead of ours, also while it runs."""
        path = self._clocks[role]
        path.with_suffix(".new").write_text(f"{ahead:+d}\n")
        path.with_suffix(".new").rename(path)

    def serve(self, role: str, options: Iterable[str] = ()) -> None:
        """Start a server."""
        arguments = ("aggregator", "serve", str(self.folders[role].path), *options)
        self.deployment.start(role, "hdpmf", *arguments, environment=self._faketime(role))

    def _faketime(self, role: str) -> dict[str, str]:
        if not self._clocks:
            return {}
        return {
            "LD_PRELOAD": faketime_library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._clocks[role]),
            "FAKETIME_CACHE_DURATION": "1",  # seconds after which the file is read again
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def start(self, *roles: str, options: Iterable[str] = ()) -> None:
        """Start servers, and wait until they answer."""
        for role in roles:
            self.serve(role, options)
        for role in roles:
            self.wait_for(role)
        if {LEADER, HELPER} <= set(roles):
            self.wait_for_clocks()

    def wait_for_clocks(self, seconds: float = 60.0) -> None:
        """Wait until the leader takes reports: it has compared its clock with the helper's."""
        end = time.monotonic() + seconds
        while "hdpmf_aggregator_partner_reachable 1.0" not in self.metrics(LEADER):
            assert time.monotonic() < end, self.log(LEADER)
            time.sleep(0.05)

    def metrics(self, role: str) -> str:
        """What a server tells Prometheus."""
        headers = {"authorization": f"Bearer {self.folders[role].metrics_token}"}
        return self.clients[role].get(self.cards[role].endpoint("/metrics"), headers=headers).text

    def wait_for(self, role: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.deployment.check()
            try:
                if self.clients[role].get(self.cards[role].endpoint("/healthz")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise TimeoutError(f"{role}: {self.log(role)}")

    def kill(self, role: str) -> None:
        self.deployment.kill(role)

    def log(self, role: str) -> str:
        path = self.deployment.child(role).log
        return path.read_text(errors="replace") if path.exists() else ""

    def give(self, asked: Asked) -> None:
        """Hand the task to both servers."""
        for role in (HELPER, LEADER):
            answer = self.put_task(role, asked.id, asked.document)
            assert answer.status_code == 201, answer.text

    def put_task(
        self, role: str, found_id: bytes, body: bytes, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        url = self.cards[role].endpoint(TASK_PATH.format(task_id=id_to_text(found_id)))
        shown = self.collector.headers(self.cards[role]) if headers is None else headers
        return self.clients[role].put(
            url, content=body, headers={**shown, "content-type": TASK_MEDIA_TYPE}
        )

    def reports_url(self, asked: Asked) -> str:
        return self.cards[LEADER].endpoint(REPORTS_PATH.format(task_id=id_to_text(asked.id)))

    def upload(
        self, asked: Asked, report: bytes, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        told = {"content-type": MEDIA_TYPES[UploadRequest], **(headers or {})}
        return self.clients[LEADER].post(self.reports_url(asked), content=report, headers=told)

    def collect(self, asked: Asked, seconds: float = 60.0) -> tuple[list[int], int]:
        """The sum of a task that is over, and how many reports are in it."""
        return self.collector.open(asked, self.collection(asked, seconds))

    def collection(self, asked: Asked, seconds: float = 60.0) -> bytes:
        """The leader's answer to the collector, as soon as there is one; whatever fails
        meanwhile is tried again.
        """
        path = COLLECTION_JOBS_PATH.format(task_id=id_to_text(asked.id))
        url, client = self.cards[LEADER].endpoint(path), self.clients[LEADER]
        headers = {
            **self.collector.headers(self.cards[LEADER]),
            "content-type": MEDIA_TYPES[CollectionJobReq],
        }
        body = CollectionJobReq(asked.interval).encode()
        end, last = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                answer = client.post(url, content=body, headers=headers)
                if answer.status_code == 200 and answer.content:
                    return answer.content
                last = f"{answer.status_code} {answer.text}"
            except httpx.HTTPError as error:
                last = repr(error)
            time.sleep(0.1)
        raise TimeoutError(last)


def taken(answer: httpx.Response) -> bool:
    """True if all reports were taken."""
    return (answer.status_code, answer.content) == (200, b"")


def faketime_library() -> str:
    """The library that sets a process's clock, of Debian's package libfaketime; "" without it."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else ""


def near(found: Sequence[int], expected: Sequence[int], tolerance: int = 60) -> bool:
    """Whether two servers' noise of scale 1 can explain the difference: beyond 60 it is one in
    10^25.
    """
    return len(found) == len(expected) and all(
        abs(a - b) <= tolerance for a, b in zip(found, expected, strict=True)
    )
