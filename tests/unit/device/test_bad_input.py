"""What is given wrongly is refused, in words that say what is wrong; what is at a limit is not."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from hdpmf.common.protocol import encode
from hdpmf.errors import (
    ConfigError,
    HdpmfError,
    ProtocolError,
    RatingsError,
    StorageError,
)
from hdpmf.private.client.device_gradients import GradientClientState
from hdpmf.private.device import model_update, rating_files
from hdpmf.private.device.consent import give_answer
from hdpmf.private.device.model_update import check_plan, read_factors, read_plan
from hdpmf.private.device.pinned_servers import trusted
from hdpmf.private.device.published_files import read_task
from hdpmf.private.device.rating_files import read_rating_file
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.sealed_export import ExportFacts, write_export

from .federated import facts_for, make_store, plan_for

STATE = GradientClientState(1, 0, np.zeros((1, 2)), None, None, None, 0, None)


def _state(**changes: object) -> bytes:
    number, answered, seen, arrays, stated = msgspec.msgpack.decode(STATE.encode())
    return msgspec.msgpack.encode((number, answered, seen, arrays | changes, stated))


BAD: dict[str, tuple[Callable[[DeviceStore], object], type[HdpmfError], str]] = {
    "a state that is no state": (
        lambda store: GradientClientState.decode(b"\xc1"),
        StorageError,
        "cannot be read",
    ),
    "a state without vectors": (
        lambda store: GradientClientState.decode(_state(vectors=None)),
        StorageError,
        "has no vectors",
    ),
    "a state of another shape": (
        lambda store: GradientClientState.decode(_state(vectors=[[3, 2], bytes(4)])),
        StorageError,
        "cannot be read",
    ),
    "an item's weight without the item": (
        lambda store: store.set_weight(gamma=0.5),
        ConfigError,
        "needs both item and gamma",
    ),
    "an item without its weight": (
        lambda store: store.set_weight(item="0"),
        ConfigError,
        "needs both item and gamma",
    ),
    "another recommender": (lambda store: store.at(99), ConfigError, "no such recommender"),
    "an answer that is none": (
        lambda store: give_answer(store, "key", "maybe"),  # type: ignore[arg-type]
        ConfigError,
        "answer once, always or never",
    ),
    "a plan that is none": (
        lambda store: read_plan(store, encode(facts_for())),
        ProtocolError,
        "a ItemFacts is no plan",
    ),
    "final factors that are none": (
        lambda store: read_factors("r", encode(facts_for()), plan_for(), b""),
        ProtocolError,
        "no final factors",
    ),
    "a plan before the items": (
        lambda store: check_plan(make_store(pin=False), plan_for()),
        ProtocolError,
        "must come before a plan",
    ),
    "a task that is none": (
        lambda store: read_task(encode(facts_for())),
        ProtocolError,
        "a ItemFacts is no task",
    ),
    "an export without a passphrase": (
        lambda store: write_export(io.BytesIO(), StoreCipher.new(), ExportFacts, ()),  # type: ignore[arg-type]
        ConfigError,
        "needs a passphrase",
    ),
    "a first line that is no CSV": (
        lambda store: read_rating_file(b'item,"rating\n'),
        RatingsError,
        "no CSV",
    ),
    "a row that is no CSV": (
        lambda store: list(read_rating_file(b'item,rating\n1,"2\n').rows),
        RatingsError,
        "no CSV",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_refused_in_words(what: str) -> None:
    act, error, words = BAD[what]
    with pytest.raises(error, match=words):
        act(make_store())


def test_rows_without_anything_are_no_rows() -> None:
    rows = list(read_rating_file(b"item,rating\n\n1,2\n\n3,4\n").rows)
    assert [(row.item, row.rating) for row in rows] == [("1", "2"), ("3", "4")]


def test_a_file_may_be_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"item,rating\n1,2\n"
    monkeypatch.setattr(rating_files, "MOST_BYTES", len(data))
    assert len(list(read_rating_file(data).rows)) == 1
    with pytest.raises(RatingsError, match="more than"):
        read_rating_file(data + b" ")


def test_a_plan_may_have_as_many_numbers_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for()
    monkeypatch.setattr(model_update, "MAX_NUMBERS", plan.n_items * plan.n_factors)
    check_plan(make_store(), plan)
    monkeypatch.setattr(model_update, "MAX_NUMBERS", plan.n_items * plan.n_factors - 1)
    with pytest.raises(ProtocolError, match="more than"):
        check_plan(make_store(), plan)


def test_a_store_without_a_pair_of_servers_trusts_none() -> None:
    assert not trusted(make_store())
