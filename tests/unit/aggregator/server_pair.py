"""Two servers, a collector and devices in one process, for tests."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hdpmf.common.aggregation.two_servers.dap import (
    AggregateShareAad,
    BatchSelector,
    Collection,
    CollectionReq,
    HpkeConfig,
    InputShareAad,
    Interval,
    PlaintextInputShare,
    Query,
    Report,
    ReportMetadata,
    Role,
)
from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
    input_share_info,
    seal,
)
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.protocol import Task, encode
from hdpmf.common.protocol.servers import Collector, Server
from hdpmf.common.protocol.submission import signed_bytes
from hdpmf.common.protocol.task import Noise, OneRating, prio_of
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import HelperApi, Leader
from hdpmf.untrusted.aggregator.tasks import Rules, ServerKeys, SimulationRules

ITEMS, CODES, RULERS = 6, (-5, -5, -2, 3, 5), (-2, -1, 0, 1, 2)
HOUR = 3600
BEGIN = 100_000 * HOUR
END = BEGIN + 4 * HOUR
WHOLE = Interval(BEGIN, END - BEGIN)


class KnownNoise:
    """Adds the same number everywhere and remembers how often it was asked."""

    def __init__(self, number: int) -> None:
        self.number, self.draws = number, 0

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.draws += 1
        return np.full(size, self.number, np.int64)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def server_keys() -> tuple[ServerKeys, ServerKeys]:
    made = []
    for name in ("library", "university"):
        party, hpke = PartyKey.generate(), KeyPair.generate(7)
        config = hpke.config.encode().hex()
        card = Server(
            organisation=name, url=f"https://{name}.example:443", hpke=config, identity=party.public
        )
        made.append((party, hpke, card))
    (first, hpke, leader), (second, other, helper) = made
    return (
        ServerKeys(role="leader", party=first, hpke=hpke, own=leader, partner=helper),
        ServerKeys(role="helper", party=second, hpke=other, own=helper, partner=leader),
    )


@dataclass
class Device:
    """Somebody's device."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def identity(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, task: bytes, report: bytes) -> bytes:
        return self.key.sign(signed_bytes(task, sha256(report).digest()))


SIMULATED = SimulationRules(minimum=2)


