"""A service, two servers and devices in one process, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")


from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import Token, TokenKey
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution, Task, decode
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.identity import DeviceCard, Identity
from hdpmf.common.protocol.task import SIGNATURE_HEADER, task_id, token_challenge
from hdpmf.lab.simulate.simulate import ServersHere
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.outgoing import token_headers, token_request
from hdpmf.untrusted.recommender.sums import facts_from_sums
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.settings import Checkpoint, Pace, RunFiles, RunSettings
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from tests.world import ServerPair, make_report, part_of

START, PERIOD = 1_000_000_050, 100
SETTINGS = RunSettings(minimum=3, period=PERIOD)
PACE = Pace(pause=1.0, attempts=3)


class Killed(BaseException):
    """As kill -9: nothing catches it."""


class Kept(RunFiles):
    """Files in memory."""

    def __init__(self, step: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.data = b""
        self.step = step

    def save(self, checkpoint: Checkpoint) -> None:
        self.step()
        self.data = msgspec.msgpack.encode(checkpoint)
        self.step()

    def load(self) -> Checkpoint:
        return msgspec.msgpack.decode(self.data, type=Checkpoint) if self.data else Checkpoint()


class World:
    """Two servers, some devices with one user each, a collector, and a clock that only sleeping
    moves.
    """

    def __init__(self, settings: RunSettings = SETTINGS, users: int = 4, seed: int = 3) -> None:
        self.settings, self.now = settings, float(START)
        self.ratings = synthetic_world(users, 12, 6 * users, rng=seed)
        self.table = catalogue_table(
            self.ratings.items, self.ratings.scale, self.ratings.item_table
        )
        self.known = known_items(self.table)
        self.devices = [Identity.generate() for _ in range(users)]
        self.cards = [
            DeviceCard(name=f"d{n}", identity=device.public.hex())
            for n, device in enumerate(self.devices)
        ]
        pair = ServerPair(self.clock, (SeededNoise(1), SeededNoise(2)))
        self.leader, self.helper, self.servers = pair.leader, pair.helper, pair.servers
        self.collector = CollectorKeys.generate("shop")
        self.shards = [self.shard(user) for user in range(users)]
        self.issuer = TokenIssuer()  # outlives a killed run, as its files do
        self.absent: set[int] = set()
        self.published: bytes | None = None
        self.reported: set[bytes] = set()
        self.lines: list[str] = []

    def shard(self, user: int) -> OneRoundClient:
        part = part_of(self.ratings, user, user + 1)
        return OneRoundClient(
            part,
            PrivacyWeights.uniform(part),
            SeededNoise(9, stream=user),
            epsilon=self.settings.epsilon,
            catalogue=self.known.fingerprint,
            simulation=True,
        )

    def run(self, client: Any = None, files: RunFiles | None = None, **more: Any) -> Run:
        given: dict[str, Any] = {
            "settings": self.settings,
            "table": self.table,
            "devices": tuple(device.public.hex() for device in self.devices),
            "servers": self.servers,
            "keys": self.collector,
            "sum_servers": ServersHere(self.leader, self.helper) if client is None else client,
            "publish": self.publish,
            "issuer": self.issuer,
            "clock": self.clock,
            "files": RunFiles() if files is None else files,
            "pace": PACE,
            "log": self.lines.append,
            "sleep": self.sleep,
        }
        return Run(**given | more)

    def clock(self) -> float:
        return self.now

    def publish(self, document: bytes | None) -> None:
        self.published = document

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        document = self.published
        if document is None or document in self.reported:
            return
        task = decode(document)
        assert isinstance(task, Task)
        if task.begin <= self.now < task.end:
            self.report(document, task)

    def report(self, document: bytes, task: Task) -> None:
        """Every device that is there reports, once in each task."""
        self.reported.add(document)
        for user, (device, shard) in enumerate(zip(self.devices, self.shards, strict=True)):
            assert task.survey is not None
            shard.accept(task.survey)
            ((weights, levels),) = shard.entries(1)
            if user not in self.absent:
                number = task_id(document)
                token = self.token(task, number, device)
                report = make_report(task, number, weights, levels, report_id=token.report_id)
                self.leader.upload(number, report, token)

    def token(self, task: Task, number: bytes, device: Identity) -> Token:
        """A token of the recommender's for a device."""
        blinded = token_request(task, number)
        headers = token_headers(device, number, blinded.request)
        signature = bytes.fromhex(headers[SIGNATURE_HEADER])
        status, answer = self.issuer.take(
            id_to_text(number), device.public.hex(), signature, blinded.request
        )
        assert status == 200
        return blinded.finish(TokenKey(task.token_key), token_challenge(task, number), answer)


def exact(world: World, task: Task) -> SumContribution:
    """What the sum of this task must be: everybody's numbers and both servers' noise, drawn once
    more.
    """
    shards = [world.shard(user) for user in range(len(world.devices)) if user not in world.absent]
    assert task.survey is not None
    n = task.circuit.entries // 2
    scores, weights, total = np.zeros(n, np.int64), np.zeros(n, np.int64), 0
    for shard in shards:
        shard.accept(task.survey)
        ((units, levels),) = shard.entries(1)
        codes, rulers = (np.array(row) for row in (task.circuit.codes, task.circuit.rulers))  # type: ignore[union-attr]
        scores += units * codes[levels]
        weights += units
        total += int((units * rulers[levels]).sum())
    for noise in (SeededNoise(1), SeededNoise(2)):
        drawn = [noise.discrete_laplace(part.fraction, part.entries) for part in task.noise]
        scores, weights = (scores + drawn[0].astype(np.int64), weights + drawn[1].astype(np.int64))
        total += int(drawn[2][0])
    return SumContribution(scores=scores, weights=weights, total=total)


def task_of(world: World, checkpoint: Checkpoint) -> Task:
    """The task of a run; the servers have this and no other."""
    document = checkpoint.document
    assert world.leader.task_ids() == world.helper.task_ids() == [task_id(document)]
    task = decode(document)
    assert isinstance(task, Task)
    return task


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    for name in found.__struct_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def check(world: World, outcome: RunOutcome, checkpoint: Checkpoint) -> None:
    """The outcome is exactly what came in, with both noises, and the library's facts of it."""
    expected = exact(world, task_of(world, checkpoint))
    assert_same(checkpoint.sum(), expected)
    survey, features = world.settings.survey(world.known), world.known.features
    columns = None if features is None else features.matrix
    assert_same(outcome.model.numbers, facts_from_sums(survey, expected, columns, 2))
