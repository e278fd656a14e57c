"""A batch closes once, with noise that is drawn once."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import (
    CollectionJobResp,
    Interval,
    Problem,
    job_id,
)
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.errors import DapError, PrivacyError, StorageError
from hdpmf.untrusted.aggregator.collection import Batches
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, accumulators
from hdpmf.untrusted.aggregator.sealing import BatchSeals, KeyFile
from hdpmf.untrusted.aggregator.tasks import Rules, SimulationRules
from tests.unit.aggregator.server_pair import BEGIN, END, HOUR, WHOLE, Pair, plain_sum, wanted


def refused(pair: Pair, task: bytes, interval: Interval) -> str:
    with pytest.raises(DapError) as caught:
        pair.ask(task, interval)
    return caught.value.kind


@pytest.mark.parametrize(
    "interval",
    [
        Interval(BEGIN - HOUR, 2 * HOUR),
        Interval(BEGIN, END - BEGIN + HOUR),
        Interval(BEGIN, 0),
    ],
)
def test_a_batch_is_within_the_task(interval: Interval) -> None:
    pair = Pair()
    task = pair.add()
    assert refused(pair, task, interval) == Problem.BATCH_INVALID


def test_too_few_reports_are_no_batch_until_there_are_more() -> None:
    pair = Pair()
    task = pair.add(pair.a_task(minimum=3))
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    assert refused(pair, task, WHOLE) == Problem.INVALID_BATCH_SIZE
    pair.upload(task, [2])
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1, 2])


def test_nothing_is_there_before_its_time_or_while_reports_wait() -> None:
    pair = Pair()
    task, request = pair.add(), wanted(WHOLE).encode()
    job = job_id(request)
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    assert pair.leader.collect(task, request) is None
    assert pair.leader.collection(task, job) is None
    pair.clock.now = END + 1
    pair.upload(task, [2])
    assert pair.leader.collection(task, job) is None
    pair.aggregate_all()
    found = pair.leader.collection(task, job)
    assert found is not None
    assert pair.leader.collect(task, request) == found
    assert CollectionJobResp.decode(found).report_count == 3
    with pytest.raises(DapError, match="no such"):
        pair.leader.collection(task, secrets.token_bytes(16))


def test_the_same_batch_again_is_the_same_bytes_and_an_overlapping_one_is_refused() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    interval = Interval(BEGIN, 2 * HOUR)
    first = pair.collect(task, interval)
    assert pair.collect(task, interval) == first
    assert [noise.draws for noise in pair.noises] == [1, 1]
    assert refused(pair, task, Interval(BEGIN, HOUR)) == Problem.BATCH_OVERLAP
    assert refused(pair, task, Interval(BEGIN + HOUR, 2 * HOUR)) == Problem.BATCH_OVERLAP
    assert refused(pair, task, Interval(BEGIN + 2 * HOUR, HOUR)) == Problem.INVALID_BATCH_SIZE
    for database in pair.databases:
        with database.read() as connection:  # nothing without noise is kept
            assert (
                connection.execute(sa.select(sa.func.count()).select_from(accumulators)).scalar()
                == 0
            )


def test_the_leader_gives_nothing_before_the_helper_has_given() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    honest = pair.helper.aggregate_share

    def down(*request: bytes) -> bytes:
        raise StorageError("it is down")

    pair.helper.aggregate_share = down  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StorageError):
            pair.ask(task)
    pair.helper.aggregate_share = honest  # type: ignore[method-assign]
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    assert [noise.draws for noise in pair.noises] == [1, 1]


def test_only_a_simulation_may_have_noise_of_another_kind(tmp_path: Path) -> None:
    pair, real, database = Pair(), Rules(minimum=2), ServerDatabase()
    seals, key = BatchSeals(KeyFile(tmp_path / "seals")), KeyFile(tmp_path / "noise")
    for noise in (SeededNoise(1), ReleasedNoise()):
        with pytest.raises(PrivacyError, match="noise of its own key"):
            Batches(database, pair.keys[0], real, seals, key, noise)
    Batches(database, pair.keys[0], real, seals, key)
    Batches(database, pair.keys[0], SimulationRules(minimum=2), seals, key, SeededNoise(1))
