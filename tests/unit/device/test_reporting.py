"""A device that reports to two servers: what leaves is what NumPy adds up, paid once, and kills change nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hdpmf.dap import Report
from hdpmf.device import uploading
from hdpmf.device.local_model import kept_model
from hdpmf.device.policy import Policy
from hdpmf.device.reporting import Reporter
from hdpmf.device.store import DeviceStore
from hdpmf.errors import PrivacyError, StorageError
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import Grouping, Survey, decode
from hdpmf.protocol.lists import digest_of
from hdpmf.protocol.task import task_id

from .reporting_world import (
    LISTS,
    N_ITEMS,
    PERIOD,
    POLICY,
    SERVERS,
    STARS,
    START,
    World,
    live,
    make_facts,
    make_store,
    make_task,
    plain_sums,
    reporter,
    survey,
)


def actions(store: DeviceStore) -> list[str]:
    return [entry.action for entry in store.ledger.entries()]


def reported(task: bytes, *stores: DeviceStore, moments: tuple[float, ...] = (0.1, 0.5, 0.9)) -> World:
    """A world in which these devices have lived through a period."""
    world = World()
    world.publish(task=task)
    for store, moment in zip(stores, moments, strict=False):
        world.now = float(START)
        live(reporter(store, world, moment), world, PERIOD + 200)
    return world


def test_the_sum_is_numpys() -> None:
    others = {"item 01": 5.0, "item 02": 1.0, "item 11": 3.0}
    task = make_task()
    stores = make_store(), make_store(others), make_store({})
    world = reported(task, *stores)
    assert len({body for _, _, body in world.uploads}) == 3
    expected = np.add(plain_sums(task, STARS), plain_sums(task, others))
    assert world.sums(task) == expected.tolist()
    assert {device for _, device, _ in world.uploads} == {store.identity.public.hex() for store in stores}
    assert [actions(store) for store in stores] == [["agreed", "sent"]] * 3
    assert stores[0].ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert stores[2].ledger.spent_total() == 0


def test_the_ledger_names_both_organisations_and_what_they_see() -> None:
    store = make_store()
    reported(make_task(), store)
    agreed, sent = store.ledger.entries()
    for words in (agreed.words, sent.words):
        assert SERVERS.names in words
        assert SERVERS.digest in words
    assert "The recommender, and either server alone, see only" in agreed.words
    assert (agreed.view, agreed.status, agreed.epsilon) == ("two-servers", "proved", 0.5)
    assert agreed.run == sent.run == task_id(make_task()).hex()


def test_a_silo_reports_for_every_user() -> None:
    store = make_store({}, users=3)
    store.rate("item 00", 5.0, user="a")
    store.rate("item 00", 1.0, user="b")
    task = make_task()
    world = reported(task, store)
    assert len({body for _, _, body in world.uploads}) == 3
    expected = np.add(plain_sums(task, {"item 00": 5.0}), plain_sums(task, {"item 00": 1.0}))
    assert world.sums(task) == expected.tolist()
    assert actions(store) == ["agreed", "sent"]


def test_a_large_silo_that_fails_between_its_reports_makes_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are kept already when the disk refuses, and none is paid for: only the new ones leave."""
    monkeypatch.setattr(uploading, "_AT_A_TIME", 2)
    store, world, task = make_store({"item 00": 5.0}, users=5), World(), make_task()
    world.publish(task=task)
    device = reporter(store, world, 0.5)
    live(device, world, 60)
    put, kept = store.runs.keep, list[bytes]()

    def full(run: bytes, name: bytes, data: bytes) -> None:
        if len(kept) == 3:
            raise StorageError("the disk is full")
        put(run, name, data)
        kept.append(data)

    with monkeypatch.context() as patched:
        patched.setattr(store.runs, "keep", full)
        live(device, world, PERIOD / 2)
    assert len(kept) == 3
    assert (world.uploads, actions(store)) == ([], [])
    live(device, world, PERIOD / 2 - 100)
    bodies = {body for _, _, body in world.uploads}
    assert len(bodies) == 5
    assert not bodies & set(kept)
    assert world.sums(task) == plain_sums(task, {"item 00": 5.0})
    assert actions(store) == ["agreed", "sent"]


def test_the_second_task_gets_zeros_where_ratings_have_spent_all() -> None:
    store, world = make_store(policy=Policy(servers=(SERVERS.digest,), epsilon=0.5)), World()
    device = reporter(store, world)
    tasks = make_task(), make_task(begin=START + PERIOD, end=START + 2 * PERIOD)
    for task in tasks:
        world.publish(task=task)
        live(device, world, PERIOD)
    live(device, world, 300)
    assert [any(world.sums(task)) for task in tasks] == [True, False]
    assert [len(world.uploads), actions(store)] == [2, ["agreed", "sent"] * 2]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.999])
