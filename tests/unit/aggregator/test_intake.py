"""Uploads are written in groups; what waits is bounded, and nothing is confirmed that is not
written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Sequence

import pytest

from hdpmf.common.base.logs import JsonLines, event
from hdpmf.errors import DapError, StorageError
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.report_writer import GROUP_REPORTS, ReportWriter, Upload


class Disk:
    """Writes when it may; remembers the groups."""

    def __init__(self) -> None:
        self.free, self.groups = threading.Event(), []
        self.fault: Exception | None = None

    def write(self, uploads: Sequence[Upload]) -> list[DapError | None]:
        self.free.wait(10)
        if self.fault is not None:
            raise self.fault
        self.groups.append([upload.report for upload in uploads])
        return [DapError("no") if upload.report == b"bad" else None for upload in uploads]


def upload(report: bytes) -> Upload:
    return Upload(bytes(32), report)


def test_what_comes_while_the_disk_works_is_one_group() -> None:
    disk = Disk()

    async def all_of_it() -> list[object]:
        intake = ReportWriter(disk.write, AggregatorMetrics(), room=1000)
        intake.start()
        waiting = [asyncio.create_task(intake.put(upload(bytes([place])))) for place in range(100)]
        waiting.append(asyncio.create_task(intake.put(upload(b"bad"))))
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)  # nothing is confirmed before it is written
        disk.free.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await intake.stop()
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
        intake = ReportWriter(disk.write, AggregatorMetrics(), room=10)
        intake.start()
        with pytest.raises(StorageError):
            await intake.put(upload(b"x"))
        disk.fault = None
        await intake.put(upload(b"x"))
        await intake.stop()
        with pytest.raises(StorageError, match="stopping"):
            await intake.put(upload(b"y"))

    asyncio.run(all_of_it())
    assert disk.groups == [[b"x"]]


def test_there_is_room_for_so_many() -> None:
    intake = ReportWriter(lambda _: [], AggregatorMetrics(), room=2)
    assert [intake.reserve() for _ in range(3)] == [True, True, False]
    intake.release()
    assert intake.reserve()


def test_a_log_line_names_an_error_and_never_quotes_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        try:
            raise ValueError("share 0123456789abcdef")
        except ValueError as error:
            event("trouble", logging.ERROR, error, reports=3)
        logging.getLogger("uvicorn.error").error("from %s", "192.0.2.7")
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
