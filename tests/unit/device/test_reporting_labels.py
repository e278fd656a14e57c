"""Taste labels by two servers: two tasks, paid once."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Grouping
from tests.world import live

from .reporting_world import (
    N_ITEMS,
    PERIOD,
    STARS,
    START,
    World,
    actions,
    make_store,
    make_task,
    reporter,
    survey,
)

GROUPING = Grouping(
    scores=np.linspace(-64, 64, N_ITEMS).astype(np.int64), heads=np.array([0, 4, 8])
)
LABELLED = survey(labels=True, epsilon=0.5)


def labels_task(**changes: object) -> bytes:
    times = {"begin": START + PERIOD, "end": START + 2 * PERIOD} | changes
    return make_task(LABELLED, GROUPING, **times)


def test_labels_are_two_tasks_and_pay_once() -> None:
    world, store = World(), make_store()
    device = reporter(store, world, noise=SeededNoise(0), simulation=True)
    counts, labels = make_task(LABELLED), labels_task()
    world.publish(task=counts)
    live(device, world, PERIOD)
    world.publish(task=labels)
    live(reporter(store, world, noise=SeededNoise(0), simulation=True), world, PERIOD + 100)
    first, second = world.sums(counts), world.sums(labels)
    rated = [64 * (f"item {place:02d}" in STARS) for place in range(N_ITEMS)]
    assert first[N_ITEMS : 2 * N_ITEMS] == rated
    assert not any(first[:N_ITEMS])
    n = N_ITEMS + 3
    weights = np.array(second[n : 2 * n])
    assert weights[N_ITEMS:].sum() in (0, 64 * 3)  # all three heads are of one label
    folded = weights[:N_ITEMS].copy()
    folded[GROUPING.heads] += weights[N_ITEMS:]
    assert folded.tolist() == rated
    assert actions(store) == ["agreed", "sent", "agreed", "sent"]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert len({entry.run for entry in store.ledger.entries()}) == 1
    assert [entry.number for entry in store.ledger.entries()] == [0, 0, 1, 1]


def test_labels_without_counts_are_refused() -> None:
    world, store = World(), make_store()
    world.publish(task=labels_task(begin=START, end=START + PERIOD))
    live(reporter(store, world), world, PERIOD + 100)
    assert (world.uploads, actions(store)) == ([], [])
    assert any("was not counted here" in line for line in world.logged)


def test_labels_after_counts_that_never_left_are_refused() -> None:
    world, store = World(), make_store()
    device = reporter(store, world)
    world.publish(task=make_task(LABELLED))
    world.otherwise = "unreachable"
    live(device, world, PERIOD + 1)
    world.otherwise = 201
    world.publish(task=labels_task())
    live(device, world, PERIOD + 100)
    assert (world.uploads, actions(store)) == ([], ["agreed", "returned"])


def test_a_label_is_drawn_once() -> None:
    world, store = World(), make_store()
    device = reporter(store, world)
    world.publish(task=make_task(LABELLED))
    live(device, world, PERIOD)
    for turn in (1, 2):
        world.publish(
            task=labels_task(begin=START + turn * PERIOD, end=START + (turn + 1) * PERIOD)
        )
        live(device, world, PERIOD)
    assert len(world.uploads) == 2


# Models
