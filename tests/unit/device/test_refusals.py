"""What a device refused is kept for its owner, whatever a recommender does to wear the disk or
to fill it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol import Refusal
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import StorageError
from hdpmf.private.device.consent import give_answer, pending
from hdpmf.private.device.disclosures.data_export import disclosures
from hdpmf.private.device.disclosures.refusals import (
    BURST,
    EVERY,
    MOST_KEPT,
    RefusalBook,
    load_refusals,
    merged,
)
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import RefusalRecord, Refusals
from tests.world import RUN, Clock, Device, ask, envelope

from . import federated, reporting_world
from .conftest import damage
from .federated import agent_for, part, plan_for, terms_for


def store_with(**fields: Any) -> DeviceStore:
    return federated.make_store(ratings=part([4]), **fields)


def count_writes(store: DeviceStore, monkeypatch: pytest.MonkeyPatch) -> list[Refusals]:
    written: list[Refusals] = []
    whole = store.tables.refusals.put

    def put(row: Refusals) -> None:
        written.append(row)
        whole(row)

    monkeypatch.setattr(store.tables.refusals, "put", put)
    return written


def test_a_refusal_is_kept_with_what_was_asked():
    store = store_with(policy=Policy())
    agent = Device(store, recommender="films.example:1")
    for _ in range(3):
        assert ask(agent, terms_for("mf")) == Refusal(reason="policy")
    agent.answer(b"no message at all")
    first, second = load_refusals(store).refused
    assert (first.recommender, first.reason, first.count) == ("films.example:1", "policy", 3)
    assert (first.method, first.view, first.epsilon, first.run) == (
        "mf",
        "messages",
        0.5,
        RUN.hex(),
    )
    assert "mf" in first.words
    assert first.first <= first.last
    assert (second.reason, second.method, second.epsilon, second.run, second.count) == (
        "protocol",
        "",
        0.0,
        "",
        1,
    )
    assert store.ledger.entries() == []


def test_what_breaks_terms_that_were_agreed_on_is_kept_with_them():
    store = store_with()
    agent = agent_for(store, recommender="films.example")
    ask(agent, terms_for())
    assert ask(agent, plan_for(epsilon=5.0)) == Refusal(reason="protocol")
    (kept,) = load_refusals(store).refused
    assert (kept.method, kept.view, kept.epsilon, kept.run) == ("hdpmf", "messages", 0.5, RUN.hex())


def test_a_flood_is_merged_bounded_counted_and_written_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
):
    store, clock = store_with(), Clock(0.0)
    RefusalBook(store, "quiet.example").note("policy", "the only one")
    book = RefusalBook(store, "loud.example", clock)
    written = count_writes(store, monkeypatch)
    for number in range(2000):
        book.note("protocol", f"nonsense {number}")
        book.note("protocol", "the same again")
    assert len(written) == BURST
    clock.now += EVERY
    book.note("protocol", "the last")
    assert len(written) == BURST + 1
    kept = load_refusals(store)
    loud = [each for each in kept.refused if each.recommender == "loud.example"]
    assert len(loud) == MOST_KEPT
    assert loud[-1].words == "the last"
    assert sum(each.count for each in loud) + kept.dropped["loud.example"] == 4001
    (same,) = [each for each in loud if each.words == "the same again"]
    assert same.count == 2000
    assert [each.words for each in kept.refused if each.recommender == "quiet.example"] == [
        "the only one"
    ]
    assert "quiet.example" not in kept.dropped


def test_after_sixteen_there_is_one_write_a_minute(monkeypatch: pytest.MonkeyPatch):
    store, clock = store_with(), Clock(0.0)
    writes = count_writes(store, monkeypatch)
    book = RefusalBook(store, "https://films.example", clock)

    def flood(seconds: int) -> int:
        before = len(writes)
        for number in range(seconds):
            clock.now += 1.0
            book.note("policy", f"no {number}")
        return len(writes) - before

    assert flood(15) == 15
    assert [flood(60) for _ in range(3)] == [2, 1, 1]  # the sixteenth, and one a minute
    clock.now += 86_400.0
    assert flood(50) == 16  # and no more after a quiet day


def test_what_was_not_written_in_a_flood_is_written_at_the_end():
    store, clock = store_with(), Clock(0.0)
    book = RefusalBook(store, "loud.example", clock)
    for number in range(BURST + 5):
        book.note("busy", f"number {number}")
    assert len(load_refusals(store).refused) == BURST
    book.settle()
    assert [each.words for each in load_refusals(store).refused] == [
        f"number {n}" for n in range(BURST + 5)
    ]
    book.settle()
    assert sum(each.count for each in load_refusals(store).refused) == BURST + 5


def test_long_words_are_cut():
    store = store_with()
    RefusalBook(store, "films.example").note("protocol", "x" * 10_000)
    assert len(load_refusals(store).refused[0].words) == 300


def test_a_full_disk_changes_no_answer(monkeypatch: pytest.MonkeyPatch):
    requests = [
        envelope(terms_for("mf")),
        b"nonsense",
        envelope(plan_for(), 3),
        envelope(terms_for("hdp-sum", "sums")),
    ]
    well = [Device(store_with(policy=Policy())).answer(request) for request in requests]
    store = store_with(policy=Policy())
    agent = Device(store)

    def full(row: Refusals) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(store.tables.refusals, "put", full)
        assert [agent.answer(request) for request in requests] == well
    assert load_refusals(store).refused == ()
    assert agent.answer(requests[0]) == well[0]
    assert len(load_refusals(store).refused) == 4  # those of before come along


def test_nobody_waits_for_a_refusal_to_be_written(tmp_path: Path):
    path = tmp_path / "me.sqlite"
    store_with(path=path, policy=Policy()).close()
    with DeviceStore.open(path) as store:
        agent = Device(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # the owner is importing a large file
        begun = time.monotonic()
        assert isinstance(ask(agent, terms_for("mf")), Refusal)
        assert time.monotonic() - begun < 20  # others' commits are waited for up to 30 seconds
        other.execute("ROLLBACK")
        other.close()
        assert load_refusals(store).refused == ()
        agent.settle()
        assert len(load_refusals(store).refused) == 1
        assert store._database.execute("PRAGMA busy_timeout") == [(30_000,)]


def test_it_is_sealed_and_stays_when_ratings_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "me.sqlite"
    with DeviceStore.create(path, passphrase="a long passphrase") as store:
        RefusalBook(store, "films.example").note("policy", "because of reasons")
        store.forget(ratings=True, model=True)
        assert [each.words for each in load_refusals(store).refused] == ["because of reasons"]
    for file in tmp_path.iterdir():
        assert b"because of reasons" not in file.read_bytes()
        assert b"films.example" not in file.read_bytes()


def test_nothing_in_it_depends_on_ratings():
    found = []
    for users in ([4], [7], []):
        store = federated.make_store(ratings=part(users), users=1)
        agent = agent_for(store, recommender="films.example")
        ask(agent, terms_for("hdp-sum", "sums"))
        ask(agent, terms_for(epsilon=50.0))
        ask(agent, terms_for())
        ask(agent, plan_for(n_items=7))
        agent.answer(b"x")
        entries = disclosures(store)["refusals"]["refused"]
        found.append([each | {"first": "", "last": ""} for each in entries])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 4


def test_a_damaged_list_is_said():
    store = store_with()
    store.tables.refusals.put(Refusals())
    damage(store, "refusals")
    with pytest.raises(StorageError, match="refusals cannot be read: the store is damaged"):
        load_refusals(store)
    RefusalBook(store, "films.example").note("policy", "this changes no answer")


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


def test_what_is_no_task_has_no_terms():
    store, world = servers_store(), reporting_world.World()
    world.publish(task=reporting_world.make_task(), facts=b"no facts")
    reporting_world.reporter(store, world).step()
    (kept,) = load_refusals(store).refused
    assert (kept.reason, kept.method, kept.view, kept.run) == ("protocol", "", "", "")


def test_an_index_that_is_none_is_kept():
    store, world = servers_store(), reporting_world.World()
    world.files["index.json"] = b"{"
    reporting_world.reporter(store, world).step()
    (kept,) = load_refusals(store).refused
    assert (kept.reason, kept.method, kept.run) == ("protocol", "", "")


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


def test_a_full_disk_does_not_change_what_is_reported(monkeypatch: pytest.MonkeyPatch):
    other = Servers(leader=reporting_world.SERVERS.helper, helper=reporting_world.SERVERS.leader)
    sizes = []
    for broken in (False, True):
        store, world = servers_store(), reporting_world.World()
        if broken:

            def put(row: Refusals) -> None:
                raise StorageError("the disk is full")

            monkeypatch.setattr(store.tables.refusals, "put", put)
        device = reporting_world.reporter(store, world)
        world.publish(task=reporting_world.make_task(servers=other))
        reporting_world.live(device, world, 100)
        world.publish(task=reporting_world.make_task())
        reporting_world.live(device, world, reporting_world.PERIOD)
        assert len(world.uploads) == 1
        assert len(load_refusals(store).refused) == (0 if broken else 1)
        sizes.append(world.requests)
    assert sizes[0] == sizes[1]


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
