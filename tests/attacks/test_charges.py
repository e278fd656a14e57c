"""Attacks 7 and 20: what is charged though it never left, and what leaves though it was never
charged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import SecureSumServer, decode_to_recommender, propose
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.protocol import ItemFacts, Ready, Refusal, Reply, decode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.layout import counts_layout, survey_layout
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommender_state import MAX_OPEN
from tests.world import (
    RUN,
    Device,
    a_round,
    ask,
    enrol,
    envelope,
    opening,
    plan,
    survey,
    table,
    terms,
)

from .hostile import FEW, N_ITEMS, SMALL, STARS, device

TABLE = table()


def left(agent: Device) -> float:
    """The part of its budget that a rating has left."""
    store = agent.store
    found = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert np.ptp(found) == 0
    return float(found[0])


def crowd(policy: Policy, n: int = 4) -> list[Device]:
    agents = [device(STARS, policy=policy, catalogue=TABLE) for _ in range(n)]
    enrol(agents)
    return agents


def summed(
    agents: list[Device], length: int, number: int = 0, run: bytes = RUN, wide: bool = True
) -> None:
    """A secure sum over all of them."""
    pinned = agents[0].store.roster
    assert pinned is not None
    server = SecureSumServer(
        propose(pinned.roster, length, minimum=len(agents), wide=wide), pinned.roster
    )
    outgoing = server.advance()
    while outgoing:
        for place, message in outgoing.items():
            reply = decode(
                agents[place].answer(envelope(encode_sum(message), number, run=run, part="sum"))
            )
            assert isinstance(reply, Reply)
            assert reply.part == "sum", decode(reply.body)
            server.receive(place, decode_to_recommender(reply.body))
        outgoing = server.advance()


def ready(agent: Device, run: bytes = RUN, **fields: Any) -> None:
    ask(agent, terms("hdp-sum", "sums", TABLE, **fields), run=run)
    assert ask(
        agent, survey("A", TABLE, contributors=fields.get("sharing", 100)), run=run
    ) == Ready(number=0)


def test_a_sum_that_devices_do_not_agree_to_costs_nothing() -> None:
    """Three devices with default policies were asked, all said 'insists on 16', and all ratings
    were spent.
    """
    agents = [device(STARS, catalogue=TABLE) for _ in range(3)]
    enrol(agents, others=197)
    pinned = agents[0].store.roster
    assert pinned is not None
    for agent in agents:
        ready(agent)
        offer = propose(
            pinned.roster,
            survey_layout(survey("A", TABLE), 3).length,
            participants=[0, 1, 2],
            wide=True,
        )
        reply = decode(agent.answer(envelope(encode_sum(offer), 0, part="sum")))
        assert isinstance(reply, Reply)
        assert reply.part == "refusal"
        assert agent.store.ledger.spent_total() == 0
        ready(agent, b"the next run....")  # finds all of the budget
        assert left(agent) == 0.5
        back = [entry for entry in agent.store.ledger.entries() if entry.action == "returned"]
        assert [(entry.run, entry.part) for entry in back] == [(RUN.hex(), 1.0)]
        assert "no job" in back[0].words


def test_ratings_pay_when_masked_numbers_leave() -> None:
    agents = crowd(Policy(**SMALL))
    for agent in agents:
        ready(agent, **FEW)
        assert (agent.store.ledger.spent_total(), left(agent)) == (0, 0.5)  # held, not paid
    summed(agents, survey_layout(survey("A", TABLE), 4).length)
    for agent in agents:
        assert agent.store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
        # Another recommender's: with the first one each rating has answered.
        ready(Device(agent.store, recommender="another"), b"the next run....", **FEW)
        assert left(agent) == 0  # what left stays paid, whatever comes after
        # gives back what the second run held, and not what the first has taken
        agent.store.forget()
        assert left(agent) == 0.5


def test_who_was_ready_and_in_no_sum_pays_nothing() -> None:
    agent = crowd(Policy(**SMALL))[0]
    ready(agent, **FEW)
    facts = ItemFacts(
        catalogue=known_items(TABLE).fingerprint, mean=3.0, bias=np.zeros(N_ITEMS, np.float32),
        variance=np.ones(N_ITEMS, np.float32), popularity=np.ones(N_ITEMS, np.float32),
        patterns=np.zeros((N_ITEMS, 0), np.float32),
    )  # fmt: skip
    assert agent.learn(TABLE, facts)
    assert (agent.store.ledger.spent_total(), left(agent)) == (0, 1.0)


def test_rounds_that_never_came_are_given_back_with_the_proof() -> None:
    agents = crowd(Policy(methods=("hdpmf-paid",), **SMALL))
    for agent in agents:
        for message in (terms("hdpmf-paid", "sums", TABLE, **FEW), plan(TABLE), opening()):
            ask(agent, message)
    summed(agents, counts_layout(plan(TABLE), 4).length, wide=False)
    for agent in agents:
        assert ask(agent, a_round(1), 1) == Ready(number=1)
    summed(agents, N_ITEMS * 3, 1)
    bad = a_round(2, item_factors=np.full((N_ITEMS, 3), 1e30, np.float32))
    assert isinstance(ask(agents[0], bad, 2), Refusal)
    store = agents[0].store
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS) / 4)  # one of four rounds
    assert store.ledger.entries()[-1].part == 0.75
    assert "job 1" in store.ledger.entries()[-1].words
    assert isinstance(
        ask(agents[0], a_round(3), 3), Refusal
    )  # and no round of it is ever answered again


def test_a_wrong_round_after_the_counts_ends_the_run_for_good() -> None:
    """Giving all of it back was refused, because counts had left, and nothing was written down."""
    agents = crowd(Policy(methods=("hdpmf-paid",), **SMALL))
    for agent in agents:
        for message in (terms("hdpmf-paid", "sums", TABLE, **FEW), plan(TABLE), opening()):
            ask(agent, message)
    summed(agents, counts_layout(plan(TABLE), 4).length, wide=False)
    bad = a_round(1, item_factors=np.full((N_ITEMS, 3), 1e30, np.float32))
    store = agents[0].store
    assert isinstance(ask(agents[0], bad, 1), Refusal)
    assert isinstance(ask(Device(store), a_round(1), 1), Refusal)  # after a restart, too
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS) / 4)


@pytest.mark.parametrize(("sums", "paid"), [(0, 0.0), (1, 0.25), (3, 0.5)])
def test_ratings_that_are_removed_before_their_sum_pay_for_no_more(sums: int, paid: float) -> None:
    """A training went on without them, and they paid for all of it."""
    agents = crowd(Policy(methods=("hdpmf-paid",), **SMALL))
    for agent in agents:
        for message in (terms("hdpmf-paid", "sums", TABLE, **FEW), plan(TABLE), opening()):
            ask(agent, message)
    owner, item = agents[0].store, min(STARS)
    counts, rounds = counts_layout(plan(TABLE), 4).length, N_ITEMS * 3
    for number in range(4):
        if number == sums:
            owner.remove(item)
            agents[0] = Device(owner)  # a restart, after which the numbers are made again
        if number:
            for agent in agents:
                assert ask(agent, a_round(number), number) == Ready(number=number)
        summed(agents, rounds if number else counts, number, wide=bool(number))
    assert owner.ledger.spent_total() == pytest.approx(0.5 * len(STARS) * paid)
    assert [entry.part for entry in owner.ledger.entries() if entry.part] == [1 - paid]
    bad = a_round(4, item_factors=np.full((N_ITEMS, 3), 1e30, np.float32))
    for agent in agents[:2]:
        assert isinstance(ask(agent, bad, 4), Refusal)
    # Nothing more comes back at the end, and others pay for three of four rounds.
    assert owner.ledger.spent_total() == pytest.approx(0.5 * len(STARS) * paid)
    assert agents[1].store.ledger.spent_total() == pytest.approx(0.5 * len(STARS) * 0.75)


@pytest.mark.parametrize("where", ["charge", "save"])
def test_an_error_that_is_not_ours_fails_closed(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a MemoryError in the middle the next rounds were served with nothing spent."""
    policy = Policy(methods=("hdpmf",), allow_nominal=True, require_sums=False)
    agent = device(STARS, policy=policy, catalogue=TABLE)
    ask(agent, terms("hdpmf", "messages", TABLE))
    ask(agent, plan(TABLE, mechanism="stretch"))

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        target = agent.store.ledger if where == "charge" else agent.store.runs
        patched.setattr(target, where, broken)
        assert ask(agent, opening()) == Refusal(reason="unavailable")
    assert agent.store.ledger.spent_total() == 0
    assert isinstance(ask(agent, a_round(1, h=np.ones((N_ITEMS, 3), np.float32)), 1), Refusal)


def test_unfinished_runs_never_make_a_device_busy() -> None:
    """Eight of them, charged and left alone, kept a device away until its owner acted."""
    agents = crowd(Policy(**SMALL, epsilon=10.0, max_total=None))
    for number in range(2 * MAX_OPEN):
        run = bytes([number]) * 16
        for agent in agents:
            ready(agent, run, **FEW)
        summed(agents, survey_layout(survey("A", TABLE), 4).length, run=run)
    assert agents[0].store.ledger.spent_total() == pytest.approx(
        0.5 * len(STARS)
    )  # each rating answers once


def test_what_the_owner_forgets_is_given_back() -> None:
    agent = crowd(Policy(**SMALL))[0]
    ready(agent, **FEW)
    agent.store.forget()
    assert left(agent) == 1.0
