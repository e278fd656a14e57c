"""A model for lists on a device: it orders as the library does, waits for its facts, and an
older one stays.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import decode, encode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.lists import digest_of
from hdpmf.models import HDPBit
from hdpmf.private.device.recommendations import local_model, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender.lists.training import train_list_model
from hdpmf.untrusted.service.publish import public_files
from tests.world import Device

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


def _publish(agent: Device, facts, lists: bytes = b"", run=RUN) -> bool:
    """Let it see facts and what the index calls the model for lists."""
    agent.files.files = public_files(
        TABLE, PublicModel.of_run({"run": run.hex()}, TABLE, facts, None)
    )
    if lists:
        index = json.loads(agent.files.files["index.json"])
        index["lists"] = {"sha256": sha256(lists).hexdigest()}
        agent.files.files |= {
            f"lists-{sha256(lists).hexdigest()}.msgpack": lists,
            "index.json": json.dumps(index).encode(),
        }
    before = len(agent.said)
    agent.look_now()
    return not any(line.startswith("refused") for line in agent.said[before:])


@pytest.mark.parametrize("kind", ["ease", "ials"])
def test_a_device_orders_as_the_library_does(tmp_path, kind):
    world = synthetic_world(25, 60, 600, rng=2)
    weights = PrivacySpec().draw(world, 0)
    model = HDPBit(rng=0, list_model=kind).fit(world, weights)
    agent = _silo(tmp_path, world, weights)
    lists = model.lists_.table()
    table = catalogue_table(world.items, world.scale, world.item_table)
    facts = msgspec.structs.replace(model.facts_, lists=digest_of(encode(lists)))
    assert agent.learn(table, facts)
    by_facts = [one.item for one in recommend(agent.store, 8, user="1")]
    assert agent.learn(table, facts, None, lists)
    for user in world.users.ids[:6].tolist():
        own = world.timestamps[world.users.ids[world.user_codes] == user]  # type: ignore[index]
        for now in (float(own.max()), float(own.max()) + 3e7):
            ours = recommend(agent.store, 8, user=str(user), now=now)
            theirs = model.recommend(user, 8, now=now)
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
    assert _publish(agent, facts)
    assert local_model(store).lists == b""
    assert not _publish(agent, facts, BODY[:-1])
    assert local_model(store).lists == b""
    assert _publish(agent, facts, BODY)
    assert _publish(agent, facts, BODY)  # a repeat changes nothing
    assert local_model(store).lists == BODY
    # New facts that name other lists: until those come, the older ones are used.
    other = encode(
        msgspec.structs.replace(decode(BODY), output=np.zeros(WORLD.n_items, np.float32))
    )
    later = facts_for(lists=digest_of(other), mean=3.0)
    assert _publish(agent, later, run=LATER)
    assert local_model(store).lists == BODY
    assert not _publish(agent, later, other[:-1], LATER)
    assert local_model(store).lists == BODY
    assert _publish(agent, later, other, LATER)
    assert local_model(store).lists == other
    # Facts without lists, as of hdp-sum: the device orders by them alone.
    assert _publish(agent, facts_for(mean=3.1), run=b"a run of sums...")
    assert local_model(store).lists == b""
