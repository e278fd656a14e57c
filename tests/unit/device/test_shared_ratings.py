"""What owners show beside their reports: once, paid once, and nothing of what they hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.protocol import SharedContribution, decode
from hdpmf.private.device.consent import consents, give_answer, pending
from hdpmf.private.device.disclosures.bounds import total_spending
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.disclosures.limits import SHOWN_PART
from hdpmf.private.device.disclosures.receipts import all_receipts
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import live

from .reporting_world import (
    N_ITEMS,
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
    reporter,
    survey,
)
from .test_reporting_faults import _live_with_a_kill

SHARING = replace(POLICY, methods=("hdp-share",))
TASK = make_task(survey(sharing=True))
FILMS = "https://films.example"
ITEMS = {item: int(item.split()[1]) for item in STARS}


def sharer(
    level: Any = "seen", marked: tuple[str, ...] = (), ratings: Any = None, **options: Any
) -> DeviceStore:
    store = make_store(ratings, **({"policy": SHARING} | options))
    store.sharing.put_all("item", dict.fromkeys(marked, "hidden"))
    store.set_sharing_level(level)
    return store


def lived(store: DeviceStore, world: World | None = None, moment: float = 0.25) -> World:
    world = World() if world is None else world
    if "task" not in world.index:
        world.publish(task=TASK)
    live(reporter(store, world, moment), world, PERIOD + 200)
    return world


def later() -> tuple[World, bytes]:
    """A world with another task, when the first one is over."""
    world = World()
    world.now = float(START + 10 * PERIOD)
    begin = int(world.now)
    task = make_task(survey(sharing=True), begin=begin, end=begin + PERIOD)
    world.publish(task=task)
    return world, task


def shown(world: World) -> SharedContribution:
    (body,) = {body for _, _, body in world.shared}
    message = decode(body)
    assert isinstance(message, SharedContribution)
    return message


def by_run(store: DeviceStore) -> dict[str, list[str]]:
    """Actions of each run, by the view of its entries."""
    found: dict[str, list[str]] = {}
    for entry in store.ledger.entries():
        found.setdefault(entry.view, []).append(entry.action)
    return found


def test_a_hidden_person_sends_what_hdp_sum_sends_and_nothing_else() -> None:
    plain = make_store()
    before = World()
    before.publish(task=make_task())
    live(reporter(plain, before, 0.25), before, PERIOD + 200)
    store = sharer("hidden")
    world = lived(store)
    assert world.shared == []
    assert world.sums(TASK) == plain_sums(TASK, STARS)
    sizes = [size for _, size in world.requests]
    assert sizes == [size for _, size in before.requests]
    assert actions(store) == actions(plain) == ["agreed", "sent"]
    assert store.ledger.entries()[0].method == "hdp-share"


def test_seen_ratings_are_one_bit_each_and_not_in_the_sums() -> None:
    store = sharer("seen")
    world = lived(store)
    message = shown(world)
    assert sorted(message.bits.items.tolist()) == sorted(ITEMS.values())
    assert (message.bits.units == 64).all()
    assert set(message.bits.senders.tolist()) == {0}
    assert len(message.opened.items) == 0
    assert not any(world.sums(TASK))
    assert by_run(store) == {"two-servers": ["agreed", "sent"], "messages": ["agreed", "sent"]}
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    (run,) = [run for run in past_runs(store) if run.entries[0].view == "messages"]
    assert sorted(run.seen_items) == sorted(STARS)
    assert run.open_items == ()
    assert total_spending(store.ledger).proved


def test_open_ratings_leave_as_they_are_and_pay_nothing() -> None:
    store = sharer("open")
    message = shown(lived(store))
    said = dict(zip(message.opened.items.tolist(), message.opened.steps.tolist(), strict=True))
    assert said == {ITEMS[item]: round(value) - 1 for item, value in STARS.items()}
    assert len(message.bits.items) == 0
    assert store.ledger.spent_total() == 0
    assert total_spending(store.ledger).pure == 0
    entry = next(entry for entry in store.ledger.entries() if entry.view == "messages")
    assert (entry.seen, entry.opened, entry.paid) == (0, len(STARS), 0.0)
    receipt = next(one for one in all_receipts(store) if one.terms.view == "messages")
    assert f"Open: {len(STARS)} ratings" in receipt.happened[0].words
    assert FILMS in receipt.happened[0].words
    assert [(piece.answer, piece.sha256) for piece in receipt.left] == [(201, None)]


def test_marked_items_of_who_shares_are_in_the_sums_only() -> None:
    first, *others = STARS
    store = sharer("seen", (first,))
    world = lived(store)
    assert sorted(shown(world).bits.items.tolist()) == sorted(ITEMS[item] for item in others)
    assert world.sums(TASK) == plain_sums(TASK, {first: STARS[first]})
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))


def test_who_has_nothing_to_show_looks_like_who_hides_everything() -> None:
    seen = []
    for store in (sharer("hidden"), sharer("seen", tuple(STARS)), sharer("open", ratings={})):
        world = lived(store)
        seen.append(([size for _, size in world.requests], world.shared))
        assert not store.ledger.entries()[-1].seen
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == []


def test_nothing_is_shown_to_who_does_not_welcome_it() -> None:
    store = sharer("open", policy=POLICY)
    world = World()
    world.publish(task=make_task())
    assert lived(store, world).shared == []
    assert world.sums(make_task()) == plain_sums(make_task(), STARS)


@pytest.mark.parametrize("level", ["hidden", "seen", "open"])
def test_what_was_shown_is_not_shown_again_and_enters_no_sum(level: Any) -> None:
    for first in ("seen", "open"):
        store = sharer(first)
        lived(store)
        spent = store.ledger.spent_total()
        store.set_sharing_level(level)
        world, task = later()
        lived(store, world)
        assert world.shared == []
        assert not any(world.sums(task))
        assert store.ledger.spent_total() == spent


@pytest.mark.parametrize("says", [["silent", "silent"], ["unreachable", 503], [404, "silent"]])
def test_the_same_bytes_until_they_are_taken_paid_once(says: list[int | str]) -> None:
    store = sharer("seen")
    world = World()
    world.says = says
    lived(store, world)
    assert len({body for _, _, body in world.shared}) == 1
    assert by_run(store)["messages"] == ["agreed", "sent"]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    receipt = next(one for one in all_receipts(store) if one.terms.view == "messages")
    assert len(receipt.left) == 1
    assert receipt.left[0].answer == 201


def test_a_recommender_that_cannot_be_reached_gets_nothing_and_costs_nothing() -> None:
    store = sharer("seen")
    world = World()
    world.says = ["unreachable"] * 100
    lived(store, world)
    assert world.shared == []
    assert by_run(store)["messages"] == ["agreed", "returned"]
    assert store.ledger.spent_total() == 0


def test_one_agreement_is_for_both_and_ends_with_the_later() -> None:
    store = sharer("seen", policy=replace(SHARING, ask=True))
    world = World()
    world.publish(task=TASK)
    device = reporter(store, world, 0.25)
    device.step()
    (question,) = pending(store)
    assert question.terms.method == "hdp-share"
    give_answer(store, question.key, "once")
    device.poll_soon()
    world.says = ["unreachable"]
    live(device, world, PERIOD + 200)
    assert len(world.uploads) == len(world.shared) == 1
    assert consents(store) == []


@pytest.mark.slow
def test_a_kill_anywhere_pays_once_and_shows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for reports: before the n-th commit, or right after it, for every n."""
    first, *others = STARS
    for after in (False, True):
        for fatal in range(1, 60):
            path = tmp_path / f"{fatal}{after}.db"
            sharer("seen", (first,), path=path).close()
            world = World()
            world.publish(task=TASK, facts=make_facts())
            world.says = [503]
            killed = _live_with_a_kill(path, world, fatal, after, monkeypatch)
            with DeviceStore.open(path) as store:
                live(reporter(store, world, 0.25), world, PERIOD + 200)
                items = sorted(shown(world).bits.items.tolist())
                assert items == sorted(ITEMS[item] for item in others), (fatal, after)
                assert world.sums(TASK) == plain_sums(TASK, {first: STARS[first]})
                assert by_run(store)["messages"] == ["agreed", "sent"], (fatal, after)
                assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
            if not killed:
                break
        else:
            pytest.fail("the device made more commits than were killed")
        assert fatal > 8


