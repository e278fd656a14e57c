"""A mute device costs its own turn: nobody waits longer for it than public facts say, and less
each time.
"""

from __future__ import annotations

import pytest

from hdpmf.common.net import carrier
from hdpmf.common.net.carrier import Patience


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(carrier, "time", made)
    return made


def asked(patience: Patience, *devices: str) -> None:
    for device in devices:
        patience.sent(device)


def test_until_most_have_answered_everybody_has_the_whole_deadline(clock: Clock):
    patience = Patience(30.0)
    asked(patience, "a", "b", "c", "d")
    clock.now += 10
    patience.on_answer("a")
    patience.on_answer("b")
    assert patience.seconds_left == pytest.approx(20.0)
    clock.now += 20
    assert patience.over() == ["c", "d"]


@pytest.mark.parametrize(("took", "turn"), [(0.1, 5.0), (4.0, 12.0), (20.0, 30.0)])
def test_then_the_others_have_three_times_as_long_as_these_took(
    clock: Clock, took: float, turn: float
):
    patience = Patience(30.0)
    asked(patience, "a", "b", "c", "mute")
    clock.now += took
    for device in "abc":
        patience.on_answer(device)
    assert patience.seconds_left == pytest.approx(turn - took)
    clock.now += turn - took - 0.01
    assert patience.over() == []
    clock.now += 0.02
    assert patience.over() == ["mute"]
    assert patience.over() == []


def test_a_turn_begins_when_a_message_is_sent(clock: Clock):
    patience = Patience(30.0)
    asked(patience, "first")
    clock.now += 29
    asked(patience, "second")
    clock.now += 2
    assert patience.over() == ["first"]
    assert patience.seconds_left == pytest.approx(28.0)


def test_whoever_is_never_heard_costs_less_each_time(clock: Clock):
    silent: dict[str, int] = {}
    waits = []
    for _ in range(40):
        patience = Patience(30.0, silent)
        asked(patience, "a", "b", "c", "mute")
        for device in "abc":
            patience.on_answer(device)
        begin = clock.now
        while not patience.over():
            clock.now += patience.seconds_left + 1e-6
        waits.append(clock.now - begin)
    assert waits[:5] == pytest.approx([5, 2.5, 1.25, Patience.MOMENT, Patience.MOMENT], abs=1e-3)
    assert min(waits) > 0.3  # there is always time to come back
    patience = Patience(30.0, silent)
    asked(patience, "a", "b", "c", "mute")
    for device in ("a", "b", "mute"):
        patience.on_answer(device)
    assert silent == {}


def test_an_answer_after_the_turn_is_nobodys(clock: Clock):
    silent: dict[str, int] = {}
    patience = Patience(1.0, silent)
    asked(patience, "a")
    clock.now += 2
    assert patience.over() == ["a"]
    patience.on_answer("a")
    assert silent == {"a": 1}
