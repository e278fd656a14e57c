"""Two servers of `tests.world` with a collector and a task of a few items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    CollectionJobReq,
    CollectionJobResp,
    Interval,
    Role,
)
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.servers import Collector
from hdpmf.common.protocol.task import EVERYBODY, Linear, Pairs, Task
from tests.world import HOUR, Clock, KnownNoise, ServerPair, issuer, make_report, make_token

ITEMS = 6
SUMS = Linear(items=ITEMS, bits=8, bound=(1 << 20) - 1, cap=16, presence=50, values=50)


def pairs_of(heads: int) -> Pairs:
    """What a task of pairs sums."""
    return Pairs(
        heads=tuple(range(heads)),
        weights=(64,) * heads,
        bits=10,
        bound=(1 << 24) - 1,
        cap=16,
        deviation=10_000_000,
    )


BEGIN = 100_000 * HOUR
END = BEGIN + 4 * HOUR
WHOLE = Interval(BEGIN, END - BEGIN)


class Pair(ServerPair):
    """Both servers, a collector, and a task of a few items."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        noises = options.pop("noises", (KnownNoise(100), KnownNoise(7000)))
        super().__init__(Clock(BEGIN + 10), noises, folder=folder, **options)
        self.collector_keys = KeyPair.generate(9)
        config = to_base64(self.collector_keys.config.encode())
        self.collector = Collector(
            organisation="shop", hpke=config, identity=PartyKey.generate().public
        )

    def reopen(self) -> None:
        """As after a restart, when leases are over."""
        self.clock.now += self.rules.lease + 1
        self.restart()

    def a_task(self, **changed: object) -> Task:
        fields: dict[str, Any] = {
            "servers": self.servers, "collector": self.collector,
            "sums": SUMS, "catalogue": "items", "run": to_base64(bytes(16)), "asked": EVERYBODY,
            "begin": BEGIN, "end": END, "precision": HOUR, "minimum": 2,
        }  # fmt: skip
        return Task(**(fields | changed))

    def a_task_with_tokens(self, **changed: object) -> Task:
        """A task for enrolled devices."""
        return self.a_task(token_key=to_base64(issuer().public.encoded), **changed)

    def add(self, task: Task | None = None) -> bytes:
        """The task at both servers."""
        document = (self.a_task() if task is None else task).to_bytes()
        self.helper.add_task(document)
        return self.leader.add_task(document)

    def admitted(self, task: bytes, seed: int, token: Token | None = None) -> tuple[bytes, Token]:
        """A report of an enrolled device, and its token."""
        if token is None:
            token = make_token(self.leader.task(task).document, task)
        return self.report(task, seed, report_id=token.report_id), token

    def report(self, task: bytes, seed: int, **how: Any) -> bytes:
        return make_report(self.leader.task(task).document, task, row_of(seed), **how)

    def upload(self, task: bytes, seeds: list[int]) -> None:
        for seed in seeds:
            self.leader.upload(task, self.report(task, seed))

    def ask(self, task: bytes, interval: Interval = WHOLE) -> bytes | None:
        """What the collector gets, after the end of a batch."""
        self.clock.now = max(self.clock.now, interval.end + 1)
        return self.leader.collect(task, wanted(interval).encode())

    def collect(self, task: bytes, interval: Interval = WHOLE) -> bytes:
        found = self.ask(task, interval)
        assert found is not None
        return found

    def numbers(self, task: bytes, collection: bytes, interval: Interval = WHOLE) -> list[int]:
        """What the collector reads, less the known noise."""
        found, opened = CollectionJobResp.decode(collection), self.leader.task(task)
        aad = AggregateShareAad(task, opened.configuration, wanted(interval)).encode()
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


def wanted(interval: Interval) -> CollectionJobReq:
    """The collector's request for an interval in seconds."""
    return CollectionJobReq(interval.in_steps(HOUR))


def row_of(seed: int) -> np.ndarray:
    """Some user's row: of presence, and of values after it."""
    rng = np.random.default_rng(seed)
    presence = rng.integers(0, 256, ITEMS) * (rng.random(ITEMS) < 0.6)
    return np.append(presence, rng.integers(-255, 256, ITEMS + 1))


def plain_sum(seeds: list[int]) -> list[int]:
    """What the sum over these users is, by NumPy alone."""
    total = np.zeros(SUMS.entries, np.int64)
    for seed in seeds:
        total += row_of(seed)
    return [int(number) for number in total]