@pytest.mark.parametrize(
    "limits", [{"max_ratings": 2}, {"max_total": 2.0}, {"max_ratings": 2, "max_total": 1.0}, {}]
)
def test_what_is_shown_depends_on_no_hidden_rating(limits: dict[str, Any]) -> None:
    """Limits on a person's ratings are reached by what is shown as if nothing else were there."""
    rng = np.random.default_rng(3)
    items = [f"item {place:02d}" for place in range(N_ITEMS)]
    hidden, visible = items[:6], items[6:]
    found = set()
    for _ in range(6):
        own = [item for item in hidden if rng.random() < 0.5]
        values = {item: float(rng.integers(1, 6)) for item in (*own, *visible)}
        policy = replace(SHARING, **limits)
        store = make_store(values, policy=policy)
        store.sharing.put_all("item", dict.fromkeys(hidden, "hidden"))
        store.set_sharing_level("seen")
        message = shown(lived(store))
        found.add(len(message.bits.items))
        assert not set(message.bits.items.tolist()) & set(range(6))
        per_run = policy.max_ratings or N_ITEMS
        total = policy.max_total or np.inf
        assert len(message.bits.items) == min(6, per_run, int(SHOWN_PART * total / 0.5))
    assert len(found) == 1


@pytest.mark.parametrize("max_total", [1.25, 2.0, 3.0])
def test_what_hidden_ratings_spent_before_does_not_show(max_total: float) -> None:
    """Once, hidden ratings that had used up ``max_total`` kept others from being shown."""
    new = ("item 07", "item 09")
    seen = []
    for n_hidden in range(6):
        items = [f"item {place:02d}" for place in range(N_ITEMS)]
        hidden = dict.fromkeys([item for item in items if item not in new][:n_hidden], 3.0)
        store = make_store(hidden, policy=replace(SHARING, max_total=max_total))
        lived(store)
        assert store.ledger.spent_total() == pytest.approx(min(0.5 * n_hidden, max_total))
        for item in new:
            store.rate(item, 4.0)
        most = store.ledger.limits.most_together(store.policy, with_user="me")
        over = store.ledger.spent_total() - (1 - SHOWN_PART) * max_total
        assert most == pytest.approx(max_total + max(over, 0.0))
        store.set_sharing_level("seen")
        assert store.ledger.limits.most_together(store.policy) == most
        world, _ = later()
        lived(store, world)
        bits = shown(world).bits
        seen.append(list(zip(bits.items.tolist(), bits.units.tolist(), strict=True)))
        assert sum(bits.units) == min(2 * 64, int(SHOWN_PART * max_total / 0.5 * 64))
        assert store.ledger.spent_total() <= most + 1e-6
    # Tags are of each store: which of the two is cut short differs between stores.
    assert len({tuple(sorted(units for _, units in one)) for one in seen}) == 1


