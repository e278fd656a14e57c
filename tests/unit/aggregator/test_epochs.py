"""After a restore a server begins a new epoch: the tasks that were open end at both servers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import ReportError
from hdpmf.errors import ConfigError, DapError
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.server import Aggregator
from tests.unit.aggregator.server_pair import BEGIN, Pair, plain_sum


def server_of(pair: Pair, role: str) -> Aggregator:
    return pair.leader if role == "leader" else pair.helper


def begin_epoch(pair: Pair, role: str) -> int:
    """As the operator does, while nothing runs; how many tasks ended."""
    for database in pair.databases:
        database.close()
    pair.databases = [
        ServerDatabase(pair.url(each), restored=each == role) for each in ("leader", "helper")
    ]
    pair.start()
    return server_of(pair, role).begin_epoch()


def assert_over(pair: Pair, task: bytes) -> None:
    for server in (pair.leader, pair.helper):
        counts = server.counts(task)
        assert counts.waiting == 0
    with pytest.raises(DapError, match="over"):
        pair.upload(task, [9])
    with pytest.raises(DapError, match="over"):
        pair.collect(task)


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_new_epoch_ends_open_tasks_at_both_servers(tmp_path: Path, role: str) -> None:
    pair = Pair(tmp_path)
    pair.leader.compare_epochs()
    task = pair.add()
    pair.upload(task, [0, 1])
    assert pair.aggregate_all() == 2
    pair.upload(task, [2])
    assert begin_epoch(pair, role) == 1
    pair.leader.compare_epochs()
    assert_over(pair, task)
    assert pair.leader.counts(task).rejected[ReportError.TASK_EXPIRED] == 1
    assert pair.helper._seals._keys.names() == pair.leader._seals._keys.names() == []
    pair.clock.now = BEGIN + 10
    later = pair.add(pair.a_task(minimum=3))
    pair.upload(later, [3, 4, 5])
    pair.aggregate_all()
    assert pair.numbers(later, pair.collect(later)) == plain_sum([3, 4, 5])


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_restored_server_counts_and_releases_nothing_twice(tmp_path: Path, role: str) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    for database in pair.databases:
        database.close()
    shutil.copy(tmp_path / f"{role}.sqlite", tmp_path / "old")
    pair._open()
    pair.start()
    pair.upload(task, [2])
    first = pair.collect(task) if pair.aggregate_all() else b""
    assert pair.numbers(task, first) == plain_sum([0, 1, 2])
    for database in pair.databases:
        database.close()
    shutil.copy(tmp_path / "old", tmp_path / f"{role}.sqlite")
    with pytest.raises(ConfigError, match="is an old copy"):
        pair._open()
    begin_epoch(pair, role)
    pair.leader.compare_epochs()
    assert_over(pair, task)


def test_a_job_that_began_before_an_epoch_counts_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.leader.compare_epochs()
    pair.helper.begin_epoch()
    asked = []
    pair.helper.aggregation_job = lambda *request: asked.append(request)  # type: ignore[method-assign]
    assert pair.leader.aggregate() == 0
    assert asked == []
    assert_over(pair, task)


def test_servers_that_meet_for_the_first_time_end_nothing() -> None:
    pair = Pair()
    task = pair.add()
    for _ in range(2):
        pair.leader.compare_epochs()
    pair.upload(task, [0, 1])
    assert pair.aggregate_all() == 2
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