def test_the_moment_is_drawn_in_the_period_and_kept(moment: float) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    expected = START + moment * 0.9 * PERIOD
    live(reporter(store, world, moment), world, 10)
    assert len(world.uploads) == (moment == 0.0)
    world.now = expected - 2
    device = reporter(store, world, 0.0)  # a restart draws no other one
    device.step()
    assert len(world.uploads) == (moment == 0.0)
    world.now = expected + 1
    device.step()
    assert len(world.uploads) == 1


def test_who_joins_late_reports_in_what_is_left() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.now = START + PERIOD - 100.0
    live(reporter(store, world, 0.5), world, 60)
    assert len(world.uploads) == 1


def test_a_task_that_begins_later_waits() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task(begin=START + 7200, end=START + 7200 + PERIOD))
    live(reporter(store, world, 0.0), world, 7000)
    assert world.uploads == []
    live(reporter(store, world, 0.0), world, 300)
    assert len(world.uploads) == 1


def test_retries_are_the_same_bytes() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.answers = ["unreachable", 503, "silent", 404, 400, 307, 429, 500, 201]
    live(reporter(store, world, 0.0), world, PERIOD)
    assert len({body for _, _, body in world.uploads}) == 1
    assert len(world.uploads) == 8
    assert actions(store) == ["agreed", "sent"]
    assert store.runs.load(task_id(make_task())) is None  # nothing of the report is kept


def test_what_never_left_is_given_back() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = "unreachable"
    live(reporter(store, world, 0.0), world, PERIOD + 100)
    assert world.uploads == []
    assert actions(store) == ["agreed", "returned"]
    assert "no connection to Leaders" in store.ledger.entries()[-1].words
    assert store.ledger.spent_total() == 0
    ratings = store.ratings()
    assert (store.ledger.remaining(ratings, store.weights(), store.policy) == 1.0).all()


def test_what_may_have_left_is_paid() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = "silent"
    live(reporter(store, world, 0.0), world, PERIOD + 100)
    assert len({body for _, _, body in world.uploads}) == 1
    assert actions(store) == ["agreed", "sent"]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert store.runs.load(task_id(make_task())) is None


def test_a_leader_that_fails_for_ever_is_asked_less_and_less() -> None:
    world, store = World(), make_store()
    task = make_task(end=START + 100 * 3600)
    world.publish(task=task)
    world.otherwise = 500
    live(reporter(store, world, 0.0, every=36_000.0), world, 100 * 3600 + 100)
    assert len({body for _, _, body in world.uploads}) == 1
    assert 20 < len(world.uploads) < 250
    assert actions(store) == ["agreed", "sent"]


def test_a_definitive_refusal_ends_it() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = 403
    live(reporter(store, world, 0.0), world, PERIOD)
    assert len(world.uploads) == 1
    assert actions(store) == ["agreed", "sent", "refused"]
    assert store.ledger.spent_total() > 0


def test_nobody_is_named_where_nobody_is_enrolled() -> None:
    store = make_store()
    world = reported(make_task(enrolled=False), store)
    assert [device for _, device, _ in world.uploads] == [""]


# Taste labels: two tasks

GROUPING = Grouping(scores=np.linspace(-64, 64, N_ITEMS).astype(np.int64), heads=np.array([0, 4, 8]))
LABELLED = survey(labels=True, epsilon=0.5)


def labels_task(**changes: object) -> bytes:
    times = {"begin": START + PERIOD, "end": START + 2 * PERIOD} | changes
    return make_task(LABELLED, GROUPING, **times)


def test_labels_are_two_tasks_and_pay_once() -> None:
    world, store = World(), make_store()
    device = reporter(store, world, noise=SeededNoise(0), simulation=True)
    counts, labels = make_task(LABELLED), labels_task()
    world.publish(task=counts)
    live(device, world, PERIOD)
    world.publish(task=labels)
    live(reporter(store, world, noise=SeededNoise(0), simulation=True), world, PERIOD + 100)
    first, second = world.sums(counts), world.sums(labels)
    rated = [64 * (f"item {place:02d}" in STARS) for place in range(N_ITEMS)]
    assert first[N_ITEMS : 2 * N_ITEMS] == rated
    assert not any(first[:N_ITEMS])
    n = N_ITEMS + 3
    weights = np.array(second[n : 2 * n])
    assert weights[N_ITEMS:].sum() in (0, 64 * 3)  # all three heads are of one label
    folded = weights[:N_ITEMS].copy()
    folded[GROUPING.heads] += weights[N_ITEMS:]
    assert folded.tolist() == rated
    assert actions(store) == ["agreed", "sent", "agreed", "sent"]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert len({entry.run for entry in store.ledger.entries()}) == 1
    assert [entry.number for entry in store.ledger.entries()] == [0, 0, 1, 1]


def test_labels_without_counts_are_zeros() -> None:
    world, store = World(), make_store()
    world.publish(task=labels_task(begin=START, end=START + PERIOD))
    live(reporter(store, world), world, PERIOD + 100)
    assert len(world.uploads) == 1
    assert not any(world.sums(labels_task(begin=START, end=START + PERIOD)))
    assert store.ledger.spent_total() == 0


