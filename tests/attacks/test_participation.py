"""Attacks 5 and 12: whether, when and how a device answers says nothing about its ratings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.protocol import BitContribution, Ready, Refusal, encode
from hdpmf.private.device.policy import Policy
from tests.world import a_round, ask, enrol, opening, plan, survey, table, terms, whole_life_policy

from .hostile import N_ITEMS, STARS, device

TABLE = table()
ALL = whole_life_policy(
    methods=("hdp-sum", "hdp-bit", "hdpmf-paid"), allow_unprotected=True, require_sums=False
)
MANY = {f"item {one:02d}": 3.0 for one in range(N_ITEMS)}

WORLDS: dict[str, dict[str, Any]] = {
    "no ratings": {"ratings": {}},
    "one rating": {"ratings": {"item 00": 5.0}},
    "one rating that is too light to send": {"ratings": {"item 00": 5.0}, "weight": 0.01},
    "many": {"ratings": MANY},
    "ratings of other items": {"ratings": {"something else": 4.0}},
}


def answered(
    world: dict[str, Any], method: str, view: str, policy: Policy = ALL, spent: int = 0
) -> Any:
    """The answer to the message that asks for numbers, after so many runs that took all there
    was.
    """
    agent = device(**world, policy=policy, catalogue=TABLE)
    enrol([agent], others=199)
    answer: Any = None
    for number in range(spent + 1):
        run = bytes([number]) * 16
        messages = (
            (survey("A" if method == "hdp-sum" else "L", TABLE, epsilon=1.0),)
            if method in ("hdp-sum", "hdp-bit")
            else (plan(TABLE, epsilon=1.0), opening(1.0), a_round(1))
        )
        for message in (terms(method, view, TABLE, epsilon=1.0), *messages):
            answer = ask(agent, message, getattr(message, "number", 0), run=run)
    return answer


def looks(answer: Any, view: str) -> tuple[str, int]:
    """What a recommender sees of an answer: its kind and, where numbers are hidden, its length."""
    word = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
    return word, len(encode(answer)) if view == "sums" else 0


@pytest.mark.parametrize(
    ("method", "view"), [("hdp-sum", "sums"), ("hdpmf-paid", "sums"), ("hdp-bit", "messages")]
)
@pytest.mark.parametrize("spent", [0, 1])
@pytest.mark.parametrize("limit", [None, 0.4, 5.0])
def test_every_device_answers_alike(
    method: str, view: str, spent: int, limit: float | None
) -> None:
    """Nothing new to send was 'budget', nothing at all 'Ready', one light rating a refusal, six
    of five 'budget'.
    """
    policy = replace(ALL, max_total=limit)
    seen = {
        name: looks(answered(world, method, view, policy, spent), view)
        for name, world in WORLDS.items()
    }
    assert len(set(seen.values())) == 1, seen
    assert next(iter(seen.values()))[0] in ("Ready", "BitContribution")


def test_what_is_beyond_a_limit_is_left_out_and_not_the_device() -> None:
    kept = []
    for values in (1.0, 5.0):
        ratings = dict.fromkeys(MANY, values)
        agent = device(ratings, policy=replace(ALL, max_total=5.0), catalogue=TABLE)
        ask(agent, terms("hdp-bit", "messages", TABLE, epsilon=1.0))
        answer = ask(agent, survey("L", TABLE, epsilon=1.0))
        assert isinstance(answer, BitContribution)
        kept.append(len(answer.items))
        assert agent.store.ledger.spent_total() == pytest.approx(5.0)
    assert kept == [5, 5]


def test_which_ratings_stay_within_the_limit_hangs_on_no_value() -> None:
    """The same person with other ratings of the same items sends about the same items."""
    agent = device(MANY, policy=replace(ALL, max_total=5.0), catalogue=TABLE)
    store = agent.store
    ratings = store.ratings()
    everything = np.arange(N_ITEMS), np.ones(N_ITEMS)
    before = store.ledger.limits.within(ratings, *everything, store.policy).positions
    for item in MANY:
        store.rate(item, float(1 + int(item.split()[1]) % 5))
    after = store.ledger.limits.within(store.ratings(), *everything, store.policy).positions
    assert before.tolist() == after.tolist()
    assert len(before) == 5


@pytest.mark.parametrize("what", ["remove", "weigh more", "all"])
def test_ratings_that_go_in_the_middle_of_a_run_are_not_heard_of(what: str) -> None:
    """A device whose owner removed a rating refused with a word of its own."""
    agent = device(STARS, policy=replace(ALL, epsilon=1.0), catalogue=TABLE, weight=0.5)
    enrol([agent], others=199)
    for message in (terms("hdpmf-paid", "sums", TABLE), plan(TABLE), opening()):
        ask(agent, message)
    assert ask(agent, a_round(1), 1) == Ready(number=1)
    if what == "weigh more":
        agent.store.set_weight(beta=1.0)
    for item in list(STARS)[: {"remove": 1, "weigh more": 0, "all": None}[what]]:
        agent.store.remove(item)
    assert ask(agent, a_round(2), 2) == Ready(number=2)
    for item in list(STARS):
        agent.store.rate(item, 1.0)
    assert ask(agent, a_round(3), 3) == Ready(number=3)
    assert agent.learn(TABLE, a_round(5), plan(TABLE))
