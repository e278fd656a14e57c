"""A whole secure sum in one process, through the same messages and their bytes: for tests and
timing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from hdpmf.common.aggregation.masks.client import SecureSumClient
from hdpmf.common.aggregation.masks.messages import decode_to_device, decode_to_recommender, encode
from hdpmf.common.aggregation.masks.plan import SumPolicy, propose
from hdpmf.common.aggregation.masks.primitives import WIDE_WORD
from hdpmf.common.aggregation.masks.roster import DeviceIdentity, Roster
from hdpmf.common.aggregation.masks.server import SecureSumServer
from hdpmf.errors import SecureSumError

Step = Literal["nothing", "keys", "shares", "vector", "confirmation"]
"""The last thing that a device sends before it drops out."""

STEPS: tuple[Step, ...] = ("nothing", "keys", "shares", "vector", "confirmation")


@dataclass(frozen=True)
class SimulatedSum:
    """A sum, and what it cost.

    Attributes:
        total: The sum in words.
        survivors: Numbers of the devices in it.
        client_seconds: Processor time of each device, coding messages included.
        server_seconds: Processor time of the recommender, coding messages included.
        bytes_up: Sent by each device.
        bytes_down: Sent to each device.
    """

    total: np.ndarray
    survivors: tuple[int, ...]
    client_seconds: np.ndarray
    server_seconds: float
    bytes_up: np.ndarray
    bytes_down: np.ndarray


def run_in_process(
    vectors: Sequence[np.ndarray] | np.ndarray,
    *,
    drop_after: Mapping[int, Step] | None = None,
    neighbours: int = 64,
    threshold: int | None = None,
    minimum: int | None = None,
    identities: Sequence[DeviceIdentity] | None = None,
    resuming: bool = False,
) -> SimulatedSum:
    """Sum vectors of words, one device each, with every message as its bytes.

    Args:
        vectors: One vector of words per device.
        drop_after: For devices that drop out, the last thing that they send.
        neighbours: Holders of each device.
        threshold: Neighbours that must survive; None takes the smallest above two thirds.
        minimum: Devices that the sum must be over; None takes the smallest above two thirds.
        identities: The devices' identities; None makes new ones.
        resuming: Every device goes on in another process after each step.
    """
    drops = dict(drop_after or {})
    if unknown := set(drops.values()) - set(STEPS):
        raise SecureSumError(
            f"drop_after names unknown steps {sorted(unknown)}; steps are {', '.join(STEPS)}"
        )
    n = len(vectors)
    people = [DeviceIdentity.generate() for _ in range(n)] if identities is None else identities
    roster = Roster(identity.public for identity in people)
    policy = SumPolicy(
        min_survivors=2,
        min_neighbours=1,
        threshold_fraction=Fraction(1, 2),
        min_fraction=Fraction(0),
        max_risk=2.0,
        max_colluding=Fraction(0),
    )
    plan = propose(
        roster,
        len(vectors[0]),
        neighbours=neighbours,
        threshold=threshold,
        minimum=minimum,
        wide=vectors[0].dtype == WIDE_WORD,
    )
    clients = [
        SecureSumClient(person, roster, vector, policy)
        for person, vector in zip(people, vectors, strict=True)
    ]
    spent, up, down = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)

    server_clock = _Clock()
    with server_clock:
        server = SecureSumServer(plan, roster)
        outgoing = server.advance()
    step = 0
    while outgoing:
        # A message is the same for many devices in two of the steps; it is encoded once, as a
        # transport would do it.
        coded: dict[int, bytes] = {}
        for device, message in outgoing.items():
            with server_clock:
                data = coded.get(id(message)) or coded.setdefault(id(message), encode(message))
            down[device] += len(data)
            if device in drops and STEPS.index(drops[device]) <= step:
                continue
            state = clients[device].suspend() if resuming else None
            if state is not None:
                clients[device] = SecureSumClient.resume(state, people[device], roster, policy)
            begin = time.thread_time()
            reply = encode(clients[device].answer(decode_to_device(data)))
            spent[device] += time.thread_time() - begin
            up[device] += len(reply)
            with server_clock:
                server.receive(device, decode_to_recommender(reply))
        with server_clock:
            outgoing = server.advance()
        step += 1
    result = server.result
    return SimulatedSum(result.total, result.survivors, spent, server_clock.seconds, up, down)


class _Clock:
    """Adds up the time spent inside it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._begin = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - self._begin
