import contextlib
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import decode_to_device, decode_to_recommender, encode
from hdpmf.common.aggregation.masks.messages import (
    CHECK_BYTES,
    MAX_BYTES,
    MAX_LENGTH,
    MAX_NEIGHBOURS,
    MAX_PARTNERS,
    SEALED_BYTES,
    Advertisement,
    Confirmation,
    Confirmations,
    DealtShares,
    DeviceKeys,
    Inbox,
    MaskedVector,
    PartnerKeys,
    SumPlan,
    Survivors,
    Unmasking,
)
from hdpmf.common.aggregation.masks.primitives import add_mask
from hdpmf.common.aggregation.masks.roster import bitmap
from hdpmf.common.aggregation.masks.shamir import SHARE_BYTES
from hdpmf.errors import SecureSumError

SESSION = bytes(range(16))


def exactly(size):
    return st.binary(min_size=size, max_size=size)


def parts(size):
    return st.dictionaries(st.integers(0, 2**16 - 1), exactly(size), max_size=5)


SESSIONS = exactly(16)
KEYS = st.builds(
    DeviceKeys,
    channel=exactly(31).map(lambda b: b"c" + b),
    mask=exactly(31).map(lambda b: b"m" + b),
    commitment=exactly(32),
    signature=exactly(64),
)
PLANS = st.builds(
    SumPlan,
    session=SESSIONS,
    roster=exactly(32),
    participants=st.just(bitmap(list(range(20)), 30)),
    length=st.integers(1, MAX_LENGTH),
    neighbours=st.just(10),
    threshold=st.integers(6, 10),
    minimum=st.integers(11, 20),
)
PAIRS = st.dictionaries(
    st.integers(0, 2**16 - 1), st.tuples(exactly(SEALED_BYTES), exactly(CHECK_BYTES)), max_size=5
).map(
    lambda both: (
        {peer: pair[0] for peer, pair in both.items()},
        {peer: pair[1] for peer, pair in both.items()},
    )
)
INBOXES = st.builds(
    lambda session, pairs: Inbox(
        session=session, partners=(*pairs[0], 7), sealed=pairs[0], checks=pairs[1]
    ),
    SESSIONS,
    PAIRS,
)
DEALT = st.builds(
    lambda session, pairs: DealtShares(session=session, sealed=pairs[0], checks=pairs[1]),
    SESSIONS,
    PAIRS,
)
TO_DEVICE = st.one_of(
    PLANS,
    st.builds(
        PartnerKeys, session=SESSIONS, keys=st.dictionaries(st.integers(0, 99), KEYS, max_size=3)
    ),
    INBOXES,
    st.builds(Survivors, session=SESSIONS, survivors=st.binary(max_size=20)),
    st.builds(Confirmations, session=SESSIONS, signatures=parts(64)),
)
TO_RECOMMENDER = st.one_of(
    st.builds(Advertisement, session=SESSIONS, keys=KEYS, draw=exactly(32)),
    DEALT,
    st.builds(
        MaskedVector, session=SESSIONS, words=st.integers(1, 9).flatmap(lambda n: exactly(4 * n))
    ),
    st.builds(Confirmation, session=SESSIONS, signature=exactly(64)),
    st.builds(Unmasking, session=SESSIONS, seeds=parts(SHARE_BYTES), keys=st.just({})),
)
EITHER = st.tuples(TO_DEVICE, st.just(decode_to_device)) | st.tuples(
    TO_RECOMMENDER, st.just(decode_to_recommender)
)


@given(EITHER)
def test_messages_survive_the_wire(pair):
    message, decode = pair
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_or_our_error(data):
    for decode in (decode_to_device, decode_to_recommender):
        with contextlib.suppress(SecureSumError):
            decode(data)


@given(EITHER, st.data())
def test_damaged_messages_give_a_message_or_our_error(pair, data):
    message, decode = pair
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        with contextlib.suppress(SecureSumError):
            decode(damaged)


@given(TO_DEVICE)
def test_a_message_to_devices_is_none_to_the_recommender(message):
    with pytest.raises(SecureSumError):
        decode_to_recommender(encode(message))


def test_unknown_fields_and_other_versions_are_refused():
    plain = msgspec.msgpack.decode(encode(Confirmation(session=SESSION, signature=bytes(64))))
    with pytest.raises(SecureSumError, match="unknown field"):
        decode_to_recommender(msgspec.msgpack.encode(plain | {"extra": 1}))
    with pytest.raises(SecureSumError, match="version 1"):
        decode_to_recommender(msgspec.msgpack.encode(plain | {"version": 1}))


def test_huge_messages_are_refused_before_they_are_read():
    with pytest.raises(SecureSumError, match="longer than the limit"):
        decode_to_recommender(bytes(MAX_BYTES + 1))
    with pytest.raises(SecureSumError, match="longer than the limit of 100"):
        decode_to_device(bytes(101), max_bytes=100)
    # A length that promises more than there is does not make room for it.
    with pytest.raises(SecureSumError):
        decode_to_recommender(b"\x82\xa4type\xacMaskedVector\xa5words\xc6\xff\xff\xff\xff")


