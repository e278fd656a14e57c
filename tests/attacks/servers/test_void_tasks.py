"""Budget comes back for reports that nobody can learn from, and for no others: both servers sign
that nothing was released, and a server that has signed releases nothing, whatever is brought back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.common.protocol import Grouping
from hdpmf.common.protocol.task import (
    MOST_VOID,
    VoidTask,
    encode_void_tasks,
    read_void_tasks,
    task_id,
    void_statement,
)
from hdpmf.errors import DapError, PrivacyError, ProtocolError, TransportError
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.disclosures.receipts import receipt_of
from hdpmf.private.device.pinned_servers import pin_servers
from hdpmf.untrusted.aggregator.released_batches import OldDatabaseError
from tests.attacks.servers.test_recorded_uploads import Rotating, owner
from tests.unit.aggregator.server_pair import BEGIN, END, HOUR, WHOLE, Interval, Pair
from tests.unit.device.reporting_world import (
    N_ITEMS,
    PERIOD,
    START,
    actions,
    make_task,
    reporter,
    survey,
)
from tests.world import live

ROLES = ("leader", "helper")


def servers_of(pair: Any) -> tuple[Any, Any]:
    return pair.leader, pair.helper


def voided(pair: Any, task: bytes) -> VoidTask:
    """A task that both servers give up."""
    leader, helper = (server.void_task(task) for server in servers_of(pair))
    return VoidTask(task=task, leader=leader, helper=helper)


# The servers


@pytest.mark.parametrize("moment", ["uploaded", "counted", "expired"])
def test_a_task_that_is_void_is_never_summed(tmp_path: Path, moment: str) -> None:
    pair = Pair(tmp_path, rotating=True)
    task = pair.add()
    pair.upload(task, [0, 1, 2])
    if moment != "uploaded":
        pair.aggregate_all()
    for database in pair.databases:
        database.close()
    copies = tmp_path.with_name(f"{tmp_path.name}-copies")
    shutil.copytree(tmp_path, copies)
    pair.restart()
    if moment == "expired":
        pair.clock.now = END + pair.rules.keep
        for server in servers_of(pair):
            assert server.collect_garbage() == 1
    found = voided(pair, task)
    found.check(pair.servers)
    assert voided(pair, task) == found  # asked again, the same
    for _ in range(2):
        for server in servers_of(pair):
            counts = server.counts(task)
            assert (counts.waiting, counts.counted, counts.batches) == (0, 0, 0)
        with pytest.raises(DapError, match="the task is over"):
            pair.upload(task, [3])
        with pytest.raises(DapError, match="the task is over"):
            pair.ask(task)
        pair.restart()
        pair.clock.now = BEGIN + 10
    # Databases and keys of before come back, of one server and then of both.
    for role, error in (("leader", PrivacyError), ("helper", OldDatabaseError)):
        for database in pair.databases:
            database.close()
        for file in tmp_path.glob(f"{role}.sqlite-*"):
            file.unlink()
        for file in copies.glob(f"{role}.sqlite*"):
            shutil.copy(file, tmp_path)
        for file in (copies / role).glob("batch-keys"):
            shutil.copy(file, tmp_path / role)
        pair.reopen()
        if role == "helper":
            with pair.databases[0].write() as connection:  # the leader has forgotten it again
                connection.execute(sa.text("DELETE FROM released"))
            pair.aggregate_all()
        for interval in (WHOLE, Interval(BEGIN, HOUR)):
            with pytest.raises(error, match=r"stays closed|an old copy"):
                pair.ask(task, interval)


@pytest.mark.parametrize("away", [False, True])
def test_a_server_does_not_sign_for_what_it_has_closed(tmp_path: Path, away: bool) -> None:
    """Also where the leader alone has closed it: an old database would not know what has left."""

    class Between:
        def __init__(self, helper: Any) -> None:
            self._helper = helper

        def __getattr__(self, name: str) -> Any:
            return getattr(self._helper, name)

        def aggregate_share(self, *request: bytes) -> bytes:
            if away:
                raise TransportError("away")
            return self._helper.aggregate_share(*request)  # type: ignore[no-any-return]

    pair = Pair(tmp_path, rotating=True, between=Between)
    task = pair.add()
    pair.upload(task, [0, 1, 2])
    pair.aggregate_all()
    for database in pair.databases:
        database.close()
    copies = tmp_path.with_name(f"{tmp_path.name}-copies")
    shutil.copytree(tmp_path, copies)
    pair.restart()
    interval = Interval(BEGIN, HOUR)  # a part of the task is enough
    if away:
        with pytest.raises(TransportError):
            pair.ask(task, interval)
    else:
        pair.collect(task, interval)
    closed = (pair.leader,) if away else servers_of(pair)
    for server in closed:
        with pytest.raises(DapError, match="a batch of the task is closed") as refused:
            server.void_task(task)
        assert refused.value.kind == Problem.BATCH_OVERLAP
    # Nor where the database has forgotten it.
    for role in ROLES[: len(closed)]:
        for database in pair.databases:
            database.close()
        newest = tmp_path / f"{role}.newest"
        shutil.copy(tmp_path / f"{role}.sqlite", newest)
        for file in tmp_path.glob("*.sqlite-*"):
            file.unlink()
        shutil.copy(copies / f"{role}.sqlite", tmp_path)
        pair.reopen()
        with pytest.raises(DapError, match="a batch of the task is closed"):
            servers_of(pair)[ROLES.index(role)].void_task(task)
        for database in pair.databases:
            database.close()
        shutil.copy(newest, tmp_path / f"{role}.sqlite")


def test_one_servers_word_is_not_enough(tmp_path: Path) -> None:
    pair = Pair(tmp_path, rotating=True)
    task, other = pair.add(), pair.add(pair.a_task(minimum=3))
    real, elsewhere = voided(pair, task), voided(pair, other)
    real.check(pair.servers)
    leader_key = pair.signing[0]
    for lie in (
        VoidTask(task=task, leader=real.leader),
        VoidTask(task=task, helper=real.helper),
        VoidTask(task=task, leader=real.leader, helper=real.leader),
        VoidTask(task=task, leader=real.helper, helper=real.helper),
        VoidTask(task=task, leader=real.leader, helper=leader_key.sign(void_statement(task))),
        VoidTask(task=task, leader=real.leader, helper=elsewhere.helper),
        VoidTask(task=other, leader=real.leader, helper=real.helper),
        VoidTask(task=task, leader=real.leader, helper=leader_key.sign(task)),
    ):
        with pytest.raises(ProtocolError, match="has not signed that task"):
            lie.check(pair.servers)
    with pytest.raises(ProtocolError):
        read_void_tasks(b"\x91\x01")
    many = (real,) * MOST_VOID
    assert read_void_tasks(encode_void_tasks(many)) == many


def test_servers_of_version_1_0_0_sign_nothing() -> None:
    pair = Pair()
    task = pair.add()
    with pytest.raises(DapError, match="no signing key"):
        pair.helper.void_task(task)
    with pytest.raises(ProtocolError):
        VoidTask(task=task, leader=bytes(64), helper=bytes(64)).check(pair.servers)


# Devices


def spent(store: Any) -> float:
    return float(store.ledger.spent_total())


def test_a_device_gets_back_what_a_void_task_cost_once(tmp_path: Path) -> None:
    world = Rotating(tmp_path)
    store = owner(world)
    world.show()
    device = reporter(store, world, 0.2)
    live(device, world, PERIOD + 100)
    assert actions(store) == ["agreed", "sent"]
    assert spent(store) > 0
    assert world.counted() == 1
    world.publish(void=encode_void_tasks((voided(world.pair, world.number),)))
    live(device, world, 1000)
    assert actions(store) == ["agreed", "sent", "returned"]
    assert spent(store) == 0
    assert store.ledger.charged() == []
    (run,) = past_runs(store)
    assert (run.paid, run.cost, run.failed) == (None, None, "")
    assert run.words()[0].startswith("A report was sent, and what it cost was given back: ")
    receipt = receipt_of(store, world.number.hex())
    assert (receipt.given_back, len(receipt.left)) == (1.0, 1)
    assert any("What it cost is given back" in line for line in world.logged)
    device = reporter(store, world, 0.2)  # a restart does not give it back again
    live(device, world, 1000)
    assert actions(store) == ["agreed", "sent", "returned"]
    # The same ratings pay in the next task, once.
    begin = int(world.now) // 3600 * 3600 + 3600
    again = make_task(servers=world.pair.servers, enrolled=False, begin=begin, end=begin + PERIOD)
    world.pair.helper.add_task(again)
    world.pair.leader.add_task(again)
    world.publish(task=again)
    world.show()
    live(device, world, begin + PERIOD - world.now)
    assert actions(store) == ["agreed", "sent", "returned", "agreed", "sent"]
    assert (
        0
        < store.ledger.paid_in(store.ledger.entries()[-1].run, store.ratings()).max()
        <= 1.0 + 1e-9
    )


def test_a_report_that_is_under_way_is_given_up_with_its_task(tmp_path: Path) -> None:
    world = Rotating(tmp_path)
    store = owner(world)
    world.show()
    world.otherwise = 503  # it has left, and nobody says that it was taken
    device = reporter(store, world, 0.2)
    while not world.uploads:
        world.now += min(device.step(), 5.0)
    world.publish(void=encode_void_tasks((voided(world.pair, world.number),)))
    live(device, world, 1000)
    assert actions(store) == ["agreed", "sent", "returned"]
    sent = len(world.uploads)
    live(device, world, START + PERIOD - world.now)
    assert len(world.uploads) == sent
    assert spent(store) == 0


@pytest.mark.parametrize("lie", ["the helper has not signed", "another task", "other servers"])
def test_a_recommender_and_a_leader_give_nothing_back(tmp_path: Path, lie: str) -> None:
    """They have the sum, and say that the task is void: budget would be spent twice."""
    world = Rotating(tmp_path)
    store = owner(world)
    world.show()
    device = reporter(store, world, 0.2)
    live(device, world, PERIOD + 100)
    said = void_statement(world.number)
    leader, helper = (key.sign(said) for key in world.pair.signing)
    if lie == "the helper has not signed":
        helper = world.pair.signing[0].sign(said)
    elif lie == "another task":
        helper = world.pair.signing[1].sign(void_statement(bytes(32)))
    else:  # the owner has pinned others since, who sign for what they never saw
        (tmp_path / "others").mkdir()
        others = Rotating(tmp_path / "others").pair
        pin_servers(store, others.servers, new=True)
        leader, helper = (key.sign(said) for key in others.signing)
    world.publish(
        void=encode_void_tasks((VoidTask(task=world.number, leader=leader, helper=helper),))
    )
    before = spent(store)
    live(device, world, 1000)
    assert actions(store) == ["agreed", "sent"]
    assert spent(store) == before > 0


GROUPING = Grouping(
    scores=np.linspace(-64, 64, N_ITEMS).astype(np.int64), heads=np.array([0, 4, 8])
)
LABELLED = survey(labels=True, epsilon=0.5)


def counts_and_labels(world: Rotating) -> tuple[bytes, bytes]:
    """The two tasks of a survey by taste labels, at both servers."""
    these: dict[str, Any] = {"servers": world.pair.servers, "enrolled": False}
    later = {"begin": START + PERIOD, "end": START + 2 * PERIOD}
    tasks = make_task(LABELLED, **these), make_task(LABELLED, GROUPING, **these, **later)
    for task in tasks:
        world.pair.helper.add_task(task)
        world.pair.leader.add_task(task)
    return tasks


@pytest.mark.parametrize("when", ["before labels", "labels under way", "after labels"])
def test_counts_are_not_free_for_who_has_labels(tmp_path: Path, when: str) -> None:
    """Both tasks are paid by the first: giving that back would make the second one free."""
    world = Rotating(tmp_path)
    counts, labels = counts_and_labels(world)
    store = owner(world)
    world.publish(task=counts)
    world.show()
    device = reporter(store, world, 0.2)
    live(device, world, PERIOD)
    assert actions(store) == ["agreed", "sent"]
    void = encode_void_tasks((voided(world.pair, task_id(counts)),))
    if when == "before labels":
        world.publish(void=void)
        live(device, world, 1000)
        assert actions(store) == ["agreed", "sent", "returned"]
        world.publish(task=labels)
        live(device, world, PERIOD)
        assert any("was not counted here" in line for line in world.logged)
        assert actions(store) == ["agreed", "sent", "returned"]
        assert spent(store) == 0
        return
    world.publish(task=labels)
    if when == "labels under way":
        device.poll_soon()
        device.step()
        world.publish(void=void)
    live(device, world, START + 2 * PERIOD + 100 - world.now)
    world.publish(void=void)
    live(device, world, 1000)
    assert actions(store) == ["agreed", "sent", "agreed", "sent"]
    assert spent(store) > 0
