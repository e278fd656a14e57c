"""Attack 14b: a recommender has devices draw who holds shares until it likes what was drawn, in
runs that are free.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import SecureSumServer, decode_to_recommender, propose
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import Advertisement, SumPlan
from hdpmf.common.protocol import Ready, Refusal, Reply, decode
from hdpmf.common.protocol.layout import survey_layout
from hdpmf.errors import ConfigError, SecureSumError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.session import DAY, Plans
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import Clock, Device, ask, enrol, envelope, survey, table, terms, waiting_sum

from .hostile import SMALL, STARS, device

TABLE = table()
N = 4
LENGTH = survey_layout(survey("A", TABLE), N).length
NOW = 1_800_000_000.0


def victim(
    clock: Clock, ratings: dict[str, float] = STARS, path: Any = ":memory:", **policy: Any
) -> Device:
    store = device(ratings, policy=Policy(**(SMALL | policy)), catalogue=TABLE, path=path).store
    return Device(store, recommender="first", clock=clock)


def unused(agent: Device, clock: Clock) -> int:
    """Plans of this day that the device drew for and that led to nothing."""
    return Plans(agent.store, "first", clock).open


def run_of(number: int) -> bytes:
    return b"%016d" % number


def begin(agent: Device, number: int, epsilon: float = 0.5) -> None:
    """A run, up to numbers that wait for a sum."""
    asked = terms("hdp-sum", "sums", TABLE, users=N, minimum=N, sharing=N, epsilon=epsilon)
    ask(agent, asked, run=run_of(number))
    made = survey("A", TABLE, contributors=N, epsilon=epsilon)
    assert ask(agent, made, run=run_of(number)) == Ready(number=0)


def offer(agent: Device) -> SumPlan:
    pinned = agent.store.roster
    assert pinned is not None
    return propose(pinned.roster, LENGTH, minimum=N, wide=True)


def drawn(agent: Device, number: int, plan: SumPlan | None = None) -> str | bytes:
    """What a device draws for a plan, or the word with which it refuses."""
    reply = decode(
        agent.answer(envelope(encode_sum(plan or offer(agent)), run=run_of(number), part="sum"))
    )
    assert isinstance(reply, Reply)
    if reply.part == "sum":
        told = decode_to_recommender(reply.body)
        assert isinstance(told, Advertisement)
        return told.draw
    refused = decode(reply.body)
    assert isinstance(refused, Refusal)
    return refused.reason


def attack(agent: Device, tries: int, per_run: int = 7, first: int = 0) -> list[str | bytes]:
    """Plan after plan, in runs that are broken off before anything has left."""
    answers = []
    for one in range(tries):
        if one % per_run == 0:
            begin(agent, first + one)
        answers.append(drawn(agent, first + one - one % per_run))
    return answers


def test_runs_that_take_nothing_do_not_make_a_device_draw_for_ever() -> None:
    clock = Clock(NOW)
    agent = victim(clock)
    enrol([agent], others=N - 1)
    limit = Policy().max_plans_per_day
    answers = attack(agent, limit + 30)
    assert len(set(answers[:limit])) == limit  # each a drawing of its own
    assert set(answers[limit:]) == {"secure-sum"}
    assert agent.store.ledger.spent_total() == 0
    clock.now += DAY - 1
    assert set(attack(agent, 5, first=500)) == {"secure-sum"}
    clock.now += 1
    assert "secure-sum" not in attack(agent, 5, first=600)


def test_nobody_is_starved_by_somebody_elses_plans() -> None:
    clock = Clock(NOW)
    agent = victim(clock, max_plans_per_day=3)
    enrol([agent], others=N - 1)
    assert attack(agent, 5)[3:] == ["secure-sum"] * 2
    other = Device(agent.store, recommender="second", clock=clock)
    assert "secure-sum" not in attack(other, 3, first=100)
    assert attack(other, 1, first=200) == attack(agent, 1, first=300) == ["secure-sum"]


def test_who_rated_nothing_refuses_as_others_do() -> None:
    clock = Clock(NOW)
    agents = [
        victim(clock, ratings, max_plans_per_day=4) for ratings in (STARS, {}, {"item 01": 3.0})
    ]
    for agent in agents:
        enrol([agent], others=N - 1)
    assert {
        tuple(answer == "secure-sum" for answer in attack(agent, 9, 2)) for agent in agents
    } == {(False,) * 4 + (True,) * 5}


def test_a_sum_that_comes_about_does_not_count() -> None:
    clock = Clock(NOW)
    agents = [victim(clock, max_plans_per_day=2) for _ in range(N)]
    enrol(agents)
    for number in range(5):
        for agent in agents:
            begin(agent, number, epsilon=0.01)
        if number == 2:
            assert len(drawn(agents[0], number)) == 32  # one is broken off and tried again
        server = SecureSumServer(offer(agents[0]), agents[0].store.roster.roster)  # type: ignore[union-attr]
        outgoing = server.advance()
        while outgoing:
            for place, message in outgoing.items():
                reply = decode(
                    agents[place].answer(
                        envelope(encode_sum(message), run=run_of(number), part="sum")
                    )
                )
                assert isinstance(reply, Reply)
                assert reply.part == "sum"
                server.receive(place, decode_to_recommender(reply.body))
            outgoing = server.advance()
        assert len(server.result.survivors) == N
    assert [unused(agent, clock) for agent in agents] == [1, 0, 0, 0]
    begin(agents[0], 5, epsilon=0.01)
    assert [drawn(agents[0], 5) == "secure-sum" for _ in range(2)] == [False, True]


def test_a_plan_that_is_refused_or_repeated_draws_nothing_and_does_not_count() -> None:
    clock = Clock(NOW)
    agent = victim(clock, max_plans_per_day=2)
    enrol([agent], others=N - 1)
    begin(agent, 0)
    for _ in range(5):
        short = propose(agent.store.roster.roster, LENGTH - 1, minimum=N, wide=True)  # type: ignore[union-attr]
        assert drawn(agent, 0, short) == "secure-sum"
    plan = offer(agent)
    assert len({drawn(agent, 0, plan) for _ in range(5)}) == 1
    assert unused(agent, clock) == 1


def test_after_the_refusal_there_is_no_sum_to_go_on_with() -> None:
    """What was drawn for a plan that is refused, or for the one before, answers nothing any
    more.
    """
    agent = victim(Clock(NOW), max_plans_per_day=1)
    enrol([agent], others=N - 1)
    begin(agent, 0)
    assert [drawn(agent, 0) == "secure-sum" for _ in range(2)] == [False, True]
    waiting = waiting_sum(agent, run_of(0))
    assert waiting is not None
    assert not waiting.joined


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_or_a_restart_forgets_nothing(tmp_path: Path) -> None:
    clock, path = Clock(NOW), tmp_path / "device.sqlite"
    agent = victim(clock, path=path, max_plans_per_day=4)
    enrol([agent], others=N - 1)
    agent.store.close()
    for first in (0, 100):  # two plans each, and killed when the second reply is there
        child = os.fork()
        if child == 0:
            with DeviceStore.open(path, serving=True) as store:
                attack(Device(store, recommender="first", clock=clock), 2, first=first)
                os.kill(os.getpid(), signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with DeviceStore.open(path, serving=True) as store:
        again = Device(store, recommender="first", clock=clock)
        assert unused(again, clock) == 4
        assert attack(again, 2, first=200) == ["secure-sum"] * 2
        store.forget()  # the owner's word about runs is none about plans
        assert attack(again, 2, first=300) == ["secure-sum"] * 2


def test_a_clock_that_is_put_back_forgets_nothing_and_locks_nobody_out() -> None:
    clock = Clock(NOW)
    agent = victim(clock, max_plans_per_day=3)
    enrol([agent], others=N - 1)
    assert "secure-sum" not in attack(agent, 2)
    for back in (1.0, DAY, 400 * DAY):
        clock.now = NOW - back
        assert unused(agent, clock) == 2
    assert [one == "secure-sum" for one in attack(agent, 2, first=100)] == [False, True]
    clock.now += DAY  # by the clock as it is now
    assert "secure-sum" not in attack(agent, 3, first=200)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.floats(0, DAY, exclude_max=True)), max_size=60),
    limit=st.integers(1, 5),
)
def test_within_a_day_draws_less_vectors_stay_within_the_limit(
    steps: list[tuple[bool, float]], limit: int
) -> None:
    """However the clock goes to and fro in it."""
    clock, balance = Clock(NOW), 0
    with DeviceStore.create(":memory:", policy=Policy(max_plans_per_day=limit)) as store:
        plans = Plans(store, "first", clock)
        for draws, second in steps:
            clock.now = second
            if draws and balance == limit:
                with pytest.raises(SecureSumError, match="max_plans_per_day"):
                    plans.draw()
            elif draws:
                plans.draw()
                balance += 1
            elif balance:
                plans.sent()
                balance -= 1
            assert plans.open == balance


def test_there_is_always_a_limit() -> None:
    for line in ("max_plans_per_day = 0", 'max_plans_per_day = "no limit"'):
        with pytest.raises(ConfigError):
            Policy.from_toml(line)