def test_deep_nesting_is_refused():
    with pytest.raises(SecureSumError):
        decode_to_device(b"\x82\xa4type\xa5Inbox\xa6sealed" + b"\x91" * 5000 + b"\xc0")


def plan(**changes):
    fields = {
        "session": SESSION,
        "roster": bytes(32),
        "participants": bitmap(list(range(20)), 20),
        "length": 5,
        "neighbours": 10,
        "threshold": 7,
        "minimum": 14,
    }
    return SumPlan(**fields | changes)


def keys(**changes):
    fields = {
        "channel": bytes(32),
        "mask": b"m" * 32,
        "commitment": bytes(32),
        "signature": bytes(64),
    }
    return DeviceKeys(**fields | changes)


def dealt(sealed, checks=None):
    checks = dict.fromkeys(sealed, bytes(CHECK_BYTES)) if checks is None else checks
    return DealtShares(session=SESSION, sealed=sealed, checks=checks)


@pytest.mark.parametrize(
    "make",
    [
        lambda: plan(session=b"short"),
        lambda: plan(roster=b"short"),
        lambda: plan(length=0),
        lambda: plan(length=MAX_LENGTH + 1),
        lambda: plan(participants=bitmap([0, 1], 20)),
        lambda: plan(participants=bytes(10_000)),
        lambda: plan(neighbours=0),
        lambda: plan(neighbours=MAX_NEIGHBOURS + 2),
        lambda: plan(threshold=5),
        lambda: plan(threshold=-1),
        lambda: plan(threshold=11),
        lambda: plan(minimum=7),
        lambda: plan(minimum=21),
        lambda: keys(channel=b"short"),
        lambda: keys(signature=bytes(63)),
        lambda: keys(mask=bytes(32)),
        lambda: PartnerKeys(session=SESSION, keys=dict.fromkeys(range(MAX_PARTNERS + 1), keys())),
        lambda: dealt({0: b"short"}),
        lambda: dealt({-1: bytes(SEALED_BYTES)}),
        lambda: dealt({2**16: bytes(SEALED_BYTES)}),
        lambda: dealt(dict.fromkeys(range(MAX_PARTNERS + 1), bytes(SEALED_BYTES))),
        lambda: dealt({0: bytes(SEALED_BYTES)}, {}),
        lambda: dealt({0: bytes(SEALED_BYTES)}, {0: b"short"}),
        lambda: Inbox(
            session=SESSION, partners=tuple(range(MAX_PARTNERS + 1)), sealed={}, checks={}
        ),
        lambda: Inbox(session=SESSION, partners=(0,), sealed={0: bytes(SEALED_BYTES)}, checks={}),
        lambda: Advertisement(session=SESSION, keys=keys(), draw=b"short"),
        lambda: MaskedVector(session=SESSION, words=b""),
        lambda: MaskedVector(session=SESSION, words=b"12345"),
        lambda: Survivors(session=SESSION, survivors=bytes(10_000)),
        lambda: Confirmation(session=SESSION, signature=b""),
        lambda: Confirmations(session=SESSION, signatures={0: b""}),
        lambda: Unmasking(session=SESSION, seeds={0: b""}, keys={}),
        lambda: Unmasking(
            session=SESSION, seeds={0: bytes(SHARE_BYTES)}, keys={0: bytes(SHARE_BYTES)}
        ),
    ],
)
def test_what_cannot_be_right_is_refused(make):
    with pytest.raises(SecureSumError):
        make()


def test_every_field_of_a_plan_is_in_its_digest():
    changes = {
        "session": bytes(16),
        "roster": b"r" * 32,
        "participants": bitmap(list(range(1, 20)), 20),
        "length": 6,
        "neighbours": 12,
        "threshold": 8,
        "minimum": 15,
        "wide": True,
    }
    digests = {plan().digest} | {plan(**{name: value}).digest for name, value in changes.items()}
    assert len(digests) == len(changes) + 1
    assert set(changes) | {"version"} == set(SumPlan.__struct_fields__)


def test_masks_are_the_published_keystream():
    """RFC 8439, appendix A.1, test vector 1."""
    words = np.zeros(16, "<u4")
    add_mask(words, bytes(32))
    assert (
        words.tobytes()
        .hex()
        .startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    )
    add_mask(words, bytes(32), subtract=True)
    assert not words.any()


def test_without_cryptography_the_package_works_and_secure_sums_say_what_to_install():
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import hdpmf, hdpmf.errors\n"
        "try:\n    import hdpmf.common.aggregation.masks\n"
        "except hdpmf.errors.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'hdpmf[federation]'" in done.stdout
