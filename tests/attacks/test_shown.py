"""Ratings that owners show: no more of them leaves than they show when the first byte does, and
nothing of what they hide tells in what is seen of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hdpmf.common.protocol import SharedContribution, decode
from hdpmf.private.device.choices.privacy_level import mark
from hdpmf.private.device.consent import give_answer, pending
from hdpmf.private.device.outbox import reports, shared
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import (
    N_ITEMS,
    PERIOD,
    POLICY,
    STARS,
    START,
    World,
    make_store,
    make_task,
    plain_sums,
    reporter,
    survey,
)
from tests.world import Device, live

from .test_withdrawn import NO, WHEN, Change

SHARING = replace(POLICY, methods=("hdp-share",))
TASK = make_task(survey(sharing=True))
FIRST, *OTHERS = STARS


class Surprise(World):
    """Something happens on the device when the connection to the recommender is open."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None
        self.seen: list[tuple[float, str, int]] = []

    def fetch(self, name: str, most: int) -> bytes:
        self.seen.append((round(self.now, 6), name, 0))
        return super().fetch(name, most)

    def upload(self, *args: Any) -> int:
        self.seen.append((round(self.now, 6), "report", len(args[3])))
        return super().upload(*args)

    def share(self, *args: Any) -> int:
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        self.seen.append((round(self.now, 6), "shared", len(args[2])))
        return super().share(*args)


def drawn(first: float, second: float) -> Callable[[], float]:
    """Draw the moment of the report, that of what is shown, and then always a half."""

    def numbers() -> Iterator[float]:
        yield from (first, second)
        while True:
            yield 0.5

    left = numbers()
    return lambda: next(left)


def held(before: str = "", level: Any = "seen") -> tuple[Surprise, DeviceStore, Device]:
    """A device whose report has left, and whose owner shows all but one item later on."""
    store, world = make_store(policy=replace(SHARING, ask=bool(before))), Surprise()
    store.sharing.put("item", FIRST, "hidden")
    store.set_sharing_level(level)
    world.publish(task=TASK)
    if before:
        reporter(store, world).step()
        give_answer(store, pending(store)[0].key, before)  # type: ignore[arg-type]
    device = reporter(store, world, uniform=drawn(0.05, 0.6))
    live(device, world, 0.3 * PERIOD)
    assert (len(world.uploads), world.shared) == (1, [])
    return world, store, device


def changes_mind(
    when: str, change: Change, world: Surprise, store: DeviceStore, device: Device
) -> None:
    if when == "at the moment":
        world.meanwhile = lambda: change(store)
    elif when == "the leader plays dead":  # here it is the recommender
        world.says = ["unreachable"] * 100
        live(device, world, 0.35 * PERIOD)
        change(store)
        world.says = []
    else:
        change(store)
    live(device, world, PERIOD + 200)


def of_messages(store: DeviceStore) -> list[str]:
    return [entry.action for entry in store.ledger.entries() if entry.view == "messages"]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("way", NO)
def test_what_the_owner_agrees_to_no_more_is_not_shown(way: str, when: str) -> None:
    before, change = NO[way]
    world, store, device = held(before)
    changes_mind(when, change, world, store, device)
    assert world.shared == []
    assert of_messages(store) == ["agreed", "returned"]
    assert store.ledger.spent_total() == pytest.approx(0.5)  # the report's hidden rating


LOWER: dict[str, Change] = {
    "hidden again": lambda store: store.set_sharing_level("hidden"),
    "all items marked": lambda store: mark(store, OTHERS, 0.5),
    "all items hidden": lambda store: store.sharing.put_all(
        "item", dict.fromkeys(OTHERS, "hidden")
    ),
    "all ratings removed": lambda store: [store.remove(item) for item in STARS] and None,
}


