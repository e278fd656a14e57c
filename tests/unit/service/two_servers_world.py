"""A service, two servers and devices in one process, for tests."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")


from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import NONCE_SIZE, Token, TokenKey, blind_token
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.pairs import Heads
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol.catalogue import catalogue_table, known_items, signed_first
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import (
    Pairs,
    Task,
    read_task,
    signed_token_request,
    task_id,
    token_challenge,
)
from hdpmf.lab.simulate.simulate import ServersHere, deal
from hdpmf.private.client.pairs import histories, row_of
from hdpmf.untrusted.recommender.pairs import PairsAnswer, facts_from_pairs
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.participants import Admission, Participants
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.settings import Checkpoint, Pace, RunFiles, RunSettings
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from tests.world import ServerPair, make_report

START, PERIOD = 1_000_000_050, 100
KEY = Identity(b"k" * 32)
SETTINGS = RunSettings(minimum=3, heads=5, period=PERIOD)
PACE = Pace(pause=1.0)


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
        items = catalogue_table(self.ratings.items, self.ratings.scale, self.ratings.item_table)
        self.table = signed_first(items, KEY.sign, KEY.public)
        self.known = known_items(self.table)
        self.devices = [Identity.generate() for _ in range(users)]
        pair = ServerPair(self.clock, (SeededNoise(1), SeededNoise(2)))
        self.leader, self.helper, self.servers = pair.leader, pair.helper, pair.servers
        self.collector = CollectorKeys.generate("shop")
        self.people = [
            histories(part, wishes)
            for part, wishes in deal(self.ratings, PrivacyWeights.uniform(self.ratings))
        ]
        # It outlives a killed run, as its files do.
        self.issuer = TokenIssuer(Participants.of(*(device.public for device in self.devices)))
        self.absent: set[int] = set()
        self.published: bytes | None = None
        self.reported: set[bytes] = set()
        self.lines: list[str] = []

    def run(self, client: Any = None, files: RunFiles | None = None, **more: Any) -> Run:
        given: dict[str, Any] = {
            "settings": self.settings,
            "table": self.table,
            "people": len(self.devices),
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

    def enrol(self, place: ServiceFolder) -> None:
        """Enrol everybody in a folder."""
        with place.participants() as participants:
            participants.add([Admission(device.public) for device in self.devices])

    def clock(self) -> float:
        return self.now

    def publish(self, document: bytes | None) -> None:
        self.published = document

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        document = self.published
        if document is None or document in self.reported:
            return
        task = read_task(document)
        if task.begin <= self.now < task.end:
            self.report(document, task)

    def report(self, document: bytes, task: Task) -> None:
        """Every device that is there reports, once in each task."""
        self.reported.add(document)
        number = task_id(document)
        for user, device in enumerate(self.devices):
            if user not in self.absent:
                token = self.token(task, number, device)
                row = self.row(user, task)
                report = make_report(task, number, row, report_id=token.report_id)
                self.leader.upload(number, report, token)

    def row(self, user: int, task: Task) -> np.ndarray:
        """What a user answers a task with."""
        return row_of(task.sums, self.people[user], len(self.known.items))

    def token(self, task: Task, number: bytes, device: Identity) -> Token:
        """A token of the recommender's for a device."""
        key, challenge = TokenKey(from_base64(task.token_key)), token_challenge(task, number)
        blinded = blind_token(key, challenge, secrets.token_bytes(NONCE_SIZE))
        signed = signed_token_request(number, sha256(blinded.request).digest())
        signature = device.sign(signed)
        status, answer = self.issuer.take(
            id_to_text(number), to_base64(device.public), signature, blinded.request
        )
        assert status == 200
        return blinded.finish(key, challenge, answer)


def tasks_of(world: World, checkpoint: Checkpoint) -> tuple[Task, Task]:
    """The tasks of a run; the servers have these and no others."""
    documents = [checkpoint.linear.document, checkpoint.pairs.document]
    assert world.leader.task_ids() == world.helper.task_ids() == list(map(task_id, documents))
    linear, pairs = map(read_task, documents)
    return linear, pairs


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    for name in found.__struct_fields__:
        here, there = getattr(found, name), getattr(expected, name)
        if isinstance(here, msgspec.Struct):
            assert_same(here, there)
        else:
            np.testing.assert_array_equal(here, there)


def check(world: World, outcome: RunOutcome, checkpoint: Checkpoint) -> None:
    """The sums are exactly what came in, with both noises, and the model the library's of them."""
    linear, pairs = tasks_of(world, checkpoint)
    noises = (SeededNoise(1), SeededNoise(2))
    for part, task in ((checkpoint.linear, linear), (checkpoint.pairs, pairs)):
        total = np.zeros(task.sums.entries, np.int64)
        for user in set(range(len(world.devices))) - world.absent:
            row = world.row(user, task)
            products = np.outer(row, row)[np.triu_indices(len(row))]
            total += row if task is linear else products
        total += sum(noise.discrete_gaussian(task.sums.noise) for noise in noises)
        np.testing.assert_array_equal(part.sum, total)
    people = len(world.devices) - len(world.absent)
    plan = replace(world.settings.plan(world.known, len(world.devices)), people=people)
    assert isinstance(pairs.sums, Pairs)
    items, rows = plan.items, checkpoint.linear.sum
    heads = Heads(np.array(pairs.sums.heads), np.array(pairs.sums.weights))
    answer = PairsAnswer(rows[:items], rows[items:], heads, checkpoint.pairs.sum, 2)
    facts, lists = facts_from_pairs(plan, answer, world.known.features, world.known.fingerprint)
    found = outcome.model
    assert found.lists is not None
    assert_same(found.numbers, facts)
    np.testing.assert_array_equal(found.lists.encode.whole, lists.encode.whole)
