"""Two servers of `tests.world` with a collector and a task of a few items."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    Collection,
    CollectionReq,
    Interval,
    Role,
)
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.protocol import Task, encode
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.servers import Collector
from hdpmf.common.protocol.task import Noise, OneRating
from tests.world import HOUR, Clock, KnownNoise, ServerPair, issuer, make_report, make_token

ITEMS, CODES, RULERS = 6, (-5, -5, -2, 3, 5), (-2, -1, 0, 1, 2)
BEGIN = 100_000 * HOUR
END = BEGIN + 4 * HOUR
WHOLE = Interval(BEGIN, END - BEGIN)


class Pair(ServerPair):
    """Both servers, a collector, and a task of a few items."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        noises = options.pop("noises", (KnownNoise(100), KnownNoise(7000)))
        super().__init__(Clock(BEGIN + 10), noises, folder=folder, **options)
        self.collector_keys = KeyPair.generate(9)
        config = self.collector_keys.config.encode().hex()
        self.collector = Collector(
            organisation="shop", hpke=config, identity=PartyKey.generate().public
        )

    def reopen(self) -> None:
        """As after a restart, when leases are over."""
        self.clock.now += self.rules.lease + 1
        self.restart()

    def a_task(self, **changed: object) -> Task:
        noise = tuple(Noise(entries=n, scale="50/1") for n in (ITEMS, ITEMS, 1))
        fields: dict[str, Any] = {
            "servers": self.servers, "collector": self.collector,
            "circuit": OneRating(items=ITEMS, codes=CODES, rulers=RULERS), "noise": noise,
            "begin": BEGIN, "end": END, "precision": HOUR, "minimum": 2,
        }  # fmt: skip
        return Task(**(fields | changed))

    def a_task_with_tokens(self, **changed: object) -> Task:
        """A task for enrolled devices."""
        return self.a_task(token_key=issuer().public.encoded, **changed)

    def add(self, task: Task | None = None) -> bytes:
        """The task at both servers."""
        document = encode(self.a_task() if task is None else task)
        self.helper.add_task(document)
        return self.leader.add_task(document)

    def admitted(self, task: bytes, seed: int, token: Token | None = None) -> tuple[bytes, Token]:
        """A report of an enrolled device, and its token."""
        if token is None:
            token = make_token(self.leader.task(task).document, task)
        return self.report(task, seed, report_id=token.report_id), token

    def report(self, task: bytes, seed: int, **how: Any) -> bytes:
        return make_report(self.leader.task(task).document, task, *ratings(seed), **how)

    def upload(self, task: bytes, seeds: list[int]) -> None:
        for seed in seeds:
            self.leader.upload(task, self.report(task, seed))

    def ask(
        self, task: bytes, interval: Interval = WHOLE, job: bytes | None = None
    ) -> bytes | None:
        """What the collector gets, after the end of a batch."""
        self.clock.now = max(self.clock.now, interval.end + 1)
        job = secrets.token_bytes(16) if job is None else job
        self.leader.begin_collection(task, job, CollectionReq(interval).encode())
        return self.leader.collection(task, job)

    def collect(self, task: bytes, interval: Interval = WHOLE) -> bytes:
        found = self.ask(task, interval)
        assert found is not None
        return found

    def numbers(self, task: bytes, collection: bytes, interval: Interval = WHOLE) -> list[int]:
        """What the collector reads, less the known noise."""
        found, opened = Collection.decode(collection), self.leader.task(task)
        aad = AggregateShareAad(task, interval).encode()
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
