"""A yes that is taken back: up to the first byte the owner's word counts as it is, not as it was.

In nine of ten ways everything left and was charged, though nothing had left when the owner changed
their mind. And a no that is asked about again until it is a yes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hdpmf.common.privacy.coding import weight_units
from hdpmf.private.device.consent import (
    consents,
    give_answer,
    has_left,
    lift_refusal,
    pending,
    postpone,
    postpone_under_way,
    refuse_recommender,
    refused_recommenders,
    take_back,
)
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.memberships import leave, remember
from hdpmf.private.device.outbox import reports
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import (
    PERIOD,
    POLICY,
    STARS,
    START,
    World,
    actions,
    make_store,
    make_task,
    plain_sums,
    reporter,
    survey,
)
from tests.world import Device, live

FILMS = "https://films.example"
ASKING = replace(POLICY, ask=True)
Change = Callable[[DeviceStore], None]


def policy(**changes: Any) -> Change:
    return lambda store: store.set_policy(replace(store.policy, **changes))


def answer(word: str) -> Change:
    def change(store: DeviceStore) -> None:
        key = consents(store)[0].key
        if word == "again":
            take_back(store, key)
        elif word == "later":
            postpone(store, key, START)
        else:
            give_answer(store, key, word)  # type: ignore[arg-type]

    return change


def turn_asking_off(then: Change) -> Change:
    def change(store: DeviceStore) -> None:
        policy(ask=False)(store)
        then(store)

    return change


def withdraw_it(store: DeviceStore) -> None:
    assert postpone_under_way(store, FILMS, START)


def remove_all(store: DeviceStore) -> None:
    for record in store.records():
        store.remove(record.item)


def leave_it(store: DeviceStore) -> None:
    remember(store, FILMS)
    leave(store, FILMS)


NO: dict[str, tuple[str, Change]] = {
    "never after always": ("always", answer("never")),
    "taken back": ("always", answer("again")),
    "once, and taken back": ("once", answer("again")),
    "once, and never": ("once", answer("never")),
    "once, and not now": ("once", answer("later")),
    "always, and not now": ("always", answer("later")),
    "withdrawn": ("always", withdraw_it),
    "always, asking off, and not now": ("always", turn_asking_off(answer("later"))),
    "always, asking off, and withdrawn": ("always", turn_asking_off(withdraw_it)),
    "never asked, and withdrawn": ("", withdraw_it),
    "never, to whatever it asks": ("", lambda store: refuse_recommender(store, FILMS)),
    "ask again": ("", policy(ask=True)),
    "a policy with less epsilon": ("", policy(max_epsilon_per_run=0.1)),
    "servers trusted no more": ("", policy(servers=())),
    "left": ("", leave_it),
}
OTHER: dict[str, tuple[Change, dict[str, float], int]] = {
    "all ratings removed": (remove_all, {}, 64),
    "a weight of 1/64": (lambda store: store.set_weight(beta=0.02), STARS, 1),
    "every item marked": (
        lambda store: store.rated.weigh(None, dict.fromkeys(STARS, 0.1)),
        STARS,
        6,
    ),
    "other values": (
        lambda store: [store.rate(item, 1.0) for item in STARS] and None,
        dict.fromkeys(STARS, 1.0),
        64,
    ),
}


class Surprise(World):
    """Something happens on the device when the connection to the leader is open."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None
        self.times: list[float] = []
        self.connections = 0

    def upload(self, *args: Any) -> int:
        self.connections += 1
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        status = super().upload(*args)
        self.times.append(self.now)
        return status


def held(before: str, path: Any = ":memory:", **times: Any) -> tuple[Surprise, DeviceStore, Device]:
    """A device that has made a report, which leaves in the middle of the period."""
    store, world = make_store(path=path, policy=ASKING if before else POLICY), Surprise()
    world.publish(task=make_task(**times))
    device = reporter(store, world, 0.5)
    device.step()
    if before:
        give_answer(store, pending(store)[0].key, before)  # type: ignore[arg-type]
        device.poll_soon()
    live(device, world, 60)
    assert (world.uploads, actions(store)) == ([], ["agreed"])
    return world, store, device


def changes_mind(
    when: str, change: Change, world: Surprise, store: DeviceStore, device: Device
) -> None:
    """The owner changes their mind: long before the moment, at the moment, or while the leader
    plays dead.
    """
    if when == "at the moment":
        world.meanwhile = lambda: change(store)
    elif when == "the leader plays dead":
        world.otherwise = "unreachable"
        live(device, world, 0.7 * PERIOD)
        change(store)
        world.otherwise = 201
    else:
        change(store)
    live(device, world, PERIOD + 200)


