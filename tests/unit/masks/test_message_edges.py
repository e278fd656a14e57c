"""Every field of every message of a secure sum: the last value that is taken, and the first that
is not.
"""

from __future__ import annotations

from typing import Any

import pytest

from hdpmf.common.aggregation.masks import messages as m
from hdpmf.common.aggregation.masks.primitives import IntegerCoding
from hdpmf.common.aggregation.masks.roster import bitmap
from hdpmf.errors import SecureSumError

SESSION = bytes(16)
FIVE = bitmap([0, 1, 2, 3, 4], 5)
KEYS = m.DeviceKeys(channel=b"c" * 32, mask=b"m" * 32, commitment=b"k" * 32, signature=b"s" * 64)
SEALED, CHECK = bytes(m.SEALED_BYTES), bytes(m.CHECK_BYTES)
LAST = (1 << 16) - 1
GOOD: dict[type, dict[str, Any]] = {
    m.SumPlan: {
        "roster": bytes(32),
        "participants": FIVE,
        "length": 1,
        "neighbours": 4,
        "threshold": 3,
        "minimum": 4,
    },
    m.Advertisement: {"keys": KEYS, "draw": bytes(32)},
    m.PartnerKeys: {"keys": {0: KEYS}},
    m.DealtShares: {"sealed": {1: SEALED}, "checks": {1: CHECK}},
    m.Inbox: {"partners": (1,), "sealed": {1: SEALED}, "checks": {1: CHECK}},
    m.MaskedVector: {"words": bytes(4)},
    m.Survivors: {"survivors": FIVE},
    m.Confirmation: {"signature": bytes(64)},
    m.Confirmations: {"signatures": {1: bytes(64)}},
    m.Unmasking: {"seeds": {1: bytes(33)}, "keys": {2: bytes(33)}},
}
MANY = dict.fromkeys(range(m.MAX_PARTNERS), SEALED)
MANY_CHECKS = dict.fromkeys(range(m.MAX_PARTNERS), CHECK)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (m.SumPlan, {"length": m.MAX_LENGTH}),
        (m.SumPlan, {"length": m.MAX_LENGTH // 2, "wide": True}),
        (m.SumPlan, {"participants": bitmap([0, 1, 2], 3), "threshold": 2, "minimum": 3}),
        (m.SumPlan, {"participants": bitmap([0, 1, 2, 3, 4], 1 << 16)}),
        (m.SumPlan, {"neighbours": m.MAX_NEIGHBOURS}),
        (m.SumPlan, {"neighbours": 1, "threshold": 1, "minimum": 2}),
        (m.SumPlan, {"threshold": 4, "minimum": 5}),
        (m.DealtShares, {"sealed": MANY, "checks": MANY_CHECKS}),
        (m.DealtShares, {"sealed": {0: SEALED, LAST: SEALED}, "checks": {0: CHECK, LAST: CHECK}}),
        (m.DealtShares, {"sealed": {}, "checks": {}}),
        (m.Inbox, {"partners": tuple(range(m.MAX_PARTNERS))}),
        (m.PartnerKeys, {"keys": dict.fromkeys(range(m.MAX_PARTNERS), KEYS)}),
        (m.Survivors, {"survivors": bytes(1 << 13)}),
        (m.Unmasking, {"seeds": {0: bytes(33)}, "keys": {LAST: bytes(33)}}),
    ],
)
def test_the_last_that_is_taken(kind: type, changes: dict[str, Any]) -> None:
    kind(session=SESSION, **(GOOD[kind] | changes))


