"""Clocks that differ: nothing is confirmed that would be lost, and no batch is cut short."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import (
    AGGREGATION_JOBS_PATH,
    id_to_text,
)
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.aggregator.http import LeaderResources
from hdpmf.untrusted.aggregator.server import PartnerClock
from tests.unit.aggregator.server_pair import BEGIN, END, HOUR, WHOLE, Pair, plain_sum, wanted
from tests.unit.aggregator.test_http import (
    REPORT,
    Uploads,
    _nothing_is_aggregated,  # noqa: F401  a fixture
    answers_to,
    folders,  # noqa: F401  a fixture
)
from tests.world import Clock


def test_a_jump_of_the_own_clock_is_seen_while_the_other_server_is_away() -> None:
    own, steady = Clock(5_000.0), Clock(17.0)
    clock = PartnerClock(own, 60.0, steady)
    assert (clock.skew, clock.differs, clock.earlier()) == (None, False, 5_000.0)
    clock.compare(4_950.0)
    assert (clock.skew, clock.differs, clock.earlier()) == (-50.0, False, 4_950.0)
    for passing in (own, steady):
        passing.now += 1_000.0
    assert (clock.skew, clock.heard_within(999.0), clock.heard_within(1_000.0)) == (
        -50.0,
        False,
        True,
    )
    own.now += 11.0
    assert (clock.skew, clock.differs) == (-61.0, True)
    own.now -= 121.0
    assert (clock.skew, clock.differs, clock.earlier()) == (60.0, False, own.now)
    own.now -= 1.0
    assert clock.differs


@pytest.mark.parametrize("ahead", [-3600.0, None, 3600.0])
def test_nothing_is_confirmed_while_clocks_differ(
    folders: dict[str, AggregatorFolder],  # noqa: F811
    ahead: float | None,
) -> None:
    uploads = Uploads(folders)
    statuses: list[int] = []

    async def story(client: httpx.AsyncClient, resources: LeaderResources) -> None:
        uploads.metrics.watch(uploads.folder, resources._leader)
        clock = resources._leader.partner_clock
        report, kind = uploads.asked.report([1, 2, 3, 4]), {"content-type": REPORT}
        for skew in (ahead, 30.0):
            clock._ahead = None
            if skew is not None:
                clock.compare(time.time() + skew)
            answer = await client.post(uploads.path, content=report, headers=kind)
            statuses.append(answer.status_code)
            taken = int(answer.status_code == 200)
            assert resources._leader.waiting() == taken
            text = uploads.metrics.text().decode()
            assert f"waiting_reports {taken}.0" in text
            reachable = int(skew is not None)
            assert f"partner_reachable {reachable}.0" in text
            found = re.search(r"clock_skew_seconds ([-0-9.]+)", text)
            assert (found is None) == (skew is None)
            if found is not None and skew is not None:
                assert abs(float(found[1]) - skew) < 20.0
            assert 'rejected_reports{reason="report_too_early"} 0.0' in text

    uploads.run(story)
    assert statuses == [503, 200]
    assert uploads.outcomes()["clock"] == 1


def test_reports_that_a_slow_helper_finds_too_early_are_not_lost() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [1, 2, 3])  # confirmed, while nobody knew of the helper's clock
    right = pair.helper._clock
    pair.helper._clock = lambda: BEGIN - HOUR
    assert pair.aggregate_all() == 0
    counts = pair.leader.counts(task)
    assert (counts.waiting, counts.rejected) == (3, {})
    pair.helper._clock = right
    assert pair.aggregate_all() == 0  # not at once again
    pair.clock.now += 61.0
    assert pair.aggregate_all() == 3
    assert pair.numbers(task, pair.collect(task)) == plain_sum([1, 2, 3])


def test_a_leader_whose_clock_is_ahead_closes_no_batch_early() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [1, 2])
    pair.aggregate_all()
    pair.clock.now = END - 10.0
    steady = Clock(0.0)
    pair.leader.partner_clock._monotonic = steady
    pair.leader.partner_clock.compare(pair.clock.now)
    pair.clock.now = END + 20.0  # within the tolerance
    assert pair.ask(task, WHOLE) is None
    steady.now += 11.0
    assert pair.leader.collect(task, wanted(WHOLE).encode()) is not None


def test_a_report_that_is_early_for_the_slower_clock_is_refused_before_it_is_confirmed() -> None:
    pair = Pair()
    task = pair.add(pair.a_task(begin=BEGIN + HOUR, end=END))
    pair.clock.now = BEGIN + HOUR - pair.rules.skew + 1.0
    pair.leader.partner_clock._monotonic = lambda: 0.0
    pair.leader.partner_clock.compare(pair.clock.now - 30.0)
    with pytest.raises(Exception, match="future"):
        pair.upload(task, [1])
    pair.leader.partner_clock.compare(pair.clock.now)
    pair.upload(task, [1])


@pytest.mark.parametrize(("ahead", "status"), [(0.0, 404), (-3600.0, 503)])
def test_a_helper_checks_nothing_while_clocks_differ(
    folders: dict[str, AggregatorFolder],  # noqa: F811
    ahead: float,
    status: int,
) -> None:
    helper = folders["helper"]
    token = folders["leader"].party.token(helper.card.identity, to=helper.card.identity)
    path = AGGREGATION_JOBS_PATH.format(task_id=id_to_text(bytes(32)))
    asked = httpx.Request(
        "POST",
        "https://server" + path,
        headers={
            "authorization": f"Bearer {token}",
            "date": formatdate(time.time() + ahead, usegmt=True),
        },
    )
    (answer,) = answers_to(helper, [asked])
    assert answer.status_code == status


def test_a_stranger_does_not_set_the_clock_of_the_other_server(
    folders: dict[str, AggregatorFolder],  # noqa: F811
    tmp_path: Path,
) -> None:
    helper = folders["helper"]
    token = folders["leader"].party.token(helper.card.identity, to=helper.card.identity)
    off = {"date": formatdate(time.time() - 3600.0, usegmt=True)}
    path = AGGREGATION_JOBS_PATH.format(task_id=id_to_text(bytes(32)))
    strange = [off, off | {"authorization": "Bearer x"}]
    health = [httpx.Request("GET", "https://server/healthz", headers=given) for given in strange]
    own = {"authorization": f"Bearer {token}"}
    asked = httpx.Request("POST", "https://server" + path, headers=own)
    assert [answer.status_code for answer in answers_to(helper, [*health, asked])] == [
        200,
        200,
        404,
    ]
    said = httpx.Request("GET", "https://server/healthz", headers=own | off)
    assert [answer.status_code for answer in answers_to(helper, [said, asked])] == [200, 503]