class Pair:
    """Both servers. ``between`` may put something between the leader and the helper."""

    def __init__(
        self,
        folder: Path | None = None,
        rules: Rules = SIMULATED,
        between: Callable[[HelperApi], HelperApi] = lambda helper: helper,
        url: Callable[[str], str] | None = None,
    ) -> None:
        self.keys = server_keys()
        self.collector_keys = KeyPair.generate(9)
        config = self.collector_keys.config.encode().hex()
        self.collector = Collector(
            organisation="shop", hpke=config, identity=PartyKey.generate().public
        )
        self.clock = Clock(BEGIN + 10)
        self.noises: Any = (KnownNoise(100), KnownNoise(7000))
        self.folder, self.rules, self.between = folder, rules, between
        self.url = url or (
            lambda role: "sqlite://" if folder is None else f"sqlite:///{folder / role}.sqlite"
        )
        self.databases = [ServerDatabase(self.url(role)) for role in ("leader", "helper")]
        self.start()

    def start(self) -> None:
        """Both servers, from what is in their databases."""
        logs = [
            None if self.folder is None else self.folder / f"{role}.released"
            for role in ("leader", "helper")
        ]
        options: dict[str, Any] = {"clock": self.clock, "rules": self.rules}
        self.helper = Helper(
            self.keys[1],
            self.databases[1],
            noise=self.noises[1],
            released_batches=logs[1],
            **options,
        )
        door = self.between(self.helper)
        self.leader = Leader(
            self.keys[0],
            self.databases[0],
            door,
            noise=self.noises[0],
            released_batches=logs[0],
            **options,
        )

    def reopen(self) -> None:
        """As after a restart: nothing but what is on the disk is left, and leases are over."""
        if self.folder is not None:
            for database in self.databases:
                database.close()
            self.databases = [ServerDatabase(self.url(role)) for role in ("leader", "helper")]
        self.clock.now += self.rules.lease + 1
        self.start()

    def a_task(self, **changed: object) -> Task:
        noise = tuple(Noise(entries=n, scale="50/1") for n in (ITEMS, ITEMS, 1))
        fields: dict[str, Any] = {
            "servers": self.keys[0].servers, "collector": self.collector,
            "circuit": OneRating(items=ITEMS, codes=CODES, rulers=RULERS), "noise": noise,
            "begin": BEGIN, "end": END, "precision": HOUR, "minimum": 2, "enrolled": False,
        }  # fmt: skip
        return Task(**(fields | changed))

    def add(self, task: Task | None = None, devices: list[Device] | None = None) -> bytes:
        """The task at both servers."""
        document = encode(self.a_task() if task is None else task)
        self.helper.add_task(document)
        return self.leader.add_task(document, [(device.identity, 1) for device in devices or []])

    def report(self, task: bytes, seed: int, **how: Any) -> bytes:
        return make_report(self.leader.task(task).task, task, *ratings(seed), **how)

    def upload(self, task: bytes, seeds: list[int]) -> None:
        for seed in seeds:
            self.leader.upload(task, self.report(task, seed))

    def aggregate_all(self, limit: int = 256) -> int:
        done = 0
        while found := self.leader.aggregate(limit):
            done += found
        return done

    def ask(
        self, task: bytes, interval: Interval = WHOLE, job: bytes | None = None
    ) -> bytes | None:
        """What the collector gets, after the end of a batch."""
        self.clock.now = max(self.clock.now, interval.end + 1)
        job = secrets.token_bytes(16) if job is None else job
        self.leader.begin_collection(
            task, job, CollectionReq(Query(batch_interval=interval), b"").encode()
        )
        return self.leader.collection(task, job)

    def collect(self, task: bytes, interval: Interval = WHOLE) -> bytes:
        found = self.ask(task, interval)
        assert found is not None
        return found

    def numbers(self, task: bytes, collection: bytes, interval: Interval = WHOLE) -> list[int]:
        """What the collector reads, less the known noise."""
        found, opened = Collection.decode(collection), self.leader.task(task)
        aad = AggregateShareAad(task, b"", BatchSelector(batch_interval=interval)).encode()
        shares = [
            self.collector_keys.open(share, aggregate_share_info(role), aad)
            for share, role in (
                (found.leader_encrypted_agg_share, Role.LEADER),
                (found.helper_encrypted_agg_share, Role.HELPER),
            )
        ]
        known = sum(
            getattr(noise, "number", 0) for noise in self.noises
        )  # released noise is not known
        return [number - known for number in opened.prio.unshard(shares)]


def ratings(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Some user's weights and levels."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 65, ITEMS) * (rng.random(ITEMS) < 0.6), rng.integers(0, 5, ITEMS)


def plain_sum(seeds: list[int]) -> list[int]:
    """What the sum over these users is, by NumPy alone."""
    total = np.zeros(2 * ITEMS + 1, np.int64)
    for seed in seeds:
        weights, levels = ratings(seed)
        ruled = (weights * np.array(RULERS)[levels]).sum()
        total += np.concatenate([weights * np.array(CODES)[levels], weights, [ruled]])
    return [int(number) for number in total]


def make_report(
    task: Task,
    number: bytes,
    weights: np.ndarray,
    levels: np.ndarray,
    *,
    time: int = BEGIN,
    report_id: bytes | None = None,
    spoil: Callable[[int, bytes], bytes] = lambda server, share: share,
    extensions: tuple[Any, ...] = (),
    sealed_for: bytes | None = None,
) -> bytes:
    """A device's report; ``spoil`` changes a share before it is encrypted."""
    prio = prio_of(task, number)
    report_id = secrets.token_bytes(16) if report_id is None else report_id
    sharded = prio.shard(prio.circuit.encode(weights, levels), report_id)
    metadata = ReportMetadata(report_id, time)
    aad = InputShareAad(sealed_for or number, metadata, sharded.public_share).encode()
    servers, sealed = ((task.servers.leader, Role.LEADER), (task.servers.helper, Role.HELPER)), []
    for place, (server, role) in enumerate(servers):
        plain = PlaintextInputShare(extensions, spoil(place, sharded.input_shares[place])).encode()
        sealed.append(
            seal(HpkeConfig.decode(bytes.fromhex(server.hpke)), input_share_info(role), aad, plain)
        )
    return Report(metadata, sharded.public_share, sealed[0], sealed[1]).encode()
