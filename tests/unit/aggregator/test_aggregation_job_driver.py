"""A task that the helper refuses does not keep the leader from others; errors tell others
nothing of the machine.
"""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from hdpmf.common.protocol import encode
from hdpmf.errors import (
    ConfigError,
    DapError,
    PrivacyError,
    ProtocolError,
    StorageError,
    TransportError,
)
from hdpmf.untrusted.aggregator import aggregation_job_driver
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.aggregator.http import problem_response
from hdpmf.untrusted.aggregator.leader import HelperApi
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.partner_clock import PartnerClock
from tests.unit.aggregator.server_pair import HOUR, Pair


def test_a_task_that_the_helper_was_not_given_waits_alone() -> None:
    pair = Pair()
    alone = pair.leader.add_task(encode(pair.a_task(minimum=3)))
    both = pair.add()
    pair.upload(alone, [1, 2])
    pair.upload(both, [3, 4, 5])
    with pytest.raises(DapError):
        pair.leader.aggregate()
    assert pair.aggregate_all() == 3
    assert (pair.leader.counts(alone).waiting, pair.leader.counts(both).counted) == (2, 3)
    # The helper has it later, and so have the reports.
    pair.helper.add_task(encode(pair.a_task(minimum=3)))
    pair.clock.now += HOUR
    assert pair.aggregate_all() == 2


def test_the_worker_says_how_many_it_has_aggregated() -> None:
    pair, metrics = Pair(), AggregatorMetrics()
    task = pair.add()
    pair.upload(task, [3, 4, 5])
    worker = AggregationJobDriver(pair.leader, metrics, Limits())
    worker.start()
    end = time.monotonic() + 60
    while b"aggregated_reports_total 3.0" not in metrics.text() and time.monotonic() < end:
        time.sleep(0.02)
    worker.stop()
    assert b"aggregated_reports_total 3.0" in metrics.text()
    assert pair.leader.counts(task).counted == 3