def test_who_was_pushed_out_of_a_sum_is_not_shown_later() -> None:
    """A hidden rating pushes others out of sums; were they shown later, it would be seen there."""
    items = [f"item {place:02d}" for place in range(N_ITEMS)]
    for n_items in (3, 8):  # below the limit, and above
        store = make_store(
            dict.fromkeys(items[:n_items], 3.0), policy=replace(SHARING, max_total=2)
        )
        lived(store)
        store.set_policy(replace(SHARING, max_total=50.0))
        store.set_sharing_level("seen")
        world, task = later()
        lived(store, world)
        assert world.shared == []
        assert not any(world.sums(task))


def test_who_shares_from_the_start_spends_no_more_than_the_total() -> None:
    items = [f"item {place:02d}" for place in range(N_ITEMS)]
    marked = tuple(items[: N_ITEMS // 2])
    store = sharer("seen", marked, dict.fromkeys(items, 3.0), policy=replace(SHARING, max_total=3))
    world = lived(store)
    assert sum(shown(world).bits.units) == 3 * 64
    assert store.ledger.spent_total() == pytest.approx(3.0)


def test_forgetting_the_run_shows_nothing_and_gives_back() -> None:
    store = sharer("seen")
    world = World()
    world.publish(task=TASK)
    device = reporter(store, world, 0.5)
    live(device, world, 60)
    assert by_run(store)["messages"] == ["agreed"]
    store.forget()
    live(device, world, PERIOD)
    assert (world.uploads, world.shared) == ([], [])
    assert by_run(store)["messages"] == ["agreed", "returned"]
    assert store.ledger.spent_total() == 0
