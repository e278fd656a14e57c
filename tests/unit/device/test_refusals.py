"""What a device refused is kept for its owner, whatever a recommender does to wear the disk or
to fill it.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.private.device.consent import give_answer, pending
from hdpmf.private.device.disclosures.refusals import (
    MOST_KEPT,
    RefusalBook,
    load_refusals,
    merged,
)
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import RefusalRecord, Refusals

from . import reporting_world


def test_long_words_are_cut():
    store = reporting_world.make_store()
    RefusalBook(store, "films.example").note("protocol", "x" * 10_000)
    assert len(load_refusals(store).refused[0].words) == 300


# By two servers


def servers_store(**changes: Any) -> DeviceStore:
    return reporting_world.make_store(
        policy=msgspec.structs.replace(reporting_world.POLICY, **changes)
    )


def test_a_task_that_the_policy_refuses_is_kept_once_however_often_it_is_looked_at():
    store, world = servers_store(servers=()), reporting_world.World()
    task = reporting_world.make_task()
    world.publish(task=task)
    reporting_world.live(reporting_world.reporter(store, world), world, 1000)
    (kept,) = load_refusals(store).refused
    assert (kept.recommender, kept.reason, kept.count) == ("https://films.example", "policy", 1)
    assert (kept.method, kept.view, kept.epsilon) == ("hdp-sum", "two-servers", 0.5)
    assert kept.run == reporting_world.task_id(task).hex()


def test_what_the_owner_does_not_want_is_kept_and_what_waits_for_the_owner_is_no_refusal():
    store, world = servers_store(ask=True), reporting_world.World()
    world.publish(task=reporting_world.make_task())
    device = reporting_world.reporter(store, world)
    reporting_world.live(device, world, 500)
    assert load_refusals(store).refused == ()
    give_answer(store, pending(store)[0].key, "never")
    world.publish(task=reporting_world.make_task(minimum=200))
    reporting_world.live(device, world, 500)
    (kept,) = load_refusals(store).refused
    assert "does not take part" in kept.words
    assert kept.count == 1  # however often it was looked at
    assert kept.by_owner


def test_a_task_that_is_refused_when_its_report_is_made_is_kept():
    store, world = servers_store(), reporting_world.World()
    world.publish(task=reporting_world.make_task())
    device = reporting_world.reporter(store, world, 0.5)
    device.step()
    store.set_policy(msgspec.structs.replace(store.policy, servers=()))
    reporting_world.live(device, world, reporting_world.PERIOD)
    assert world.uploads == []
    (kept,) = load_refusals(store).refused
    assert (kept.reason, kept.method) == ("policy", "hdp-sum")


# What is counted

_ENTRIES = st.lists(
    st.builds(
        RefusalRecord,
        recommender=st.sampled_from(["a", "b"]),
        reason=st.sampled_from(["policy", "protocol"]),
        words=st.integers(0, 120).map(str),
        epsilon=st.sampled_from([0.0, 0.5]),
        count=st.integers(1, 5),
    ),
    max_size=300,
)


@given(_ENTRIES, _ENTRIES)
def test_nothing_is_lost_uncounted(first: list[RefusalRecord], second: list[RefusalRecord]):
    kept = merged(Refusals(), first)
    kept = merged(msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Refusals), second)
    for name in ("a", "b"):
        own = [each for each in kept.refused if each.recommender == name]
        asked = sum(each.count for each in (*first, *second) if each.recommender == name)
        assert sum(each.count for each in own) + kept.dropped.get(name, 0) == asked
        assert len(own) <= MOST_KEPT
        assert len({each.key for each in own}) == len(own)
    if second:
        assert kept.refused[-1].key == second[-1].key
    json.dumps(msgspec.to_builtins(kept), allow_nan=False)
