"""Servers that are killed, away, or out of disk: confirmed reports are in the sum once, and
nothing else is.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

from hdpmf.untrusted.aggregator.folder import Limits
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task, near, taken
from tests.aggregator.soak_servers import one_period

VECTORS = [[200, 150, 190, 255], [201, 160, 180, 254], [155, 170, 160, 150]]


def test_kills_change_no_sum(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.start(HELPER, LEADER)
        ended = one_period(pair, seed=3, kills=3)
        assert ended.faults == []
        assert len(ended.kills) == 3


def test_a_helper_that_is_away_is_caught_up_with(tmp_path: Path) -> None:
    with Pair(tmp_path, limits=Limits(waiting_reports=3)) as pair:
        pair.start(HELPER, LEADER)
        asked = make_task(pair.servers, pair.collector.card, seconds=6)
        pair.give(asked)
        pair.kill(HELPER)
        stored, end = 0, time.monotonic() + 60
        while taken(answer := pair.upload(asked, asked.report([200, 150, 190, 255]))):
            stored += 1
            time.sleep(0.3)
            assert time.monotonic() < end
        # As many wait as may: devices are asked to come back.
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert stored == 4
        while "aggregation-failed" not in pair.log(LEADER):
            assert time.monotonic() < end
            time.sleep(0.05)
        pair.serve(HELPER)
        found, count = pair.collect(asked, 90)
        assert count == stored
        assert near(found, [stored * number for number in (200, 150, 190, 255)])


def test_a_full_disk_confirms_nothing_and_passes(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.start(HELPER, LEADER)
        asked = make_task(pair.servers, pair.collector.card, seconds=6)
        pair.give(asked)
        reports = [asked.report(vector) for vector in VECTORS]
        assert taken(pair.upload(asked, reports[0]))
        pid, free = pair.deployment.child(LEADER).process.pid, resource.RLIM_INFINITY
        resource.prlimit(
            pid, resource.RLIMIT_FSIZE, (4096, free)
        )  # nothing can be written beyond that, in any file
        refused = [pair.upload(asked, report) for report in reports[1:]]
        assert [answer.status_code for answer in refused] == [503, 503]
        assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
        assert pair.clients[LEADER].get(pair.cards[LEADER].endpoint("/healthz")).status_code == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (free, free))
        assert all(taken(pair.upload(asked, report)) for report in reports[1:])
        found, count = pair.collect(asked)
        assert count == 3
        assert near(found, [sum(column) for column in zip(*VECTORS, strict=True)])