WHEN = ("before", "at the moment", "the leader plays dead")


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("way", NO)
def test_what_the_owner_agrees_to_no_more_does_not_leave(way: str, when: str) -> None:
    before, change = NO[way]
    world, store, device = held(before)
    changes_mind(when, change, world, store, device)
    assert world.uploads == []
    assert when != "before" or world.connections == 0  # nor does the leader hear of the device
    assert actions(store) == ["agreed", "returned"]
    assert store.ledger.spent_total() == 0
    kept = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert (kept == store.policy.own_epsilon).all()
    assert past_runs(store)[0].words() == ["Nothing was sent."]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("what", OTHER)
def test_the_report_is_of_the_ratings_as_they_are(what: str, when: str) -> None:
    change, ratings, units = OTHER[what]
    world, store, device = held("")
    changes_mind(when, change, world, store, device)
    assert len({body for _, _, body in world.uploads}) == 1
    assert world.sums(make_task()) == plain_sums(make_task(), ratings, units)
    assert actions(store) == ["agreed", "returned", "agreed", "sent"]
    weights = store.weights().for_ratings(store.ratings())
    assert store.ledger.spent_total() == pytest.approx(
        0.5 * float(weight_units(weights).sum()) / 64
    )
    run = past_runs(store)[0]
    assert (0 if run.paid is None else run.paid.ratings) == len(ratings)
    assert run.afterwards is None or run.afterwards.changed == 0


def test_another_process_counts(tmp_path: Path) -> None:
    """The page and the commands have connections of their own."""
    for number, when in enumerate(WHEN):
        path = tmp_path / f"{number}.sqlite"
        world, store, device = held("", path)

        def elsewhere(_: DeviceStore, path: Path = path) -> None:
            with DeviceStore.open(path) as other:
                remove_all(other)

        changes_mind(when, elsewhere, world, store, device)
        assert not any(world.sums(make_task()))
        assert store.ledger.spent_total() == 0
        store.close()


def test_what_has_left_is_said_to_have_left() -> None:
    world, store, device = held("always")
    world.otherwise = "silent"
    live(device, world, 0.6 * PERIOD)
    assert has_left(store, FILMS)
    answer("never")(store)
    world.otherwise = 201
    live(device, world, PERIOD)
    assert len({body for _, _, body in world.uploads}) == 1
    assert actions(store) == ["agreed", "sent"]
    assert any("had left before, and is paid" in line for line in world.logged)


def test_who_turns_asking_on_is_asked_and_may_still_agree() -> None:
    world, store, device = held("")
    policy(ask=True)(store)
    live(device, world, PERIOD / 2)
    (asked,) = pending(store)
    give_answer(store, asked.key, "once")
    device.poll_soon()
    live(device, world, PERIOD)
    assert world.sums(make_task()) == plain_sums(make_task(), STARS)
    assert actions(store) == ["agreed", "returned", "agreed", "sent"]
    assert consents(store) == []


@pytest.mark.parametrize("what", [name for name in OTHER if name != "all ratings removed"])
def test_a_change_ahead_of_the_moment_is_not_seen(what: str) -> None:
    """The report is made anew in the meantime, and leaves at the moment that was drawn."""
    times = []
    for change in (OTHER[what][0], lambda store: None):
        world, store, device = held("")
        live(device, world, 600)
        change(store)
        live(device, world, PERIOD)
        times.append((world.times, [size for _, size in world.requests]))
    assert times[0] == times[1]


def test_a_change_at_the_moment_draws_another_one() -> None:
    """From the rest of the period, whatever was changed."""
    seen = set()
    for change in (change for change, _, _ in OTHER.values()):
        world, store, device = held("")
        changes_mind("at the moment", change, world, store, device)
        (at,) = world.times
        seen.add(round(at))
    assert len(seen) == 1
    assert START + 0.45 * PERIOD + 60 < seen.pop() < START + 0.95 * PERIOD


