"""Reports in, sums out: exact, whatever the order and however often anything is repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.dap.messages import CollectionJobResp, Interval
from tests.unit.aggregator.server_pair import BEGIN, Pair, pairs_of, plain_sum
from tests.world import HOUR, make_report


def test_batches_of_different_times_have_their_own_sums() -> None:
    pair = Pair()
    task = pair.add()
    pair.clock.now = BEGIN + 3 * HOUR
    hours = {0: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3}
    for seed, hour in hours.items():
        pair.leader.upload(task, pair.report(task, seed, time=BEGIN + hour * HOUR))
    pair.aggregate_all(limit=4)
    for first, last in ((0, 1), (2, 4)):
        interval = Interval(BEGIN + first * HOUR, (last - first) * HOUR)
        seeds = [seed for seed, hour in hours.items() if first <= hour < last]
        collection = pair.collect(task, interval)
        assert pair.numbers(task, collection, interval) == plain_sum(seeds)
        assert CollectionJobResp.decode(collection).report_count == len(seeds)


def test_sums_of_pairs_are_exact() -> None:
    """What is opened is the plain sum of all people's products, and both noises."""
    pair = Pair()
    task = pair.add(pair.a_task(sums=pairs_of(7)))
    opened, total = pair.leader.task(task), np.zeros((7, 7), np.int64)
    for seed in range(5):
        row = np.random.default_rng(seed).integers(0, 1024, 7)
        total += np.outer(row, row)
        pair.leader.upload(task, make_report(opened.document, task, row))
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == total[np.triu_indices(7)].tolist()
    assert [noise.draws for noise in pair.noises] == [1, 1]


def test_it_works_on_the_disk_with_devices_and_survives_a_restart(tmp_path) -> None:
    pair = Pair(tmp_path)
    task = pair.add(pair.a_task_with_tokens())
    for seed in range(3):
        pair.leader.upload(task, *pair.admitted(task, seed))
        pair.reopen()
    assert pair.aggregate_all() == 3
    pair.reopen()
    collection = pair.collect(task)
    pair.reopen()
    assert pair.collect(task) == collection
    assert pair.numbers(task, collection) == plain_sum([0, 1, 2])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upload"), st.integers(0, 5)),
        st.tuples(st.just("aggregate"), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("resend"), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=15)
@given(STEPS)
def test_any_order_and_any_repeats_give_the_same_sum(steps: list[tuple[str, int]]) -> None:
    pair, sent = Pair(), []

    class Recorder:
        """Repeats every request to the helper, old ones too."""

        def __init__(self, helper):
            self.helper = helper
            self.meet = helper.meet

        def aggregation_job(self, *request: bytes) -> bytes:
            sent.append((request, self.helper.aggregation_job(*request)))
            return self.helper.aggregation_job(*request)

        def aggregate_share(self, *request: bytes) -> bytes:
            self.helper.aggregate_share(*request)
            return self.helper.aggregate_share(*request)

    pair.between = Recorder
    pair.start()
    task = pair.add()
    made = {seed: pair.report(task, seed) for seed in range(6)}
    for step, number in steps:
        if step == "upload":
            pair.leader.upload(task, made[number])
        elif step == "aggregate":
            pair.leader.aggregate(number)
        elif step == "restart":
            pair.reopen()
        else:
            for request, answer in sent:
                assert pair.helper.aggregation_job(*request) == answer
    for report in made.values():
        pair.leader.upload(task, report)
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum(list(range(6)))
    assert [noise.draws for noise in pair.noises] == [1, 1]


def test_each_server_counts_without_saying_who(caplog) -> None:
    caplog.set_level("DEBUG")
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1, 2])
    pair.leader.upload(task, pair.report(task, 3, spoil=lambda server, share: bytes(len(share))))
    assert pair.leader.counts(task).waiting == 4
    pair.aggregate_all()
    for server in (pair.leader, pair.helper):
        counts = server.counts(task)
        assert (counts.waiting, counts.counted, counts.batches) == (0, 3, 0)
        assert sum(counts.rejected.values()) == 1
    assert pair.leader.task_ids() == pair.helper.task_ids() == [task]
    said = caplog.text
    assert task.hex()[:16] in said
    assert task.hex() not in said
