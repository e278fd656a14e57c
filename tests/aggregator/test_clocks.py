"""A server's clock that is an hour off, and jumps while it runs: real processes (libfaketime).

What is confirmed is counted, and what cannot be counted is not confirmed.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.aggregator.server_processes import taken

from .server_processes import HELPER, LEADER, Asked, Pair, faketime_library, make_task, near

HOUR = 3600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not faketime_library(), reason="needs Debian's libfaketime"),
]


def skew(pair: Pair) -> float:
    (line,) = [
        line
        for line in pair.metrics(LEADER).splitlines()
        if line.startswith("hdpmf_aggregator_clock_skew_seconds ")
    ]
    return float(line.split()[1])


def wait_for_skew(pair: Pair, expected: float) -> None:
    end = time.monotonic() + 90
    while abs(skew(pair) - expected) > 20:
        assert time.monotonic() < end, pair.log(LEADER)
        time.sleep(0.5)


def upload(pair: Pair, asked: Asked) -> bool:
    """Whether a report is confirmed; a refusal says that the clocks differ."""
    answer = pair.upload(asked, asked.report([1, 2, 3, 4]))
    if taken(answer):
        return True
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    return False


def test_an_hour_off_confirms_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """Twenty of twenty reports were confirmed, and then rejected for good."""
    with Pair(tmp_path, clocks=True) as pair:
        pair.start(HELPER, LEADER)
        asked = make_task(pair.servers, pair.collector.card, seconds=75)
        pair.give(asked)
        confirmed = sum(upload(pair, asked) for _ in range(3))
        assert confirmed == 3
        # The leader sees at once that its own clock jumps, and the helper's within half a minute.
        for role, ahead in ((LEADER, HOUR), (HELPER, HOUR)):
            pair.set_clock(role, ahead)
            # What comes before the clocks are compared again may still be confirmed, and is
            # counted.
            end = time.monotonic() + 60
            while upload(pair, asked):
                confirmed += 1
                assert time.monotonic() < end, "nobody notices"
                time.sleep(1.0)
            wait_for_skew(pair, ahead if role == HELPER else -ahead)
            assert not any(upload(pair, asked) for _ in range(5))
            pair.set_clock(role, 0)
            wait_for_skew(pair, 0)
            confirmed += sum(upload(pair, asked) for _ in range(2))
        found, count = pair.collect(asked, 240)
        assert count == confirmed
        assert near(found, [confirmed * value for value in (1, 2, 3, 4)])