@pytest.mark.parametrize("kind", GOOD)
def test_session_and_version(kind: type) -> None:
    made = kind(session=SESSION, **GOOD[kind])
    assert made.version == 2
    for wrong in ({"session": bytes(15)}, {"session": bytes(17)}, {"version": 1}, {"version": 3}):
        with pytest.raises(SecureSumError):
            kind(**({"session": SESSION} | GOOD[kind] | wrong))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (m.SumPlan, {"roster": bytes(31)}),
        (m.SumPlan, {"length": 0}),
        (m.SumPlan, {"length": m.MAX_LENGTH + 1}),
        (m.SumPlan, {"length": m.MAX_LENGTH // 2 + 1, "wide": True}),
        (m.SumPlan, {"participants": bitmap([0, 1], 5), "threshold": 1, "minimum": 2}),
        (m.SumPlan, {"participants": FIVE + bytes(1 << 13)}),
        (m.SumPlan, {"neighbours": 0}),
        (m.SumPlan, {"neighbours": m.MAX_NEIGHBOURS + 1}),
        (m.SumPlan, {"threshold": 2}),
        (m.SumPlan, {"threshold": 5, "minimum": 5}),
        (m.SumPlan, {"minimum": 3}),
        (m.SumPlan, {"minimum": 6}),
        (m.Advertisement, {"draw": bytes(31)}),
        (m.PartnerKeys, {"keys": dict.fromkeys(range(m.MAX_PARTNERS + 1), KEYS)}),
        (m.DealtShares, {"sealed": {1: SEALED[:-1]}}),
        (m.DealtShares, {"checks": {1: CHECK + b"\0"}}),
        (m.DealtShares, {"checks": {2: CHECK}}),
        (m.DealtShares, {"sealed": {-1: SEALED}, "checks": {-1: CHECK}}),
        (m.DealtShares, {"sealed": {LAST + 1: SEALED}, "checks": {LAST + 1: CHECK}}),
        (m.DealtShares, {"sealed": MANY | {9999: SEALED}, "checks": MANY_CHECKS | {9999: CHECK}}),
        (m.Inbox, {"partners": tuple(range(m.MAX_PARTNERS + 1))}),
        (m.Inbox, {"sealed": {1: SEALED[:-1]}}),
        (m.Inbox, {"checks": {1: CHECK[:-1]}}),
        (m.Inbox, {"checks": {}}),
        (m.MaskedVector, {"words": b""}),
        (m.MaskedVector, {"words": bytes(6)}),
        (m.Survivors, {"survivors": bytes((1 << 13) + 1)}),
        (m.Confirmation, {"signature": bytes(63)}),
        (m.Confirmations, {"signatures": {1: bytes(63)}}),
        (m.Confirmations, {"signatures": {-1: bytes(64)}}),
        (m.Unmasking, {"seeds": {1: bytes(32)}}),
        (m.Unmasking, {"keys": {2: bytes(34)}}),
        (m.Unmasking, {"seeds": {1: bytes(33)}, "keys": {1: bytes(33)}}),
    ],
)
def test_the_first_that_is_not(kind: type, changes: dict[str, Any]) -> None:
    with pytest.raises(SecureSumError):
        kind(session=SESSION, **(GOOD[kind] | changes))


@pytest.mark.parametrize("name", ["channel", "mask", "commitment", "signature"])
def test_keys_have_their_lengths(name: str) -> None:
    whole = {
        field: getattr(KEYS, field) for field in ("channel", "mask", "commitment", "signature")
    }
    for wrong in (whole[name][:-1], whole[name] + b"\0"):
        with pytest.raises(SecureSumError, match=name):
            m.DeviceKeys(**(whole | {name: wrong}))
    with pytest.raises(SecureSumError, match="must differ"):
        m.DeviceKeys(**(whole | {"channel": whole["mask"]}))


def test_a_plan_counts_and_is_bound_to_all_of_it() -> None:
    plan = m.SumPlan(session=SESSION, **GOOD[m.SumPlan])
    assert (plan.n_participants, plan.degree, plan.word.itemsize) == (5, 4, 4)
    changes = (
        {"length": 2},
        {"wide": True},
        {"neighbours": 5},
        {"threshold": 4, "minimum": 5},
        {"minimum": 5},
        {"roster": b"r" * 32},
        {"participants": bitmap([0, 1, 2, 3, 5], 6)},
        {"session": b"s" * 16},
    )
    others = [
        m.SumPlan(**({"session": SESSION} | GOOD[m.SumPlan] | change)).digest for change in changes
    ]
    assert len({plan.digest, *others}) == 9
    assert plan.digest.hex()[:16] == "b95230d6a4bad7c1"


def test_the_bound_of_a_coding() -> None:
    for wide, bits in ((False, 32), (True, 64)):
        most = IntegerCoding.largest_bound(5, wide=wide)
        assert 2 * most * 5 < 1 << bits <= 2 * (most + 1) * 5
        IntegerCoding(most, 5, wide=wide)
        with pytest.raises(SecureSumError):
            IntegerCoding(most + 1, 5, wide=wide)
