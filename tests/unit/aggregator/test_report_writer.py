"""Uploads: what the leader accepts, and how it writes reports in groups."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.common.base.logs import JsonLines, event
from hdpmf.errors import DapError, StorageError
from hdpmf.untrusted.aggregator.datastore import payloads, reports
from hdpmf.untrusted.aggregator.report_writer import GROUP_REPORTS, ReportWriter, Upload
from tests.unit.aggregator.server_pair import END, Pair, plain_sum
from tests.world import HOUR, issuer, make_token

REPLAYED = "report_replayed"


def kind(error: DapError | None) -> str | None:
    return None if error is None else error.kind


def refused(pair: Pair, *upload: object) -> str:
    with pytest.raises(DapError) as caught:
        pair.leader.upload(*upload)  # type: ignore[arg-type]
    assert "0x" not in str(caught.value)
    return caught.value.kind


def rows(pair: Pair, table: sa.Table) -> int:
    with pair.databases[0].read() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_report_has_one_size(pair: Pair) -> None:
    task = pair.add()
    report = pair.report(task, 0)
    assert len(report) == pair.leader.task(task).report_size
    assert refused(pair, task, report[:-1]) == Problem.INVALID_MESSAGE
    assert refused(pair, task, report + b"\0") == Problem.INVALID_MESSAGE
    assert rows(pair, reports) == 0


def test_late_reports_count_until_their_batch_is_collected(pair: Pair) -> None:
    task = pair.add()
    pair.clock.now = END + 10 * HOUR
    pair.upload(task, [0, 1])
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    assert refused(pair, task, pair.report(task, 2)) == "batch_collected"


def test_a_retry_is_a_success_and_another_report_with_the_same_id_is_not(pair: Pair) -> None:
    task, number = pair.add(), bytes(range(16))
    report, other = (pair.report(task, seed, report_id=number) for seed in (0, 1))
    for _ in range(2):
        pair.leader.upload(task, report)
    assert refused(pair, task, other) == REPLAYED
    pair.leader.aggregate()
    assert rows(pair, payloads) == 0
    pair.leader.upload(task, report)  # its id and digest are all that is left of it
    assert refused(pair, task, other) == REPLAYED
    assert pair.leader.aggregate() == 0
    twice = pair.leader.upload_many([Upload(task, pair.report(task, 2))] * 2)
    assert twice == [None, None]
    assert pair.leader.aggregate() == 1


def test_enrolled_devices_have_one_report_for_each_token(pair: Pair) -> None:
    task = pair.add(pair.a_task_with_tokens())
    document = pair.leader.task(task).document
    (first, token), (second, other) = pair.admitted(task, 0), pair.admitted(task, 1)
    elsewhere = make_token(document, bytes(32), token.report_id)  # of another task
    forged = replace(token, authenticator=other.authenticator)
    foreign = make_token(document, task, token.report_id, issuer(1))
    renamed = replace(foreign, key_id=token.key_id)
    for shown in (None, other, elsewhere, forged, foreign, renamed):
        assert refused(pair, task, first, shown) == Problem.UNAUTHORIZED_REQUEST
    assert rows(pair, payloads) == 0
    for _ in range(2):  # the same again is confirmed, and counts once
        pair.leader.upload(task, first, token)
    another, _ = pair.admitted(task, 2, token)
    assert refused(pair, task, another, token) == REPLAYED
    assert pair.leader.aggregate() == 1
    assert refused(pair, task, another, token) == REPLAYED
    pair.leader.upload(task, second, other)
    report, last = pair.admitted(task, 3)
    clash, _ = pair.admitted(task, 4, last)
    results = pair.leader.upload_many([Upload(task, it, last) for it in (report, clash)])
    assert [kind(result) for result in results] == [None, REPLAYED]
    assert pair.aggregate_all() == 2


FUZZED = Pair()
FUZZED_TASK = FUZZED.add()


@pytest.mark.slow
@given(st.data())
def test_any_bytes_of_the_right_length_are_stored_or_refused(data: st.DataObject) -> None:
    report = bytearray(FUZZED.report(FUZZED_TASK, 0))
    for place in data.draw(st.sets(st.integers(0, len(report) - 1), min_size=1, max_size=3)):
        report[place] ^= data.draw(st.integers(1, 255))
    before = FUZZED.helper.counts(FUZZED_TASK).counted
    (result,) = FUZZED.leader.upload_many([Upload(FUZZED_TASK, bytes(report))])
    assert result is None or isinstance(result, DapError)
    FUZZED.aggregate_all()
    assert FUZZED.helper.counts(FUZZED_TASK).counted == before  # every byte is checked by somebody


def test_a_task_that_is_long_over_takes_nothing_and_keeps_numbers_only(pair: Pair) -> None:
    task = pair.add()
    report = pair.report(task, 0)
    pair.leader.upload(task, report)
    assert pair.leader.collect_garbage() == 0
    pair.clock.now = END + 31 * 86_400
    assert refused(pair, task, pair.report(task, 1)) == "task_expired"
    assert (pair.leader.collect_garbage(), pair.helper.collect_garbage()) == (1, 1)
    assert pair.leader.collect_garbage() == 0
    assert (rows(pair, payloads), rows(pair, reports)) == (0, 0)
    assert sum(pair.leader.counts(task).rejected.values()) == 1
    assert pair.leader.aggregate() == 0
    with pytest.raises(DapError, match="over"):
        pair.ask(task)


class Disk:
    """Writes when it may; remembers the groups."""

    def __init__(self) -> None:
        self.free, self.groups = threading.Event(), []
        self.fault: Exception | None = None

    def write(self, uploads: Sequence[Upload]) -> list[DapError | None]:
        self.free.wait(60)
        if self.fault is not None:
            raise self.fault
        self.groups.append([upload.report for upload in uploads])
        return [DapError("no") if upload.report == b"bad" else None for upload in uploads]


def upload(report: bytes) -> Upload:
    return Upload(bytes(32), report)


def test_what_comes_while_the_disk_works_is_one_group() -> None:
    disk = Disk()

    async def all_of_it() -> list[object]:
        writer = ReportWriter(disk.write, room=1000)
        writer.start()
        waiting = [asyncio.create_task(writer.put(upload(bytes([place])))) for place in range(100)]
        waiting.append(asyncio.create_task(writer.put(upload(b"bad"))))
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)  # nothing is confirmed before it is written
        disk.free.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await writer.stop()
        return results

    results = asyncio.run(all_of_it())
    assert results[:100] == [None] * 100
    assert isinstance(results[100], DapError)
    assert [report for group in disk.groups for report in group] == [
        *(bytes([place]) for place in range(100)),
        b"bad",
    ]
    assert len(disk.groups) <= 3
    assert max(map(len, disk.groups)) == GROUP_REPORTS


@pytest.mark.parametrize("fault", [StorageError("full"), ZeroDivisionError("a bug")])
def test_a_disk_that_refuses_confirms_nothing_and_may_recover(fault: Exception) -> None:
    disk = Disk()
    disk.free.set()
    disk.fault = fault

    async def all_of_it() -> None:
        writer = ReportWriter(disk.write, room=10)
        writer.start()
        with pytest.raises(StorageError):
            await writer.put(upload(b"x"))
        disk.fault = None
        await writer.put(upload(b"x"))
        await writer.stop()
        with pytest.raises(StorageError, match="stopping"):
            await writer.put(upload(b"y"))

    asyncio.run(all_of_it())
    assert disk.groups == [[b"x"]]


def test_a_log_line_names_an_error_and_never_quotes_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        try:
            raise ValueError("share 0123456789abcdef")
        except ValueError as error:
            event("trouble", logging.ERROR, error, reports=3)
        logging.getLogger("another.library").error("from %s", "192.0.2.7")
    ours, theirs = (JsonLines(role="leader").format(record) for record in caplog.records)
    line = json.loads(ours)
    assert (line["event"], line["error"], line["reports"], line["role"]) == (
        "trouble",
        "ValueError",
        3,
        "leader",
    )
    assert "0123" not in ours
    assert "192.0.2.7" not in theirs
