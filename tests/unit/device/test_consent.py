"""The owner is asked before a run, sees what would leave, and what is said counts: once, always,
or never.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import WEIGHT_UNITS, make_coding
from hdpmf.common.protocol import decode
from hdpmf.common.protocol.task import Task
from hdpmf.errors import ConfigError
from hdpmf.private.device.choices.preview import preview_of
from hdpmf.private.device.consent import (
    LATER,
    consents,
    give_answer,
    pending,
    postpone,
    postponed,
    require_consent,
    take_back,
    under_way,
)
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from tests.world import live

from .reporting_world import (
    PERIOD,
    POLICY,
    SERVERS,
    STARS,
    START,
    World,
    make_store,
    make_task,
    reporter,
)

ASKING = msgspec.structs.replace(POLICY, ask=True)


def asking_store() -> DeviceStore:
    store = make_store()
    store.set_policy(ASKING)
    return store


def actions(store: DeviceStore) -> list[str]:
    return [entry.action for entry in store.ledger.entries()]


def test_nothing_leaves_before_the_owner_agrees_and_then_it_does():
    store, world = asking_store(), World()
    world.publish(task=make_task())
    device = reporter(store, world, 0.5)
    live(device, world, PERIOD / 4)
    assert world.uploads == []
    assert actions(store) == []
    (asked,) = pending(store)
    assert (asked.servers, asked.names) == (SERVERS.digest, SERVERS.names)
    assert asked.terms.epsilon == 0.5
    give_answer(store, asked.key, "once")
    assert pending(store) == []
    device.poll_soon()
    live(device, world, PERIOD)
    assert len(world.uploads) == 1
    assert actions(store) == ["agreed", "sent"]
    assert consents(store) == []  # once is once


def test_without_an_answer_the_time_passes_and_nothing_was_paid():
    store, world = asking_store(), World()
    world.publish(task=make_task())
    live(reporter(store, world, 0.5), world, PERIOD + 200)
    assert world.uploads == []
    assert actions(store) == []
    assert len(pending(store)) == 1
    assert pending(store, START + PERIOD) == []  # it is over


@pytest.mark.parametrize(("answer", "reports"), [("always", 2), ("once", 1), ("never", 0)])
def test_an_answer_counts_for_the_next_run_too_or_not(answer, reports):
    store, world = asking_store(), World()
    world.publish(task=make_task())
    device = reporter(store, world, 0.1)
    device.step()
    give_answer(store, pending(store)[0].key, answer)
    device.poll_soon()
    live(device, world, PERIOD + 200)
    world.publish(task=make_task(begin=START + PERIOD, end=START + 3 * PERIOD))
    live(device, world, 2 * PERIOD)
    assert len(world.uploads) == reports
    assert [asked.terms.method for asked in pending(store)] == (
        ["hdp-sum"] if answer == "once" else []
    )


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 0.6}, {"epsilon": 0.4}],
)
def test_other_terms_are_asked_about_anew(change):
    store = asking_store()
    terms = Terms(epsilon=0.5, catalogue="f" * 16, minimum=50)
    asked = Question(recommender="https://films.example", terms=terms, servers="d")
    with pytest.raises(DeclinedError):
        require_consent(store, asked)
    give_answer(store, asked.key, "always")
    require_consent(store, asked)
    require_consent(
        store, msgspec.structs.replace(asked, terms=msgspec.structs.replace(terms, minimum=90))
    )
    for other in (
        msgspec.structs.replace(asked, terms=msgspec.structs.replace(terms, **change)),
        msgspec.structs.replace(asked, recommender="https://other.example"),
        msgspec.structs.replace(asked, servers="other"),
    ):
        with pytest.raises(DeclinedError):
            require_consent(store, other)
    take_back(store, asked.key)
    with pytest.raises(DeclinedError):
        require_consent(store, asked)
    with pytest.raises(ConfigError):
        give_answer(store, "nobody asked this", "once")
    store.set_policy(POLICY)
    require_consent(store, asked)  # who is not to be asked is not


def test_the_preview_has_the_very_numbers_and_costs_nothing():
    store, world = asking_store(), World()
    world.publish(task=make_task())
    reporter(store, world, 0.5).step()
    before = store.ledger.entries()
    (asked,) = pending(store)
    first, second = preview_of(store, asked), preview_of(store, asked)
    assert store.ledger.entries() == before == []
    assert {number.item: number.value for number in first.numbers} == STARS
    survey = decode(make_task())
    assert isinstance(survey, Task)
    coding = make_coding("soft", RatingScale(1.0, 5.0, 1.0), 0.5)
    expected = {
        item: WEIGHT_UNITS * int(coding.encode(np.array([value]))[0])
        for item, value in STARS.items()
    }
    assert {number.item: number.plain for number in first.numbers} == expected
    assert first.pays == pytest.approx(0.5 * len(STARS))
    assert first.others == 12 - len(STARS)
    assert [number.plain for number in first.numbers] == [number.plain for number in second.numbers]
    assert first.noise > 0
    assert first.bounds is not None
    assert [bound.epsilon for bound in first.bounds.rating] == [0.0, 0.5]
    assert first.bounds.person[0].guess == 0.5
    assert first.bounds.person[1].guess > first.bounds.rating[1].guess
    assert (first.bounds.used_up, first.bounds.part) == (0, pytest.approx(0.5))
    store.set_policy(msgspec.structs.replace(ASKING, epsilon=0.5))
    assert preview_of(store, asked).bounds.used_up == len(STARS)  # type: ignore[union-attr]
    assert not first.refused
    store.set_policy(msgspec.structs.replace(ASKING, epsilon=0.1))
    assert "asks for epsilon 0.5" in preview_of(store, asked).refused
    assert all(number.title not in repr(first) for number in first.numbers if number.title)


@pytest.mark.slow
def test_not_now_sends_nothing_and_asks_again_later():
    store, world = asking_store(), World()
    world.publish(task=make_task(end=START + 40 * PERIOD))
    device = reporter(store, world, 0.01)
    live(device, world, 60)
    (asked,) = pending(store, world.now)
    said = world.now
    postpone(store, asked.key, said)
    assert pending(store, said) == []
    assert [each.key for each in postponed(store, said)] == [asked.key]
    for after in (60, LATER - 1):  # the device looks at the same task again and again
        live(device, world, said + after - world.now)
        assert pending(store, said + after) == []
    assert [each.key for each in pending(store, said + LATER)] == [asked.key]
    assert (world.uploads, actions(store)) == ([], [])
    assert postponed(store, said + LATER) == []
    assert len(pending(store, said - 10)) == 1  # a clock that was put back hides nothing for longer
    give_answer(store, asked.key, "once")
    device.poll_soon()
    live(device, world, PERIOD)
    assert len(world.uploads) == 1


def test_not_now_takes_an_agreement_back_and_can_be_decided_at_once():
    store, world = asking_store(), World()
    world.publish(task=make_task())
    device = reporter(store, world, 0.5)
    assert under_way(store) == []
    live(device, world, 60)
    give_answer(store, pending(store)[0].key, "once")
    ((_, keys, moment, left, _),) = under_way(store)
    assert (len(keys), moment, left) == (1, 0.0, False)  # no task was taken so far
    device.poll_soon()
    live(device, world, 60)
    ((_, keys, moment, left, _),) = under_way(store)
    assert moment > world.now
    assert not left
    for key in keys:
        postpone(store, key, world.now)
    assert pending(store, world.now) == []
    assert under_way(store) == []
    live(device, world, moment + 1 - world.now)
    assert (world.uploads, store.ledger.spent_total()) == ([], 0.0)
    (asked,) = postponed(store, world.now)
    postpone(store, asked.key, world.now, 0)
    assert [each.key for each in pending(store, world.now)] == [asked.key]
    give_answer(store, asked.key, "once")
    device.poll_soon()
    live(device, world, PERIOD)
    assert len(world.uploads) == 1
