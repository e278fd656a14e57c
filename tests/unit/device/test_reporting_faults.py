"""Reports by two servers where something goes wrong in the middle: kills, full disks, owners who
change their mind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import Report
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.outbox import reports
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import Device, live

from .reporting_world import (
    PERIOD,
    POLICY,
    STARS,
    START,
    World,
    actions,
    make_facts,
    make_store,
    make_task,
    plain_sums,
    reported,
    reporter,
)


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_a_kill_anywhere_pays_once_and_sends_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before the n-th commit, or right after it, for every n; then it starts
    again.
    """
    task = make_task()
    for after in (False, True):
        for fatal in range(1, 40):
            path = tmp_path / f"{fatal}{after}.db"
            make_store(path=path).close()
            world = World()
            world.publish(task=task, facts=make_facts())
            world.answers = [503]
            killed = _live_with_a_kill(path, world, fatal, after, monkeypatch)
            with DeviceStore.open(path) as store:
                live(reporter(store, world, 0.25), world, PERIOD + 200)
                bodies = {body for _, _, body in world.uploads}
                assert len(bodies) == 1, (fatal, after)
                assert world.sums(task) == plain_sums(task, STARS)
                done = [name for name in actions(store) if name != "received"]
                assert done == ["agreed", "sent"], (fatal, after)
                assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
            if not killed:
                break
        else:
            pytest.fail("the device made more commits than were killed")
        assert fatal > 5


def _live_with_a_kill(
    path: Path, world: World, fatal: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> bool:
    with DeviceStore.open(path) as store:
        database, commits, whole = store._database, 0, store._database.transaction
        depth = 0

        class Commit:
            def __enter__(self) -> None:
                nonlocal depth
                depth += 1
                self.inner = whole()
                self.inner.__enter__()

            def __exit__(self, *raised: object) -> object:
                nonlocal depth, commits
                depth -= 1
                commits += depth == 0 and raised[0] is None
                if depth == 0 and raised[0] is None and commits == fatal and not after:
                    error = KilledError()
                    self.inner.__exit__(KilledError, error, None)
                    raise error
                self.inner.__exit__(*raised)  # type: ignore[arg-type]
                if depth == 0 and raised[0] is None and commits == fatal:
                    raise KilledError
                return None

        with monkeypatch.context() as patched:
            patched.setattr(database, "transaction", lambda: Commit())
            try:
                live(reporter(store, world, 0.25), world, PERIOD + 200)
            except KilledError:
                return True
    return False


def test_a_full_disk_lets_nothing_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    device = reporter(store, world, 0.0)

    def full(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store.ledger, "note", full)  # what is written before the first byte leaves
        live(device, world, 600)
        assert world.uploads == []
        assert len(world.requests) < 40
    live(device, world, 600)
    assert len(world.uploads) == 1
    assert actions(store) == ["agreed", "sent"]


def test_forgetting_the_run_gives_back_and_reports_no_second_time() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = "unreachable"
    device = reporter(store, world, 0.0)
    live(device, world, 60)
    store.forget()
    world.otherwise = 201
    live(device, world, PERIOD)
    assert world.uploads == []
    assert actions(store) == ["agreed", "returned"]


@pytest.mark.parametrize(
    "policy",
    [Policy(servers=POLICY.servers, max_epsilon_per_run=0.1), Policy()],
    ids=["epsilon", "pair"],
)
def test_a_changed_policy_holds_when_the_report_leaves(policy: Policy) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    device = reporter(store, world, 0.5)
    live(device, world, 60)
    store.set_policy(policy)
    live(device, world, PERIOD)
    assert (world.uploads, actions(store)) == ([], ["agreed", "returned"])


def test_ratings_that_change_while_the_report_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pays is who is in the report: it is made anew."""
    world, store, task = World(), make_store(), make_task()
    world.publish(task=task)
    real, changed = reports.split_report, list[int]()

    def meanwhile(*given: object, **options: object) -> object:
        if not changed:
            changed.append(1)
            store.rate("item 01", 5.0)
            store.remove("item 00")
        return real(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reports, "split_report", meanwhile)
    live(reporter(store, world, 0.0), world, 600)
    now = {"item 01": 5.0} | {item: value for item, value in STARS.items() if item != "item 00"}
    assert world.sums(task) == plain_sums(task, now)
    paid = store.ledger.paid_in(task_id(task).hex(), store.ratings())
    assert (paid > 0).all()
    assert actions(store) == ["agreed", "sent"]


def test_an_owner_who_forgets_while_the_report_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    real = reports.split_report

    def meanwhile(*given: object, **options: object) -> object:
        store.forget()
        return real(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reports, "split_report", meanwhile)
    live(reporter(store, world, 0.0), world, 600)
    assert (world.uploads, actions(store)) == ([], [])


def test_when_a_report_was_made_is_not_in_it() -> None:
    store = make_store()
    world = reported(make_task(precision=60), store, moments=(0.5,))
    assert Report.decode(world.uploads[0][2]).report_metadata.time == START


def test_a_task_is_reported_in_once_whoever_publishes_it() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    live(reporter(store, world, 0.0), world, 60)
    other = Device(
        store,
        world,
        recommender="https://other.example",
        clock=lambda: world.now,
        uniform=lambda: 0.0,
    )
    live(other, world, PERIOD)
    assert len(world.uploads) == 1
    assert actions(store) == ["agreed", "sent"]


@pytest.mark.parametrize("ahead", [86_400.0, -86_400.0])
def test_a_clock_that_is_put_right_costs_no_report(ahead: float) -> None:
    """A day ahead the leader says that it is too early; a day behind nothing is due yet."""
    world, store = World(), make_store()
    task = make_task(begin=START - START % 3600, end=START - START % 3600 + 10 * 86_400)
    world.publish(task=task)
    world.now = START + ahead
    world.otherwise = 400 if ahead > 0 else 201
    device = reporter(store, world, 0.0)
    live(device, world, 600)
    assert bool(world.uploads) == (ahead > 0)
    world.now, world.otherwise = START + 600.0, 201
    live(device, world, 7200)
    assert len({body for _, _, body in world.uploads}) == 1
    assert store.runs.load(task_id(task)) is None


def test_seeded_noise_is_for_simulation() -> None:
    with pytest.raises(PrivacyError):
        reporter(make_store(), World(), noise=SeededNoise(0))
