"""A batch closes once, with noise that is drawn once, and a rolled-back database does not draw
it again.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareReq,
    BatchSelector,
    Collection,
    CollectionReq,
    FixedSizeQuery,
    Interval,
    Problem,
    Query,
    report_checksum,
)
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.errors import ConfigError, DapError, PrivacyError, StorageError
from hdpmf.untrusted.aggregator.collection import Batches
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, accumulators
from hdpmf.untrusted.aggregator.sealing import BatchSeals
from hdpmf.untrusted.aggregator.tasks import Rules, SimulationRules
from tests.unit.aggregator.server_pair import BEGIN, END, HOUR, WHOLE, Pair, plain_sum


def refused(pair: Pair, task: bytes, interval: Interval) -> str:
    with pytest.raises(DapError) as caught:
        pair.ask(task, interval)
    return caught.value.kind


@pytest.mark.parametrize(
    "interval",
    [
        Interval(BEGIN, HOUR // 2),
        Interval(BEGIN + 1, HOUR),
        Interval(BEGIN - HOUR, 2 * HOUR),
        Interval(BEGIN, END - BEGIN + HOUR),
        Interval(BEGIN, 0),
    ],
)
def test_a_batch_is_whole_steps_within_the_task(interval: Interval) -> None:
    pair = Pair()
    task = pair.add()
    assert refused(pair, task, interval) == Problem.BATCH_INVALID


def test_batches_by_size_are_not_ours() -> None:
    pair = Pair()
    task = pair.add()
    for request in (
        CollectionReq(Query(fixed_size_query=FixedSizeQuery()), b""),
        CollectionReq(Query(batch_interval=WHOLE), b"parameter"),
    ):
        with pytest.raises(DapError):
            pair.leader.begin_collection(task, bytes(16), request.encode())


def test_too_few_reports_are_no_batch_until_there_are_more() -> None:
    pair = Pair()
    task = pair.add(pair.a_task(minimum=3))
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    assert refused(pair, task, WHOLE) == Problem.INVALID_BATCH_SIZE
    pair.upload(task, [2])
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1, 2])


def test_the_servers_own_minimum_holds_whatever_the_task_says() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    pair.rules = SimulationRules(minimum=3)  # its operator has raised it
    pair.start()
    assert refused(pair, task, WHOLE) == Problem.INVALID_BATCH_SIZE


def test_nothing_is_there_before_its_time_or_while_reports_wait() -> None:
    pair = Pair()
    task, job = pair.add(), bytes(16)
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    pair.leader.begin_collection(
        task, job, CollectionReq(Query(batch_interval=WHOLE), b"").encode()
    )
    assert pair.leader.collection(task, job) is None
    pair.clock.now = END + 1
    pair.upload(task, [2])
    assert pair.leader.collection(task, job) is None
    pair.aggregate_all()
    found = pair.leader.collection(task, job)
    assert found is not None
    assert Collection.decode(found).report_count == 3
    with pytest.raises(DapError, match="no such"):
        pair.leader.collection(task, secrets.token_bytes(16))
    other = CollectionReq(Query(batch_interval=Interval(BEGIN, HOUR)), b"").encode()
    with pytest.raises(DapError, match="another request"):
        pair.leader.begin_collection(task, job, other)


def test_the_same_batch_again_is_the_same_bytes_and_an_overlapping_one_is_refused() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    interval = Interval(BEGIN, 2 * HOUR)
    first = pair.collect(task, interval)
    assert pair.collect(task, interval) == first
    assert [noise.draws for noise in pair.noises] == [3, 3]
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
    task, job = pair.add(), bytes(16)
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    honest = pair.helper.aggregate_share

    def down(*request: bytes) -> bytes:
        raise StorageError("it is down")

    pair.helper.aggregate_share = down  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StorageError):
            pair.ask(task, job=job)
    pair.helper.aggregate_share = honest  # type: ignore[method-assign]
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    assert [noise.draws for noise in pair.noises] == [3, 3]


def test_only_a_simulation_may_have_noise_of_another_kind() -> None:
    pair = Pair()
    real, database, seals = Rules(minimum=2), ServerDatabase(), BatchSeals(None)
    for noise in (SeededNoise(1), ReleasedNoise()):
        with pytest.raises(PrivacyError, match="noise of its own key"):
            Batches(database, pair.keys[0], real, seals, noise)
    Batches(database, pair.keys[0], real, seals)
    Batches(database, pair.keys[0], SimulationRules(minimum=2), seals, SeededNoise(1))


def test_a_database_on_the_disk_needs_its_files(tmp_path: Path) -> None:
    pair = Pair()
    database = ServerDatabase(f"sqlite:///{tmp_path}/x.sqlite")
    with pytest.raises(ConfigError, match="outside the database"):
        Batches(database, pair.keys[0], Rules(), BatchSeals(None))


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_rolled_back_database_does_not_draw_again(tmp_path: Path, role: str) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    for database in pair.databases:
        database.close()
    file = tmp_path / f"{role}.sqlite"
    shutil.copy(file, tmp_path / "older")
    first = pair.collect(task)
    for database in pair.databases:
        database.close()
    newest = file.read_bytes()
    (tmp_path / "older").replace(file)
    pair.reopen()
    if role == "leader":
        with pytest.raises(PrivacyError, match=r"was closed before.*newest copy"):
            pair.ask(task)
        with pytest.raises(PrivacyError):  # nor with other reports or another interval
            pair.ask(task, Interval(BEGIN, HOUR))
    else:
        with pair.databases[0].read() as connection:
            ids = list(connection.execute(sa.text("SELECT id FROM reports")).scalars())
        with pytest.raises(PrivacyError, match="was closed before"):
            pair.helper.aggregate_share(
                task,
                AggregateShareReq(
                    BatchSelector(batch_interval=WHOLE), b"", 2, report_checksum(ids)
                ).encode(),
            )
    assert [noise.draws for noise in pair.noises] == [3, 3]
    for database in pair.databases:
        database.close()
    file.write_bytes(newest)
    pair.reopen()
    assert pair.collect(task) == first


def test_a_crash_between_share_and_mark_is_no_rollback(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "hdpmf.untrusted.aggregator.collection.os.fsync",
            lambda file: (_ for _ in ()).throw(OSError("no space")),
        )
        with pytest.raises(StorageError, match="No share left"):
            pair.ask(task)
    pair.reopen()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    assert [noise.draws for noise in pair.noises] == [3, 3]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a folder cannot be opened")
def test_a_mark_and_its_file_are_on_the_disk_before_a_share_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    synced: list[tuple[int, int]] = []
    fsync = os.fsync

    def noticing(file: int) -> None:
        found = os.fstat(file)
        synced.append((found.st_ino, found.st_size))
        fsync(file)

    monkeypatch.setattr("hdpmf.untrusted.aggregator.collection.os.fsync", noticing)
    pair.collect(task)
    for role in ("leader", "helper"):
        marks = tmp_path / role / "closed-batches"
        assert (marks.stat().st_ino, marks.stat().st_size) in synced  # with all that is in it
        assert marks.parent.stat().st_ino in [number for number, _ in synced]


def test_marks_survive_an_unfinished_line_and_refuse_a_damaged_one(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    log = tmp_path / "leader" / "closed-batches"
    log.write_bytes(b"00ff 12")
    first = pair.collect(task, Interval(BEGIN, HOUR))
    assert log.read_bytes().count(b"\n") == 1
    assert pair.collect(task, Interval(BEGIN, HOUR)) == first
    log.write_bytes(b"garbage\n")
    with pytest.raises(StorageError, match="damaged"):
        pair.ask(pair.leader.task_ids()[0], Interval(BEGIN + HOUR, HOUR))
