"""Devices that lie to honest servers: nobody has more weight than one person may have.

Each lie is made as an attacker would, in the vector itself, past the checks of honest code. One
report of three lies; both servers reject it, and the sum is that of the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import RankOne
from hdpmf.common.protocol.task import Linear, Pairs
from tests.unit.aggregator.server_pair import SUMS, Pair, pairs_of
from tests.world import make_report

Lie = Callable[[Any, np.ndarray], np.ndarray]


def beyond(circuit: Any, row: np.ndarray) -> np.ndarray:
    """A number above the cap, or below zero."""
    vector = circuit.encode(row).copy()
    vector[0] = vector[0] + np.uint64(1000)
    return vector


def twice(circuit: Any, row: np.ndarray) -> np.ndarray:
    """More than one person may say, in numbers that are each allowed."""
    if isinstance(circuit, RankOne):
        vector = circuit.encode(np.zeros(len(row), np.int64)).copy()
        vector[: 10 * len(row)] = 1  # every bit of the row, and nothing of the slack
        vector[10 * len(row) : circuit.bits] = 0
        vector[circuit.bits :] = 1023**2
        return vector
    bound, circuit.bound = circuit.bound, 4 * circuit.bound
    try:
        return circuit.encode(np.full(len(row), 255))
    finally:
        circuit.bound = bound


def alone(circuit: Any, row: np.ndarray) -> np.ndarray:
    """A last number, or product, that does not follow from the others."""
    vector = circuit.encode(row).copy()
    vector[-1] = vector[-1] + np.uint64(1)
    return vector


LINEAR_OF_60 = Linear(items=60, bits=8, bound=(1 << 20) - 1, cap=16, presence=50, values=0)


@pytest.mark.parametrize("lie", [beyond, twice, alone])
@pytest.mark.parametrize("sums", [LINEAR_OF_60, pairs_of(40)], ids=["linear", "pairs"])
def test_a_liar_is_caught_and_the_others_count(lie: Lie, sums: Linear | Pairs) -> None:
    pair = Pair()
    task = pair.add(pair.a_task(sums=sums))
    opened = pair.leader.task(task)
    circuit: Any = opened.prio.circuit
    size = len(sums.heads) if isinstance(sums, Pairs) else sums.items
    rows = [np.random.default_rng(seed).integers(0, 100, size) for seed in range(2)]
    for row in rows:
        pair.leader.upload(task, make_report(opened.document, task, row))
    lied = lie(circuit, rows[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(circuit), "encode", lambda self, row: lied)
        pair.leader.upload(task, make_report(opened.document, task, rows[0]))
    assert pair.aggregate_all() == 3
    for server in (pair.leader, pair.helper):
        counts = server.counts(task)
        assert (counts.counted, sum(counts.rejected.values())) == (2, 1)
    total = sum(np.outer(row, row)[np.triu_indices(size)] for row in rows)
    if isinstance(sums, Linear):
        total = sum(rows)
    assert pair.numbers(task, pair.collect(task)) == np.asarray(total).tolist()


def test_the_same_lies_pass_where_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is the proof which catches them."""
    pair = Pair()
    task = pair.add(pair.a_task(sums=SUMS))
    opened = pair.leader.task(task)
    circuit: Any = opened.prio.circuit
    monkeypatch.setattr("hdpmf.common.aggregation.two_servers.prio.prio3.decide", lambda *_: True)
    lied = beyond(circuit, np.zeros(SUMS.entries, np.int64))
    with monkeypatch.context() as patch:
        patch.setattr(type(circuit), "encode", lambda self, row: lied)
        for _ in range(2):
            pair.leader.upload(task, make_report(opened.document, task, np.zeros(1)))
    pair.aggregate_all()
    assert pair.leader.counts(task).counted == 2
