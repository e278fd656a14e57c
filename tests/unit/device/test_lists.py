"""A model for lists on a device: it orders as the library does, waits for its facts, and an
older one stays.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import Accepted, Refusal, Reply, decode, encode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.lists import digest_of
from hdpmf.models import HDPBit
from hdpmf.private.device.recommendations import local_model, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender.lists.training import train_list_model
from tests.world import Device, envelope

from .federated import TABLE, WEIGHTS, WORLD, facts_for

pytestmark = pytest.mark.slow

RUN, LATER = b"a run of bits...", b"a later run....."
BODY = encode(
    train_list_model("popular", HDPBit(rng=0).fit(WORLD, WEIGHTS).release_.presence).table()
)


def _silo(folder: Path, ratings=WORLD, weights=WEIGHTS) -> Device:
    store = DeviceStore.create(folder / "silo.sqlite", users=ratings.n_users)
    store.add(ratings)
    store.set_weights(weights, ratings)
    return Device(store)


def _say(agent: Device, message, number=0, run=RUN, part="job"):
    reply = decode(agent.answer(envelope(message, number, run=run, part=part)))
    assert isinstance(reply, Reply)
    return decode(reply.body)


@pytest.mark.parametrize("kind", ["ease", "ials"])
def test_a_device_orders_as_the_library_does(tmp_path, kind):
    world = synthetic_world(25, 60, 600, rng=2)
    weights = PrivacySpec().draw(world, 0)
    model = HDPBit(rng=0, list_model=kind).fit(world, weights)
    agent = _silo(tmp_path, world, weights)
    body = encode(model.lists_.table())
    assert _say(agent, catalogue_table(world.items, world.scale, world.item_table)) == Accepted()
    assert (
        _say(agent, msgspec.structs.replace(model.facts_, lists=digest_of(body)), 1) == Accepted()
    )
    by_facts = [one.item for one in recommend(agent.store, 8, user="1")]
    assert _say(agent, body, 2, part="lists") == Accepted()
    for user in world.users.ids[:6].tolist():
        ours, theirs = recommend(agent.store, 8, user=str(user)), model.recommend(user, 8)
        assert [one.item for one in ours] == [str(one.item) for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
        assert [one.reason for one in ours] == [one.reason for one in theirs]
        assert not ours or any("because you rated" in (one.reason or "") for one in ours)
    assert [one.item for one in recommend(agent.store, 8, user="1")] != by_facts
    assert agent.store.ledger.entries() == []


def test_lists_wait_for_the_facts_that_name_them_and_older_ones_stay_until_then(tmp_path):
    agent = _silo(tmp_path)
    store = agent.store
    facts = facts_for(lists=digest_of(BODY))
    assert _say(agent, TABLE) == Accepted()
    assert _say(agent, BODY, 2, part="lists") == Refusal(reason="protocol")  # no facts yet
    assert _say(agent, facts, 1) == Accepted()
    assert local_model(store).lists == b""
    assert _say(agent, BODY, 2, LATER, "lists") == Refusal(reason="protocol")  # of another run
    assert _say(agent, BODY, 2, part="lists") == Accepted()
    assert _say(agent, BODY, 2, part="lists") == Accepted()  # a repeat changes nothing
    assert local_model(store).lists == BODY
    # New facts that name other lists: until those come, the older ones are used.
    other = encode(
        msgspec.structs.replace(decode(BODY), output=np.zeros(WORLD.n_items, np.float32))
    )
    assert _say(agent, facts_for(lists=digest_of(other), mean=3.0), 1, LATER) == Accepted()
    assert local_model(store).lists == BODY
    assert _say(agent, other[:-1], 2, LATER, "lists") == Refusal(reason="protocol")
    assert local_model(store).lists == BODY
    assert _say(agent, other, 2, LATER, "lists") == Accepted()
    assert local_model(store).lists == other
    # Facts without lists, as of hdp-sum: the device orders by them alone.
    assert _say(agent, facts_for(mean=3.1), 1, b"a run of sums...") == Accepted()
    assert local_model(store).lists == b""
