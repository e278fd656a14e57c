"""A secure sum that a test can hold in its hands: stop it, change what goes back and forth, and
go on.
"""

import random
import secrets
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumClient,
    SecureSumServer,
    SumPolicy,
    propose,
)

POLICY = SumPolicy(
    min_survivors=3,
    min_neighbours=2,
    threshold_fraction=Fraction(1, 2),
    max_colluding=Fraction(0),
    max_risk=2.0,
)
"""Sparse graphs of few devices are for tests: nobody lies about whom they were drawn for."""
IDENTITIES = [DeviceIdentity(bytes([1 + n]) * 32) for n in range(120)]


@dataclass
class Session:
    vectors: np.ndarray
    roster: Roster
    clients: list[SecureSumClient]
    server: SecureSumServer
    outgoing: dict = field(default_factory=dict)

    @property
    def plan(self):
        return self.server.plan

    def holders(self, device):
        return self.server._holders[device]

    def start(self):
        self.outgoing = self.server.advance()
        return self

    def step(self, silent=()):
        """Deliver what is outgoing, take the replies, close the step. Returns the replies."""
        replies = {
            device: self.clients[device].answer(message)
            for device, message in self.outgoing.items()
            if device not in silent
        }
        for device, reply in replies.items():
            self.server.receive(device, reply)
        self.outgoing = self.server.advance()
        return replies

    def until(self, kind):
        """Play honestly until messages of this kind are about to be delivered."""
        if not self.outgoing:
            self.start()
        while type(next(iter(self.outgoing.values()))) is not kind:
            self.step()
        return self

    def finish(self):
        while self.outgoing:
            self.step()
        return self.server.result

    def plain_sum(self, devices):
        return self.vectors[list(devices)].sum(axis=0, dtype=self.vectors.dtype)


@pytest.fixture
def make_session():
    def make(n=7, length=5, policy=POLICY, seed=0, **options):
        word = np.uint64 if options.get("wide") else np.uint32
        vectors = np.random.default_rng(seed).integers(
            0, np.iinfo(word).max, (n, length), word, endpoint=True
        )
        roster = Roster(identity.public for identity in IDENTITIES[:n])
        clients = [
            SecureSumClient(identity, roster, vector, policy)
            for identity, vector in zip(IDENTITIES[:n], vectors, strict=True)
        ]
        return Session(
            vectors, roster, clients, SecureSumServer(propose(roster, length, **options), roster)
        )

    return make


@pytest.fixture
def fixed_secrets(monkeypatch):
    """The operating system's entropy replaced by a seeded one, for statistics that must come out
    the same.
    """
    monkeypatch.setattr(secrets, "token_bytes", random.Random(20170).randbytes)


@pytest.fixture
def identities():
    return IDENTITIES
