"""Attacks 6 and 13: rounds that only the raters of an item refuse, and messages that ask a
device a question each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks import propose
from hdpmf.common.protocol import Ready, Refusal
from hdpmf.common.protocol.layout import gradients_layout
from hdpmf.private.device.policy import Policy
from tests.world import Device, a_round, ask, enrol, envelope, opening, plan, table, terms

from .hostile import N_ITEMS, STARS, device

pytestmark = pytest.mark.slow

TABLE = table()
PAID = Policy(methods=("hdpmf-paid",))
NOMINAL = Policy(
    methods=("hdpmf", "mf"), allow_nominal=True, allow_unprotected=True, require_sums=False
)
WORLDS: dict[str, dict[str, float]] = {
    "nothing": {},
    "stars": dict(STARS),
    "the other items": {f"item {one:02d}": 5.0 for one in range(1, N_ITEMS, 2)},
    "low": dict.fromkeys(STARS, 1.0),
    "high": dict.fromkeys(STARS, 5.0),
}


def _row(value: float, place: int, fill: float = 0.1) -> np.ndarray:
    factors = np.full((N_ITEMS, 3), fill, np.float32)
    factors[place] = value
    return factors


def _h(value: float, place: int) -> np.ndarray:
    h = np.random.default_rng(0).exponential(size=(N_ITEMS, 3)).astype(np.float32) + np.float32(0.1)
    h[place] = value
    return h


def _raters(value: int, place: int) -> np.ndarray:
    raters = np.full(N_ITEMS, 50)
    raters[place] = value
    return raters


ROUNDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "a huge row of V": lambda j: {"item_factors": _row(1e30, j)},
    "a row of V at the edge of the words": lambda j: {"item_factors": _row(3e12, j)},
    "a row of V that is as large as may be": lambda j: {"item_factors": _row(2.0**20, j)},
    "all of V as large as may be": lambda j: {"item_factors": _row(-(2.0**20), j, 2.0**20)},
    "nobody has rated it": lambda j: {"raters": _raters(0, j)},
    "more raters than users": lambda j: {"raters": _raters(10**9, j)},
    "h is zero there": lambda j: {"h": _h(0.0, j)},
    "h is tiny there": lambda j: {"h": _h(1e-6, j)},
}


def opened(
    ratings: dict[str, float], policy: Policy, method: str, mechanism: str, view: str = "sums"
) -> Device:
    agent = device(ratings, policy=policy, catalogue=TABLE)
    enrol([agent], others=199)
    ask(agent, terms(method, view, TABLE))
    ask(agent, plan(TABLE, mechanism=mechanism))
    assert not isinstance(
        ask(agent, opening() if method != "mf" else type(opening())(noise_budget=None)), Refusal
    )
    return agent


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize(
    ("method", "mechanism", "view", "policy"),
    [
        ("hdpmf-paid", "paid", "sums", PAID),
        ("hdpmf", "stretch", "sums", NOMINAL),
        ("hdpmf", "stretch", "messages", NOMINAL),
        ("mf", "none", "messages", NOMINAL),
    ],
)
def test_a_round_is_answered_alike_whatever_was_rated(
    kind: str, method: str, mechanism: str, view: str, policy: Policy
) -> None:
    """A row of V of 1e30, or no raters, made exactly the raters of that item refuse: 30 of 30
    items in 8 seconds.
    """
    answers = {}
    for place in (4, 5):  # one is rated in some worlds, one in others
        for world, ratings in WORLDS.items():
            agent = opened(ratings, policy, method, mechanism, view)
            message = a_round(1, **({"h": _h(0.5, 0)} | ROUNDS[kind](place)))
            answer = ask(agent, message, 1)
            word = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
            answers[place, world] = word
    assert len(set(answers.values())) == 1, answers


@pytest.mark.parametrize("value", [2.0**20, 1e5, 1.0])
def test_a_plan_of_a_sum_is_answered_alike_whatever_was_rated(value: float) -> None:
    """V at the bound of the words made the plan of the sum be refused exactly where a level was
    low.
    """
    for ratings in WORLDS.values():
        agent = opened(ratings, PAID, "hdpmf-paid", "paid")
        roster = agent.store.roster
        assert roster is not None
        assert ask(
            agent, a_round(1, item_factors=np.full((N_ITEMS, 3), value, np.float32)), 1
        ) == Ready(number=1)
        words = gradients_layout(plan(TABLE), 200)
        offer = propose(roster.roster, words.length, minimum=190, wide=True)
        from hdpmf.common.protocol import Reply, decode

        reply = decode(agent.answer(envelope(encode_sum(offer), 1, part="sum")))
        assert isinstance(reply, Reply)
        assert reply.part == "sum"


def test_a_run_ends_at_its_first_refusal() -> None:
    """So that no run is a series of questions."""
    agent = opened(dict(STARS), PAID, "hdpmf-paid", "paid")
    assert isinstance(ask(agent, a_round(1, item_factors=_row(1e30, 3)), 1), Refusal)
    for number in (1, 2, 3):
        assert isinstance(ask(agent, a_round(number), number), Refusal)


def test_a_stale_message_is_no_question() -> None:
    agent = opened(dict(STARS), PAID, "hdpmf-paid", "paid")
    assert ask(agent, a_round(2), 2) == Ready(number=2)
    assert isinstance(ask(agent, a_round(1, item_factors=_row(1e30, 3)), 1), Refusal)
    assert ask(agent, a_round(3), 3) == Ready(number=3)


def test_final_factors_are_taken_whatever_they_make_of_a_vector() -> None:
    for ratings in WORLDS.values():
        agent = opened(ratings, PAID, "hdpmf-paid", "paid")
        last = a_round(5, item_factors=np.full((N_ITEMS, 3), 2.0**20, np.float32))
        assert agent.learn(TABLE, last, plan(TABLE, mechanism="paid"))