def observed(takes: float, moment: float, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What others see of a device, and when, if reading its ratings takes so many seconds."""
    world, store, seen = World(), make_store(), list[Any]()
    fetch, upload = world.fetch, world.upload

    def fetch_at(name: str, *args: Any) -> Any:
        seen.append((round(world.now, 6), name))
        return fetch(name, *args)

    def upload_at(*args: Any) -> int:
        seen.append((round(world.now, 6), "upload"))
        return upload(*args)

    def slowly(real: Any) -> Any:
        def slow(*args: Any, **options: Any) -> Any:
            world.now += takes
            return real(*args, **options)

        return slow

    monkeypatch.setattr(world, "fetch", fetch_at)
    monkeypatch.setattr(world, "upload", upload_at)
    with monkeypatch.context() as patched:
        for name in ("split_report", "paying_ratings", "choose"):
            patched.setattr(reports, name, slowly(getattr(reports, name)))
        world.publish(task=make_task())
        device = reporter(store, world, moment)
        while world.now < START + PERIOD:
            wait = device.step()
            if len(seen) == 6:
                store.rate("elsewhere", 3.0)  # so that the report is looked at again
            world.now += wait
    assert "upload" in [name for _, name in seen]
    return seen


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.5])
@pytest.mark.parametrize("takes", [0.1, 3.0])
def test_no_moment_tells_how_long_ratings_took(
    takes: float, moment: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 5: none and 3,000 were told apart: a report was computed at the moment it left."""
    assert observed(takes, moment, monkeypatch) == observed(0.0, moment, monkeypatch)


@pytest.mark.parametrize(
    ("begin", "end"), [(0, 2), (0, 3599), (-86_400, 2), (-86_400, 899), (3600, 3602)]
)
def test_short_tasks_get_nothing(begin: int, end: int) -> None:
    """Attack 5: 80 of 80 of two seconds were answered, with zeros, for nothing."""
    store, world = make_store(), World()
    world.publish(task=make_task(begin=START + begin, end=START + end, precision=1))
    live(reporter(store, world, 0.0, every=1.0), world, 4000)
    assert (world.uploads, actions(store)) == ([], [])
    assert any("min_period" in line for line in world.logged)


def test_a_recommender_has_so_many_tasks_a_day() -> None:
    store, world = make_store(), World()
    times = []
    for turn in range(30):
        begin = START + turn * 3600
        world.now = float(begin)
        world.publish(task=make_task(begin=begin, end=begin + 3600))
        device = reporter(store, world, 0.0)  # restarts do not count anew
        live(device, world, 3599)
        times += [turn] * (len(world.uploads) - len(times))
    assert times == [0, 1, 2, 3, 24, 25, 26, 27]
    assert sum("max_tasks_per_day" in line for line in world.logged) == 22


# Never


@pytest.mark.parametrize("asking", [True, False])
def test_never_covers_the_recommender(asking: bool) -> None:
    """Epsilon + 1e-9 was another question."""
    store, world = make_store(policy=ASKING), World()
    world.publish(task=make_task(survey(epsilon=0.5)))
    device = reporter(store, world, 0.1)
    device.step()
    give_answer(store, pending(store)[0].key, "never")
    policy(ask=asking)(store)
    for turn, epsilon in enumerate((0.5, 0.5 + 1e-9, 0.5 - 1e-9, 1.0, 0.3), start=1):
        times = {"begin": START + turn * PERIOD, "end": START + (turn + 1) * PERIOD}
        world.now = float(times["begin"])
        world.publish(task=make_task(survey(epsilon=epsilon), **times))
        live(device, world, PERIOD)
    assert (world.uploads, actions(store), pending(store)) == ([], [], [])
    lift_refusal(store, FILMS + "/")
    times = {"begin": START + 7 * PERIOD, "end": START + 8 * PERIOD}
    world.now = float(times["begin"])
    world.publish(task=make_task(survey(epsilon=0.5), **times))
    live(device, world, PERIOD)
    assert bool(pending(store, START + 7.0 * PERIOD)) == asking
    assert len(world.uploads) == (not asking)


def test_much_less_may_be_asked_for_after_a_no() -> None:
    store, world = make_store(policy=ASKING), World()
    for turn, epsilon in enumerate((0.4, 0.1)):
        times = {"begin": START + turn * PERIOD, "end": START + (turn + 1) * PERIOD}
        world.now = float(times["begin"])
        world.publish(task=make_task(survey(epsilon=epsilon), **times))
        reporter(store, world, 0.1).step()
        (asked,) = pending(store)
        assert asked.terms.epsilon == epsilon
        give_answer(store, asked.key, "never")
    assert pending(store) == []


def test_never_can_be_said_before_anybody_asks() -> None:
    store, world = make_store(), World()
    refuse_recommender(store, FILMS)
    assert refused_recommenders(store) == [FILMS]
    world.publish(task=make_task())
    live(reporter(store, world, 0.1), world, PERIOD + 100)
    assert (world.uploads, actions(store), pending(store)) == ([], [], [])


# Labels
