"""Killed at any moment, started again: every report counts once, and noise is drawn once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import Interval
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from tests.unit.aggregator.server_pair import END, Pair, plain_sum, wanted


class KilledError(BaseException):
    """Nothing of ours catches it: as kill -9, nobody tidies up."""


class Death:
    """Kills at the n-th place where something could have been written, before or after it."""

    def __init__(self, place: int) -> None:
        self.left = place

    def passes(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KilledError

    @contextmanager
    def write(self, database: ServerDatabase) -> Iterator[sa.Connection]:
        self.passes()
        with ServerDatabase.write(database) as connection:
            yield connection
            self.passes()  # the transaction is not committed
        self.passes()  # it is


class Wire:
    """To the helper: a request may be lost, or its answer."""

    def __init__(self, helper, death: Death) -> None:
        self.helper, self.death = helper, death

    def aggregation_job(self, *request: bytes) -> bytes:
        self.death.passes()
        answer = self.helper.aggregation_job(*request)
        self.death.passes()
        return answer

    def aggregate_share(self, *request: bytes) -> bytes:
        self.death.passes()
        answer = self.helper.aggregate_share(*request)
        self.death.passes()
        return answer

    def meet(self, theirs: int) -> int:
        self.death.passes()
        answer = self.helper.meet(theirs)
        self.death.passes()
        return answer


def everything(pair: Pair, task: bytes, reports: list[bytes]) -> bytes:
    """All that happens in a task's life; each step may have happened before."""
    for report in reports:
        pair.leader.upload(task, report)
    pair.aggregate_all(limit=2)
    pair.clock.now = max(pair.clock.now, END + 1)
    interval = Interval(
        pair.leader.task(task).document.begin, END - pair.leader.task(task).document.begin
    )
    found = pair.leader.collect(task, wanted(interval).encode())
    assert found is not None
    return found


def lives(pair: Pair, task: bytes, reports: list[bytes], place: int) -> tuple[bytes, bool]:
    """Once with a death at this place, and on from there; whether there was one."""
    death = Death(place)
    pair.between = lambda helper: Wire(helper, death)
    pair.start()
    for database in pair.databases:
        database.write = lambda database=database: death.write(database)  # type: ignore[method-assign]
    died = False
    try:
        everything(pair, task, reports)
    except KilledError:
        died = True
    death.left = 0  # never again
    for database in pair.databases:
        del database.write
    pair.between = lambda helper: helper
    pair.reopen()
    return everything(pair, task, reports), died


def deaths(folder: Path | None, step: int) -> int:
    place = 1
    while True:
        if folder is not None:
            (folder / str(place)).mkdir()
        pair = Pair(None if folder is None else folder / str(place))
        task = pair.add()
        reports = [pair.report(task, seed) for seed in range(3)]
        collection, died = lives(pair, task, reports, place)
        assert pair.numbers(task, collection) == plain_sum([0, 1, 2]), place
        assert everything(pair, task, reports) == collection
        drawn = [noise.draws for noise in pair.noises]
        # Noise may be drawn and lost with its transaction: what counts is that one draw left.
        assert all(1 <= draws <= 2 for draws in drawn), (place, drawn)
        if not died:
            return place
        place += step


@pytest.mark.slow
def test_a_death_anywhere_changes_nothing() -> None:
    assert deaths(None, 1) > 40


@pytest.mark.slow
def test_the_same_on_the_disk(tmp_path: Path) -> None:
    assert deaths(tmp_path, 3) > 50


@pytest.mark.parametrize(
    "alone", [False, True], ids=["after its lease", "or at once by the only process"]
)
def test_a_job_that_a_dead_worker_left_is_taken(alone: bool) -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    honest = pair.helper.aggregation_job
    asked = []

    def dies(*request: bytes) -> bytes:
        asked.append(request)
        honest(*request)
        raise KilledError

    pair.helper.aggregation_job = dies  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        pair.leader.aggregate()
    pair.helper.aggregation_job = lambda *request: asked.append(request) or honest(*request)  # type: ignore[method-assign]
    assert pair.leader.aggregate() == 0
    if alone:
        pair.leader.take_over()
    else:
        pair.clock.now += pair.rules.lease + 1
    assert pair.leader.aggregate() == 2
    assert asked[0] == asked[1]
    assert pair.leader.aggregate() == 0


def test_a_worker_that_only_seemed_dead_adds_nothing() -> None:
    """Its lease was over, another has finished the job, and now it comes back."""
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1])
    honest = pair.helper.aggregation_job

    def slow(*request: bytes) -> bytes:
        answer = honest(*request)
        pair.helper.aggregation_job = honest  # type: ignore[method-assign]
        pair.clock.now += pair.rules.lease + 1
        assert pair.leader.aggregate() == 2
        return answer

    pair.helper.aggregation_job = slow  # type: ignore[method-assign]
    assert pair.leader.aggregate() == 2
    assert pair.leader.counts(task).counted == pair.helper.counts(task).counted == 2
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
