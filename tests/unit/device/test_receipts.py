"""Receipts: what left, who asked, what was answered; signed by the device, and without anything
private.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.disclosures.receipts import (
    MOST_BYTES,
    LedgerEvent,
    Organisation,
    Receipt,
    Requester,
    SentRecord,
    UnderTerms,
    all_receipts,
    read_receipt,
    receipt_of,
)
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import live

from .reporting_world import (
    PERIOD,
    SERVERS,
    STARS,
    TABLE,
    World,
    make_store,
    make_task,
    reporter,
)

TASK = make_task()
RUN = task_id(TASK).hex()


def reported(store: DeviceStore, *answers: int | str, **options: Any) -> World:
    """A world in which a device has reported in a period."""
    world = World()
    world.publish(task=TASK)
    world.answers = list(answers)
    live(reporter(store, world, 0.5, **options), world, PERIOD + 200)
    return world


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_a_receipt_says_who_asked_what_left_and_what_was_answered(tmp_path: Path):
    store = make_store()
    authority = ensure_certificates(tmp_path, ["shop.example"]).authority.read_bytes()
    store.change_recommender(authority=authority)
    world = reported(store)
    ((_, _, body),) = world.uploads
    found = read_receipt(receipt_of(store, RUN).to_json())
    assert found.run == RUN
    assert found.asked_by == Requester(
        recommender="https://films.example",
        authority=(digest(authority),),
        leader=Organisation(name="Leaders", url="https://leaders.example:8443"),
        helper=Organisation(name="Helpers", url="https://helpers.example:8443"),
        servers=SERVERS.digest,
    )
    assert store.pinned_catalogue is not None
    assert found.terms == UnderTerms(
        method="hdp-sum", view="two-servers", epsilon=0.5, rounds=1, minimum=100,
        catalogue=store.pinned_catalogue.version_digest, catalogue_version=1,
    )  # fmt: skip
    (piece,) = found.left
    assert (piece.number, piece.size, piece.sha256, piece.answer) == (
        0,
        len(body),
        digest(body),
        201,
    )
    assert piece.answered is not None
    assert found.made >= piece.answered >= piece.at
    assert found.complete
    assert (found.more, found.given_back) == (0, 0.0)
    assert found.device == store.identity.public.hex()
    assert found.sent_as == (found.device,)
    assert [entry.action for entry in found.happened] == ["agreed", "sent"]
    assert "right at most 63 % of the time" in found.reveals
    assert found.cost["pure_epsilon"] == pytest.approx(0.5)
    assert "no proof that anybody got the bytes" in found.proves


def test_the_same_bytes_sent_again_are_one_piece_with_the_last_answer():
    store = make_store()
    world = reported(store, "silent", 503, 404, 201)
    assert len(world.uploads) == 4
    (piece,) = receipt_of(store, RUN).left
    assert (piece.sha256, piece.answer) == (digest(world.uploads[0][2]), 201)


def test_what_the_leader_refused_or_never_answered_is_said():
    store = make_store()
    reported(store, 403)
    assert [piece.answer for piece in receipt_of(store, RUN).left] == [403]
    silent, world = make_store(), World()
    world.publish(task=TASK)
    world.otherwise = "silent"
    live(reporter(silent, world, 0.5), world, PERIOD + 200)
    (piece,) = receipt_of(silent, RUN).left
    assert (piece.answer, piece.answered) == (None, None)
    busy, world = make_store(), World()
    world.publish(task=TASK)
    world.otherwise = 503
    live(reporter(busy, world, 0.5), world, PERIOD + 200)
    assert [piece.answer for piece in receipt_of(busy, RUN).left] == [503]


def test_for_what_never_left_there_is_no_receipt():
    store, world = make_store(), World()
    world.publish(task=TASK)
    world.otherwise = "unreachable"
    live(reporter(store, world, 0.5), world, PERIOD + 200)
    with pytest.raises(ConfigError, match="nothing of this run has left"):
        receipt_of(store, RUN)
    with pytest.raises(ConfigError, match=r"there is no run '77'.*none"):
        receipt_of(store, "77")
    assert all_receipts(store) == []


# By masks, and in clear


# What is not in it


def secret_store(stars: dict[str, float], weight: float) -> DeviceStore:
    store = make_store(stars)
    store.set_weight(beta=weight)
    return store


def test_a_receipt_holds_no_rating_no_weight_and_no_item():
    store = secret_store(STARS, 0.53125)
    store.set_weight(item="item 02", gamma=0.28125)
    reported(store)
    text = receipt_of(store, RUN).to_json().decode()
    assert not [item for item in TABLE.ids if item in text]
    for weight in (0.53125, 0.28125, 0.53125 * 0.28125, 0.5 * 0.53125):
        assert str(weight) not in text
    record = store.tables.sent_runs.find(RUN)
    assert record is not None
    assert b"item 0" not in msgspec.msgpack.encode(record)


def test_whatever_was_rated_the_receipt_is_the_same():
    found = []
    for stars, weight in ((STARS, 1.0), ({"item 03": 1.0}, 0.25), ({}, 0.5)):
        store = secret_store(stars, weight)
        world = reported(store)
        own = {digest(world.uploads[0][2]), store.identity.public.hex()}
        plain = json.loads(receipt_of(store, RUN).to_json())
        assert plain.pop("signature")
        assert plain.pop("device") in own
        assert plain.pop("sent_as") == [store.identity.public.hex()]
        assert plain["left"][0].pop("sha256") in own
        found.append(_without_times(plain))
    assert found[0] == found[1] == found[2]


def _without_times(plain: Any) -> Any:
    if isinstance(plain, dict):
        times = ("at", "made", "answered")
        return {
            name: "" if name in times else _without_times(value) for name, value in plain.items()
        }
    return [_without_times(each) for each in plain] if isinstance(plain, list) else plain


def test_the_report_is_the_same_length_and_leaves_at_the_same_time_on_a_store_that_keeps_receipts(
    monkeypatch: pytest.MonkeyPatch,
):
    """What is written for receipts changes nothing that can be seen."""
    requests = []
    for keeps in (True, False):
        with monkeypatch.context() as patched:
            if not keeps:
                patched.setattr(
                    "hdpmf.private.device.outbox.reports.report_leaves", lambda *given: None
                )
                patched.setattr(
                    "hdpmf.private.device.outbox.reports.record_leader_response",
                    lambda *given, last: None,
                )
            requests.append(reported(make_store(), 503, 201).requests)
    assert requests[0] == requests[1]


def test_a_full_disk_before_a_report_leaves_keeps_it_here(monkeypatch: pytest.MonkeyPatch):
    store, world = make_store(), World()
    world.publish(task=TASK)

    def put(row: object) -> None:
        raise StorageError("the disk is full")

    device = reporter(store, world, 0.1)
    with monkeypatch.context() as broken:
        broken.setattr(store.tables.sent_runs, "put", put)
        live(device, world, PERIOD / 2)
        assert world.uploads == []
        assert store.ledger.spent_total() == 0.0  # it is held, and not paid
    live(device, world, PERIOD / 2 - 100)
    assert len({body for _, _, body in world.uploads}) == 1
    assert len(receipt_of(store, RUN).left) == 1


# Older runs, other keys


# The reader

_DEVICE = Identity(bytes(range(32)))
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def sign(unsigned: Receipt) -> Receipt:
    return msgspec.structs.replace(unsigned, signature=_DEVICE.sign(unsigned.signed).hex())


_RECEIPTS = st.builds(
    Receipt,
    made=_TEXT,
    device=st.just(_DEVICE.public.hex()),
    sent_as=st.lists(_TEXT, max_size=2).map(tuple),
    run=_TEXT,
    asked_by=st.builds(
        Requester,
        recommender=_TEXT,
        authority=st.lists(_TEXT, max_size=2).map(tuple),
        leader=st.none() | st.builds(Organisation, name=_TEXT, url=_TEXT),
        servers=st.none() | _TEXT,
    ),
    terms=st.builds(
        UnderTerms,
        method=_TEXT,
        view=_TEXT,
        epsilon=st.none() | _FLOATS,
        rounds=st.integers(0, 1 << 40),
    ),
    complete=st.booleans(),
    left=st.lists(
        st.builds(
            SentRecord,
            number=st.integers(0, 9),
            at=_TEXT,
            size=st.integers(0, 1 << 50),
            sha256=st.none() | _TEXT,
        ),
        max_size=3,
    ).map(tuple),
    given_back=_FLOATS,
    happened=st.lists(
        st.builds(LedgerEvent, at=_TEXT, action=_TEXT, number=st.integers(0, 9), words=_TEXT),
        max_size=2,
    ).map(tuple),
    sees=_TEXT,
    reveals=_TEXT,
    cost=st.dictionaries(_TEXT, st.none() | st.booleans() | _FLOATS | _TEXT, max_size=3),
    signature=st.just(""),
).map(sign)


@given(_RECEIPTS)
def test_what_was_written_is_read(receipt: Receipt):
    assert read_receipt(receipt.to_json()) == receipt
    assert read_receipt(json.dumps(receipt.fields(), indent=3).encode()) == receipt


@given(_RECEIPTS, st.data())
def test_a_change_is_noticed(receipt: Receipt, data: st.DataObject):
    text = bytearray(receipt.to_json())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    try:
        found = read_receipt(bytes(text))
    except ConfigError:
        return
    assert found.fields() | {"signature": ""} == receipt.fields() | {"signature": ""}
    assert found.signature.lower() == receipt.signature


@given(
    st.binary(max_size=200)
    | st.text().map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["format", "version", "left", "cost"]), inner)
        ),
        max_leaves=8,
    ).map(lambda plain: json.dumps(plain).encode())
)
def test_nothing_else_is_a_receipt(data: bytes):
    with pytest.raises(ConfigError):
        read_receipt(data)


def _example() -> Receipt:
    store = make_store()
    reported(store)
    return receipt_of(store, RUN)


def test_wrong_receipts_are_refused_with_a_word():
    receipt = _example()
    plain = receipt.fields()
    text = receipt.to_json().decode()

    def refused(data: str | bytes, word: str) -> None:
        with pytest.raises(ConfigError, match=word):
            read_receipt(data if isinstance(data, bytes) else data.encode())

    refused(json.dumps(plain | {"version": 2}), "newer")
    refused(json.dumps(plain | {"version": True}), "no receipt")
    refused(json.dumps(plain | {"format": "other", "version": 9}), "no receipt")
    refused(json.dumps(plain | {"more": 1}), "does not hold")
    refused(json.dumps(plain | {"unknown": 1}), "no receipt")
    refused(json.dumps(plain | {"device": Identity.generate().public.hex()}), "does not hold")
    refused(json.dumps(plain | {"device": "xx"}), "no receipt")
    refused(json.dumps(plain | {"signature": ""}), "does not hold")
    refused(json.dumps(plain | {"given_back": float("nan")}), "no receipt")
    refused(json.dumps(plain | {"sees": "\ud800"}), "no receipt")
    refused(text.replace('"more":0', '"more":1,"more":0'), "no receipt")
    refused("[" * 100_000, "no receipt")
    refused(b" " * (MOST_BYTES + 1), "at most")
    refused(b"\xff", "no receipt")