class Story:
    """A leader, the time and the driver's events, all played; waits pass time and are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: int | Exception) -> None:
        self.now, self.script = 10_000.0, list(script)
        self.waits: list[tuple[str, float]] = []
        self.done: list[tuple[str, float]] = []
        self.lacks_partner_keys = False
        self.waiting_reports = 0
        self.keys_are_known = True
        self.is_away = False
        self.skew = 3.0
        self.partner_clock = PartnerClock(lambda: 1_000_000.0 + self.now, 60.0, self.monotonic)
        self.metrics = AggregatorMetrics()
        limits = Limits(job_reports=256, waiting_reports=7)
        self.driver = AggregationJobDriver(self, self.metrics, limits)  # type: ignore[arg-type]
        monkeypatch.setattr(aggregation_job_driver, "time", self)
        monkeypatch.setattr(
            aggregation_job_driver, "backoff", lambda tries, first, longest: 100.0 + tries
        )
        self.driver._stopping = Played(self, "stopping")  # type: ignore[assignment]
        self.driver._woken = Played(self, "woken")  # type: ignore[assignment]

    def monotonic(self) -> float:
        return self.now

    def aggregate(self, most: int) -> int:
        assert most == 256
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def waiting(self) -> int:
        return self.waiting_reports

    def compare_clocks(self) -> None:
        self.done.append(("clock", self.now))
        if self.is_away:
            raise TransportError("away")
        self.partner_clock.compare(1_000_000.0 + self.now + self.skew)

    def compare_epochs(self) -> None:
        self.done.append(("epochs", self.now))

    def collect_garbage(self) -> None:
        self.done.append(("garbage", self.now))

    def follow_partner_keys(self) -> None:
        self.done.append(("keys", self.now))
        if not self.keys_are_known:
            raise TransportError("away")

    def times(self, what: str) -> list[float]:
        return [at - 10_000.0 for done, at in self.done if done == what]


class Played(threading.Event):
    def __init__(self, story: Story, name: str) -> None:
        super().__init__()
        self._story, self._name = story, name

    def is_set(self) -> bool:
        return not self._story.script

    def wait(self, timeout: float | None = None) -> bool:
        self._story.waits.append((self._name, timeout or 0.0))
        self._story.now += timeout or 0.0
        return False


def test_how_long_it_waits_after_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    away = TransportError("away")
    story = Story(
        monkeypatch,
        256,
        255,
        0,
        away,
        away,
        ValueError("x"),
        3,
        away,
        DapError("no", "batchOverlap"),
    )
    story.driver._run()
    gather = ("stopping", 0.5)
    assert story.waits == [
        gather,
        ("woken", 5.0), gather,
        ("stopping", 100.0), ("stopping", 101.0), ("stopping", 102.0),
        gather,
        ("stopping", 100.0),
        ("stopping", 1.0),
    ]  # fmt: skip
    text = story.metrics.text().decode()
    assert "aggregated_reports_total 514.0" in text
    for what, count in (("TransportError", 3), ("unexpected", 1), ("batchOverlap", 1)):
        assert re.search(rf'troubles_total\{{[^}}]*"{what}"\}} {count}\.0', text)


def test_what_is_done_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch, *[1] * 7300)
    story.driver._run()
    assert story.times("garbage") == [0.0, 3600.0]


def _look_at_partner(story: Story, seconds: int) -> None:
    for _ in range(seconds):
        story.driver.look_at_partner()
        story.now += 1.0


def test_the_helpers_clock_and_keys_are_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(monkeypatch)
    _look_at_partner(story, 1300)
    assert story.times("clock") == story.times("epochs") == [30.0 * n for n in range(44)]
    assert story.times("keys") == [0.0, 600.0, 1200.0]
    assert story.partner_clock.skew == 3.0


def test_a_helper_that_is_away_and_keys_that_are_missing_are_looked_for_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(monkeypatch)
    story.is_away = True
    _look_at_partner(story, 3)
    assert story.times("clock") == [0.0, 1.0, 2.0]  # no report is taken before
    assert story.times("keys") == []
    story.is_away = False
    _look_at_partner(story, 10)
    story.is_away = True
    _look_at_partner(story, 36)
    assert story.times("clock") == [0.0, 1.0, 2.0, 3.0, 33.0, 38.0, 43.0, 48.0]
    assert story.times("keys") == [3.0]
    story = Story(monkeypatch)
    story.lacks_partner_keys, story.keys_are_known = True, False
    _look_at_partner(story, 11)
    assert story.times("keys") == [0.0, 5.0, 10.0]


def test_clocks_that_differ_are_compared_more_often_until_they_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(monkeypatch)
    story.skew = 3600.0
    _look_at_partner(story, 7)
    story.skew = 3.0
    _look_at_partner(story, 40)
    assert story.times("clock") == [0.0, 5.0, 10.0, 40.0]


def test_it_is_overloaded_while_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    driver = story.driver
    story.waiting_reports = 7
    driver.count()
    assert [driver.overloaded(expected) for expected in (0, 1)] == [False, True]
    driver.wake(stored=1)  # seen before the next count
    assert driver.overloaded()
    story.waiting_reports = 6
    driver.count()
    assert [driver.overloaded(expected) for expected in (0, 1, 2)] == [False, False, True]


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
    alone = pair.leader.add_task(encode(pair.a_task(minimum=3)))
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
        (DapError("a word", "reportRejected"), 400, True),
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
    answer = problem_response(error, 7, bytes(32))
    assert answer.status_code == status
    assert answer.media_type == "application/problem+json"
    details = json.loads(bytes(answer.body))
    assert details["status"] == status
    assert details["type"]
    assert details["title"]
    assert details["taskid"] == "A" * 43
    assert ("a word" in details["detail"]) == told
    assert (answer.headers.get("retry-after") == "7") == (status == 503)
