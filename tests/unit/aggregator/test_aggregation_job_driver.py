"""A task that the helper refuses does not keep the leader from others; errors tell others
nothing of the machine.
"""

from __future__ import annotations

import json
import threading
import time

import pytest

from hdpmf.errors import (
    ConfigError,
    DapError,
    PrivacyError,
    ProtocolError,
    StorageError,
    TransportError,
)
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.aggregator.http import problem_response
from hdpmf.untrusted.aggregator.leader import HelperApi
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from tests.unit.aggregator.server_pair import HOUR, Pair


def test_a_task_that_the_helper_was_not_given_waits_alone() -> None:
    pair = Pair()
    alone = pair.leader.add_task(pair.a_task(minimum=3).to_bytes())
    both = pair.add()
    pair.upload(alone, [1, 2])
    pair.upload(both, [3, 4, 5])
    with pytest.raises(DapError):
        pair.leader.aggregate()
    assert pair.aggregate_all() == 3
    assert (pair.leader.counts(alone).waiting, pair.leader.counts(both).counted) == (2, 3)
    # The helper has it later, and so have the reports.
    pair.helper.add_task(pair.a_task(minimum=3).to_bytes())
    pair.clock.now += HOUR
    assert pair.aggregate_all() == 2


class Hanging:
    """A helper that takes requests and never answers, as after SIGSTOP."""

    def __init__(self, helper: HelperApi) -> None:
        self.now = helper.now
        self.signed_keys = helper.signed_keys
        self.meet = helper.meet
        self.asked, self.woken = threading.Event(), threading.Event()

    def aggregation_job(self, *request: bytes) -> bytes:
        self.asked.set()
        self.woken.wait(120.0)
        raise TransportError("interrupted")


def test_back_pressure_does_not_wait_for_a_helper_that_hangs() -> None:
    hanging: list[Hanging] = []

    def between(helper: HelperApi) -> HelperApi:
        hanging.append(Hanging(helper))
        return hanging[0]  # type: ignore[return-value]

    pair = Pair(between=between)
    task = pair.add()
    pair.upload(task, [1])
    driver = AggregationJobDriver(pair.leader, AggregatorMetrics(), Limits(waiting_reports=4))
    driver.start()
    try:
        assert hanging[0].asked.wait(60.0)
        taken = 1
        while not driver.overloaded() and taken < 20:
            pair.upload(task, [taken])
            driver.wake(stored=1)
            taken += 1
        assert taken == 5
        driver.count()
        assert driver.overloaded()
    finally:
        hanging[0].woken.set()
        driver.stop()


@pytest.mark.slow
def test_the_worker_goes_on_after_a_refusal() -> None:
    pair = Pair()
    alone = pair.leader.add_task(pair.a_task(minimum=3).to_bytes())
    both = pair.add()
    pair.upload(alone, [1, 2])
    pair.upload(both, [3, 4, 5])
    worker = AggregationJobDriver(pair.leader, AggregatorMetrics(), Limits(waiting_reports=1))
    worker.start()
    end = time.monotonic() + 30
    while pair.leader.counts(both).counted < 3 and time.monotonic() < end:
        time.sleep(0.05)
    worker.stop()
    assert pair.leader.counts(both).counted == 3
    assert worker.overloaded()  # two wait, and one may


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (DapError("a word", "batchInvalid"), 400, True),
        (DapError("a word", "unrecognizedTask"), 404, True),
        (ProtocolError("a word"), 400, True),
        (PrivacyError("/home/north: a word"), 500, False),
        (ConfigError("/home/north: a word"), 500, False),
        (StorageError("/home/north: a word"), 503, False),
        (TransportError("a word"), 503, False),
        (ValueError("a word"), 500, False),
    ],
)
def test_what_others_are_told(error: Exception, status: int, told: bool) -> None:
    answer = problem_response(error)
    assert answer.status_code == status
    assert answer.media_type == "application/problem+json"
    details = json.loads(bytes(answer.body))
    assert details["status"] == status
    assert details["type"]
    assert details["title"]
    assert ("a word" in details["detail"]) == told
    assert (answer.headers.get("retry-after") == "30") == (status == 503)