def test_labels_after_counts_that_never_left_are_zeros() -> None:
    world, store = World(), make_store()
    device = reporter(store, world)
    world.publish(task=make_task(LABELLED))
    world.otherwise = "unreachable"
    live(device, world, PERIOD + 1)
    world.otherwise = 201
    world.publish(task=labels_task())
    live(device, world, PERIOD + 100)
    assert not any(world.sums(labels_task()))
    assert store.ledger.spent_total() == 0
    assert actions(store) == ["agreed", "returned", "agreed", "sent"]
    assert store.ledger.entries()[-1].run == task_id(labels_task()).hex()  # of a run that is over nothing is sent


def test_a_label_is_drawn_once() -> None:
    world, store = World(), make_store()
    device = reporter(store, world)
    world.publish(task=make_task(LABELLED))
    live(device, world, PERIOD)
    for turn in (1, 2):
        world.publish(task=labels_task(begin=START + turn * PERIOD, end=START + (turn + 1) * PERIOD))
        live(device, world, PERIOD)
    again = labels_task(begin=START + 2 * PERIOD, end=START + 3 * PERIOD)
    assert len(world.uploads) == 3
    assert not any(world.sums(again))


# Models


def test_a_model_comes_and_says_by_what_it_was_made() -> None:
    world, store = World(), make_store()
    device = reporter(store, world, 0.0)
    world.publish(task=make_task())
    live(device, world, 100)
    assert device.answered == ""
    world.publish(facts=make_facts())
    live(device, world, 200)
    model = kept_model(store)
    assert model is not None
    assert (model.view, model.method, model.run) == ("two-servers", "hdp-sum", "ab" * 16)
    assert isinstance(decode(model.plan or b""), Survey)
    assert device.answered == task_id(make_task()).hex()
    assert actions(store) == ["agreed", "sent", "received"]
    count = Counter(name for name, _ in world.requests)
    assert all(times == 1 for name, times in count.items() if name != "index.json")


def test_lists_come_after_their_facts_or_are_refused() -> None:
    """The lists that the facts name; refused ones are not waited for."""
    for good in (True, False):
        world, store = World(), make_store()
        device = reporter(store, world, 0.0)
        world.publish(task=make_task())
        live(device, world, 100)
        named = make_facts(lists=digest_of(LISTS))
        world.publish(facts=named, lists=LISTS if good else LISTS[:-1])
        live(device, world, 200)
        model = kept_model(store)
        assert model is not None
        assert model.lists == (LISTS if good else b"")
        assert device.answered != ""
        assert any("refused" in line for line in world.logged) != good


def test_a_device_that_takes_no_part_gets_the_model_too() -> None:
    world, store = World(), make_store(policy=Policy())
    world.publish(task=make_task(), facts=make_facts())
    live(reporter(store, world), world, 200)
    model = kept_model(store)
    assert model is not None
    assert model.view == "nothing"
    assert (world.uploads, actions(store)) == ([], [])


# Kills


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_a_kill_anywhere_pays_once_and_sends_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before the n-th commit, or right after it, for every n; then it starts again."""
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


def _live_with_a_kill(path: Path, world: World, fatal: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
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
    "policy", [Policy(servers=POLICY.servers, max_epsilon_per_run=0.1), Policy()], ids=["epsilon", "pair"]
)
def test_a_changed_policy_holds_when_the_report_is_made(policy: Policy) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    device = reporter(store, world, 0.5)
    live(device, world, 60)
    store.set_policy(policy)
    live(device, world, PERIOD)
    assert (world.uploads, actions(store)) == ([], [])


def test_ratings_that_change_while_the_report_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pays is who is in the report: it is made anew."""
    world, store, task = World(), make_store(), make_task()
    world.publish(task=task)
    real, changed = uploading.sealed_report, list[int]()

    def meanwhile(*given: object, **options: object) -> bytes:
        if not changed:
            changed.append(1)
            store.rate("item 01", 5.0)
            store.remove("item 00")
        return real(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(uploading, "sealed_report", meanwhile)
    live(reporter(store, world, 0.0), world, 600)
    now = {"item 01": 5.0} | {item: value for item, value in STARS.items() if item != "item 00"}
    assert world.sums(task) == plain_sums(task, now)
    paid = store.ledger.paid_in(task_id(task).hex(), store.ratings())
    assert (paid > 0).all()
    assert actions(store) == ["agreed", "sent"]


def test_an_owner_who_forgets_while_the_report_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    real = uploading.sealed_report

    def meanwhile(*given: object, **options: object) -> bytes:
        store.forget()
        return real(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(uploading, "sealed_report", meanwhile)
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
    other = Reporter(store, world, recommender="https://other.example", clock=lambda: world.now, uniform=lambda: 0.0)
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
