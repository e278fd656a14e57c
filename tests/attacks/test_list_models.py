"""Attack 22: a recommender ships a model for lists that is a bomb, nonsense, or not the one that
its facts name.

It is public and comes from nobody whom a device trusts. Whatever it is, it gets a word, the model
before stays in use, and nothing is spent.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import ItemFacts, Opening, encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.lists import BYTES_PER_ITEM, FREE_BYTES, ListTable, digest_of
from hdpmf.private.device.model_update import most_list_bytes
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import local_model, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files
from tests.world import Device, table

from .hostile import N_ITEMS, STARS

RUN, LYING = b"an honest run...", b"a lying run....."
LIMIT = FREE_BYTES + BYTES_PER_ITEM * N_ITEMS


def _facts(lists: str | None) -> ItemFacts:
    numbers = {name: np.ones(N_ITEMS, np.float32) for name in ("bias", "variance", "popularity")}
    return ItemFacts(
        catalogue=known_items(table()).fingerprint,
        mean=3.5,
        lists=lists,
        **numbers,
    )


def _lists(n: int = N_ITEMS, rank: int = 2, **changes: Any) -> ListTable:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "form": "linear",
        "n_items": n,
        "start": np.zeros(n + 1, np.int32),
        "items": np.zeros(0, np.uint16),
        "entries": np.zeros(0, np.int8),
        "entries_unit": 1.0,
        "hidden": np.zeros(rank, np.float32),
        "output": np.zeros(n, np.float32),
    }
    for name in ("encode", "decode"):
        fields[name] = rng.integers(-127, 128, (n, rank)).astype(np.int8)
        fields[f"{name}_unit"] = np.ones(rank, np.float32)
    return ListTable(**(fields | changes))


def _publish(agent: Device, facts: ItemFacts, lists: bytes | None = None, run: bytes = RUN) -> bool:
    """Let it see facts and what the index calls the model for lists; False where it refuses."""
    model = PublicModel.of_run({"run": run.hex()}, table(), facts, None)
    agent.files.files = files = dict(public_files(table(), model))
    if lists is not None:
        index, digest = json.loads(files["index.json"]), sha256(lists).hexdigest()
        files[f"lists-{digest}.msgpack"] = lists
        files["index.json"] = json.dumps(index | {"lists": {"sha256": digest}}).encode()
    before = len(agent.said)
    agent.look_now()
    return not any(line.startswith("refused") for line in agent.said[before:])


def _forged(**changes: Any) -> bytes:
    """A table that no honest side could make: its checks are bypassed by writing the bytes."""
    plain = msgspec.msgpack.decode(encode(_lists()))
    for name, value in changes.items():
        if isinstance(value, np.ndarray):
            value = {
                "dtype": value.dtype.str[1:],
                "shape": list(value.shape),
                "data": value.tobytes(),
            }
        plain[name] = value
    return msgspec.msgpack.encode(plain)


GOOD = encode(_lists())
FAR = 2**31 - 1
HOSTILE = {
    "not a number": _forged(output=np.full(N_ITEMS, np.nan, np.float32)),
    "infinite": _forged(decode_unit=np.array([np.inf, 1.0], np.float32)),
    "scores that overflow": _forged(decode_unit=np.full(2, 3e38, np.float32)),
    "entries of no item": _forged(
        start=np.append(np.zeros(N_ITEMS, np.int32), np.int32(1)),
        items=np.array([N_ITEMS], np.uint16),
        entries=np.ones(1, np.int8),
    ),
    "entries that wrap around": _forged(
        start=np.append(np.array([0, FAR, -FAR], np.int32), np.zeros(38, np.int32))
    ),
    "heads that wrap around": _forged(
        heads=np.append(np.array([0, FAR, -FAR], np.int32), np.arange(3, N_ITEMS, dtype=np.int32))
    ),
    "other items": encode(_lists(n=N_ITEMS + 1)),
    "other items by heads": encode(
        _lists(heads=np.arange(N_ITEMS, dtype=np.int32) * 2, n_items=2 * N_ITEMS)
    ),
    "an empty matrix of 10^12 rows": _forged(decode=np.zeros((0, 0), np.int8)).replace(
        b"\x92\x00\x00", b"\x92\xcf" + (10**12).to_bytes(8, "big") + b"\x00"
    ),
    "factors that leave the vector open": _forged(
        form="factors", encode=np.zeros((0, 2), np.int8), strength=[0.0, 0.0]
    ),
    "another message": encode(Opening(noise_budget=None)),
    "cut off": GOOD[:-3],
    "nested without end": b"\x91" * 60_000,
    "nothing": b"",
    "a zip bomb": b"PK\x03\x04" + bytes(1000),
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Device:
    store = DeviceStore.create(tmp_path_factory.mktemp("device") / "me.sqlite")
    for item, value in STARS.items():
        store.rate(item, value)
    made = Device(store)
    assert _publish(made, _facts(digest_of(GOOD)), GOOD)
    return made


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_for_lists_is_refused_and_the_good_one_stays(
    agent: Device, kind: str
) -> None:
    before, store = [one.item for one in recommend(agent.store)], agent.store
    body = HOSTILE[kind]
    # Its facts name it, so that its digest is right.
    assert not _publish(agent, _facts(digest_of(body)), body, LYING)
    kept = local_model(store)
    assert kept is not None
    assert kept.lists == GOOD
    assert [one.item for one in recommend(store)] == before
    assert store.ledger.entries() == []


def test_one_that_the_facts_do_not_name_is_refused(agent: Device) -> None:
    other = encode(_lists(rank=3))
    missing = encode(_lists(rank=4))
    assert not _publish(agent, _facts(digest_of(missing)), other, LYING)
    assert _publish(agent, _facts(None), other, b"facts alone.....")  # it is not even fetched
    kept = local_model(agent.store)
    assert kept is not None
    assert kept.lists == b""
    assert _publish(agent, _facts(digest_of(GOOD)), GOOD)


def test_a_large_one_is_refused_by_its_length_alone(agent: Device) -> None:
    """50 MB for 40 items: it is not decoded, and nothing of its size is made."""
    agent = Device(agent.store)
    bomb = b"\x91" * 50_000_000
    facts = _facts(digest_of(bomb))
    tracemalloc.start()
    begin = time.perf_counter()
    assert not _publish(agent, facts, bomb, LYING)
    took = time.perf_counter() - begin
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "50,000,000 bytes" in agent.said[-1]
    assert peak < len(bomb) / 2
    assert took < 5.0
    assert agent.complete  # nothing more is waited for
    kept = local_model(agent.store)
    assert kept is not None
    assert kept.lists == GOOD


@pytest.mark.parametrize(
    ("limit", "taken"), [(len(GOOD), True), (len(GOOD) - 1, False), (0, False)]
)
def test_the_owner_sets_the_limit(limit: int, taken: bool) -> None:
    store = DeviceStore.create(":memory:", policy=Policy(max_list_bytes=limit))
    agent = Device(store)
    assert _publish(agent, _facts(digest_of(GOOD)), GOOD) == taken
    assert len(GOOD) < LIMIT


def test_an_honest_one_of_every_kind_fits(tmp_path: Path) -> None:
    """The limit for the 3,706 items of ML-1M is 2.07 MB; the largest kind is an autoencoder of
    256 hidden units.
    """
    n, rank = 3706, 256
    matrix, unit = np.zeros((n, rank), np.int8), np.ones(rank, np.float32)
    numbers = {"encode": matrix, "decode": matrix, "encode_unit": unit, "decode_unit": unit}
    largest = len(encode(_lists(n, rank, form="autoencoder", **numbers)))
    assert 1.9e6 < largest <= most_list_bytes(Policy(), n) <= Policy().max_list_bytes