@pytest.mark.parametrize("level", ["seen", "open"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("way", LOWER)
def test_a_lowered_level_counts_up_to_the_first_byte(way: str, when: str, level: str) -> None:
    world, store, device = held(level=level)
    changes_mind(when, LOWER[way], world, store, device)
    assert world.shared == []
    assert of_messages(store) == ["agreed", "returned"]
    assert store.ledger.spent_total() == pytest.approx(0.5)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(
    ("level", "lower"), [("seen", "hidden"), ("open", "hidden"), ("open", "seen")]
)
def test_an_item_that_is_lowered_leaves_as_it_is_now(level: str, lower: Any, when: str) -> None:
    world, store, device = held(level=level)
    item = OTHERS[1]
    changes_mind(when, lambda store: store.sharing.put("item", item, lower), world, store, device)
    (body,) = {body for _, _, body in world.shared}
    message = decode(body)
    assert isinstance(message, SharedContribution)
    place = int(item.split()[1])
    assert place not in message.opened.items
    assert (place in message.bits.items) == (lower == "seen")
    assert len(message) == len(OTHERS) - (lower == "hidden")
    assert of_messages(store) == ["agreed", "returned", "agreed", "sent"]


def test_what_has_left_is_told_and_paid() -> None:
    world, store, device = held()
    world.says = ["silent"] * 100
    live(device, world, 0.4 * PERIOD)
    assert len({body for _, _, body in world.shared}) == 1
    store.set_sharing_level("hidden")
    NO["never, to whatever it asks"][1](store)
    world.says = []
    live(device, world, PERIOD)
    assert len({body for _, _, body in world.shared}) == 1
    assert of_messages(store) == ["agreed", "sent"]
    assert any("had left before, and is paid" in line for line in world.logged)


def test_a_task_that_comes_again_gets_nothing_and_charges_nothing() -> None:
    world, store, device = held()
    live(device, world, PERIOD / 2)
    (body,) = [body for _, _, body in world.shared]
    spent = store.ledger.spent_total()
    live(reporter(store, world, 0.0), world, PERIOD)
    assert [each for _, _, each in world.shared] == [body]
    assert store.ledger.spent_total() == spent


RATED: dict[str, dict[str, float]] = {
    "none": {},
    "one": {"item 03": 5.0},
    "all": {f"item {place:02d}": 1.0 + place % 5 for place in range(N_ITEMS)},
}


def watched(ratings: dict[str, float], level: Any, hide: bool = False) -> Surprise:
    """What others see of a device with these ratings, until its task is over."""
    store, world = make_store(ratings, policy=SHARING), Surprise()
    if hide:
        store.sharing.put_all("item", dict.fromkeys(ratings, "hidden"))
    store.set_sharing_level(level)
    world.publish(task=TASK)
    live(reporter(store, world, uniform=drawn(0.3, 0.6)), world, PERIOD + 200)
    return world


def test_who_hides_everything_is_seen_the_same_whatever_is_rated() -> None:
    seen = [watched(ratings, "hidden").seen for ratings in RATED.values()]
    seen += [watched(ratings, "seen", hide=True).seen for ratings in RATED.values()]
    seen += [watched({}, "open").seen]
    assert all(each == seen[0] for each in seen)
    assert "report" in [name for _, name, _ in seen[0]]
    assert "shared" not in [name for _, name, _ in seen[0]]


def test_hidden_ratings_beside_shown_ones_are_not_seen() -> None:
    """Neither what is sent, nor when, nor how much of it."""
    seen = []
    for hidden in ([], ["item 01"], [f"item {place:02d}" for place in range(1, N_ITEMS, 2)]):
        ratings = dict.fromkeys(STARS, 4.0) | dict.fromkeys(hidden, 1.0)
        store, world = make_store(ratings, policy=SHARING), Surprise()
        store.sharing.put_all("item", dict.fromkeys(hidden, "hidden"))
        store.set_sharing_level("seen")
        world.publish(task=TASK)
        live(reporter(store, world, uniform=drawn(0.3, 0.6)), world, PERIOD + 200)
        message = decode(world.shared[0][2])
        assert isinstance(message, SharedContribution)
        bits = message.bits
        seen.append((world.seen, bits.items.tolist(), bits.units.tolist()))
        assert world.sums(TASK) == plain_sums(TASK, dict.fromkeys(hidden, 1.0))
    assert seen[0] == seen[1] == seen[2]


_AHEAD = 60 / (0.9 * (PERIOD - 10))  # the report is looked at again when what is shown leaves


@pytest.mark.parametrize(
    "moments",
    [(0.0, 0.0), (0.5, 0.5), (0.6, 0.3), (0.001, 0.9), (0.5 + _AHEAD, 0.5), (0.5, 0.5 + _AHEAD)],
)
@pytest.mark.parametrize("takes", [0.1, 2.0])
def test_no_moment_tells_how_long_ratings_took(
    takes: float, moments: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slowly(takes, moments, monkeypatch) == slowly(0.0, moments, monkeypatch)


def slowly(
    takes: float, moments: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[float, str, int]]:
    """What others see if every look at ratings takes so many seconds."""
    store, world = make_store(policy=SHARING), Surprise()
    store.sharing.put("item", FIRST, "hidden")
    store.set_sharing_level("seen")

    def slow(real: Any) -> Any:
        def slower(*args: Any, **options: Any) -> Any:
            world.now += takes
            return real(*args, **options)

        return slower

    with monkeypatch.context() as patched:
        for module, names in (
            (reports, ("split_report", "paying_ratings", "choose_hidden")),
            (shared, ("choose_shown", "showing_ratings")),
        ):
            for name in names:
                patched.setattr(module, name, slow(getattr(module, name)))
        world.publish(task=TASK)
        device = reporter(store, world, uniform=drawn(*moments))
        while world.now < START + PERIOD:
            wait = device.step()
            if len(world.seen) == 6:
                store.rate("elsewhere", 3.0)  # so that everything is looked at again
            world.now += wait
    assert {"report", "shared"} <= {name for _, name, _ in world.seen}
    return world.seen
