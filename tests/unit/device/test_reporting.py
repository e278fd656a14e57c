"""A device that reports to two servers: what leaves is what NumPy adds up, paid once, and kills
change nothing.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hdpmf.common.protocol import Survey, decode
from hdpmf.common.protocol.task import task_id
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import local_model
from tests.world import live

from .reporting_world import (
    PERIOD,
    SERVERS,
    STARS,
    START,
    World,
    actions,
    make_facts,
    make_store,
    make_task,
    plain_sums,
    reported,
    reporter,
)


def test_the_sum_is_numpys() -> None:
    others = {"item 01": 5.0, "item 02": 1.0, "item 11": 3.0}
    task = make_task()
    stores = make_store(), make_store(others), make_store({})
    world = reported(task, *stores)
    assert len({body for _, _, body in world.uploads}) == 3
    expected = np.add(plain_sums(task, STARS), plain_sums(task, others))
    assert world.sums(task) == expected.tolist()
    # The recommender is told who takes part, the leader nothing but a token.
    assert {device for _, device, _ in world.tokens} == {
        store.identity.public.hex() for store in stores
    }
    assert len({nonce for _, nonce, _ in world.uploads}) == 3
    assert [actions(store) for store in stores] == [["agreed", "sent"]] * 3
    assert stores[0].ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert stores[2].ledger.spent_total() == 0


def test_the_ledger_names_both_organisations_and_what_they_see() -> None:
    store = make_store()
    reported(make_task(), store)
    agreed, sent = store.ledger.entries()
    for words in (agreed.words, sent.words):
        assert SERVERS.names in words
        assert SERVERS.digest in words
    assert "The recommender, and either server alone, see only" in agreed.words
    assert (agreed.view, agreed.status, agreed.epsilon) == ("two-servers", "proved", 0.5)
    assert agreed.run == sent.run == task_id(make_task()).hex()


def test_the_second_task_gets_zeros_where_ratings_have_spent_all() -> None:
    store, world = make_store(policy=Policy(servers=(SERVERS.digest,), epsilon=0.5)), World()
    device = reporter(store, world)
    tasks = make_task(), make_task(begin=START + PERIOD, end=START + 2 * PERIOD)
    for task in tasks:
        world.publish(task=task)
        live(device, world, PERIOD)
    live(device, world, 300)
    assert [any(world.sums(task)) for task in tasks] == [True, False]
    assert [len(world.uploads), actions(store)] == [2, ["agreed", "sent"] * 2]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))


@pytest.mark.parametrize("moment", [0.1, 0.3, 0.999])
def test_the_moment_is_drawn_in_the_period_and_kept(moment: float) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    expected = START + 10 + moment * 0.9 * (PERIOD - 10)
    live(reporter(store, world, moment), world, 10)
    device = reporter(store, world, 0.0)  # a restart draws no other one
    live(device, world, expected - 2 - world.now)
    assert (len(world.tokens), len(world.uploads)) == (1, 0)
    world.now = expected + 1
    device.step()
    assert len(world.uploads) == 1


def test_who_joins_late_reports_in_what_is_left() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.now = START + PERIOD - 1000.0
    live(reporter(store, world, 0.5), world, 600)
    assert len(world.uploads) == 1


def test_who_joins_very_late_still_has_a_twentieth_of_it_to_make_the_report() -> None:
    """How long making it takes must not show in when it leaves."""
    world, store = World(), make_store(policy=Policy(servers=(SERVERS.digest,), min_period=400))
    world.publish(task=make_task())
    world.now = START + PERIOD - 100.0
    device = reporter(store, world, 0.0)
    for seconds, asked in ((4.9, 0), (0.2, 1)):
        live(device, world, seconds)
        assert (len(world.tokens), len(world.uploads)) == (asked, 0)
    live(device, world, 6)  # a twentieth of what is left after the token
    assert len(world.uploads) == 1


def test_a_task_that_begins_later_waits() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task(begin=START + 7200, end=START + 7200 + PERIOD))
    live(reporter(store, world, 0.0), world, 7000)
    assert world.uploads == []
    live(reporter(store, world, 0.0), world, 300)
    assert len(world.uploads) == 1


def test_retries_are_the_same_bytes() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.answers = ["unreachable", 503, "silent", 404, 400, 307, 429, 500, 201]
    live(reporter(store, world, 0.0), world, PERIOD)
    assert len({body for _, _, body in world.uploads}) == 1
    assert len(world.uploads) == 8
    assert actions(store) == ["agreed", "sent"]
    assert store.runs.load(task_id(make_task())) is None  # nothing of the report is kept


def test_what_never_left_is_given_back() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = "unreachable"
    live(reporter(store, world, 0.0), world, PERIOD + 100)
    assert world.uploads == []
    assert actions(store) == ["agreed", "returned"]
    assert "no connection to Leaders" in store.ledger.entries()[-1].words
    assert store.ledger.spent_total() == 0
    ratings = store.ratings()
    assert (store.ledger.remaining(ratings, store.weights(), store.policy) == 1.0).all()


def test_what_may_have_left_is_paid() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = "silent"
    live(reporter(store, world, 0.0), world, PERIOD + 100)
    assert len({body for _, _, body in world.uploads}) == 1
    assert actions(store) == ["agreed", "sent"]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))
    assert store.runs.load(task_id(make_task())) is None


def test_a_leader_that_fails_for_ever_is_asked_less_and_less() -> None:
    world, store = World(), make_store()
    task = make_task(end=START + 100 * 3600)
    world.publish(task=task)
    world.otherwise = 500
    live(reporter(store, world, 0.0, every=36_000.0), world, 100 * 3600 + 100)
    assert len({body for _, _, body in world.uploads}) == 1
    assert 20 < len(world.uploads) < 250
    assert actions(store) == ["agreed", "sent"]


def test_a_definitive_refusal_ends_it() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.otherwise = 403
    live(reporter(store, world, 0.0), world, PERIOD)
    assert len(world.uploads) == 1
    assert actions(store) == ["agreed", "sent", "refused"]
    assert store.ledger.spent_total() > 0


def test_nobody_is_named_where_nobody_is_enrolled() -> None:
    store = make_store()
    world = reported(make_task(token_key=b""), store)
    assert [device for _, device, _ in world.uploads] == [""]


def test_a_model_comes_and_says_by_what_it_was_made() -> None:
    world, store = World(), make_store()
    device = reporter(store, world, 0.0)
    world.publish(task=make_task())
    live(device, world, 100)
    assert device.finished_task == ""
    world.publish(facts=make_facts())
    live(device, world, 200)
    model = local_model(store)
    assert model is not None
    assert (model.view, model.method, model.run) == ("two-servers", "hdp-sum", "ab" * 16)
    assert isinstance(decode(model.survey or b""), Survey)
    assert device.finished_task == task_id(make_task()).hex()
    assert actions(store) == ["agreed", "sent", "received"]
    count = Counter(name for name, _ in world.requests)
    assert all(times == 1 for name, times in count.items() if name != "index.json")


def test_a_device_that_takes_no_part_gets_the_model_too() -> None:
    world, store = World(), make_store(policy=Policy())
    world.publish(task=make_task(), facts=make_facts())
    live(reporter(store, world), world, 200)
    model = local_model(store)
    assert model is not None
    assert model.view == "nothing"
    assert (world.uploads, actions(store)) == ([], [])


# Kills
