"""What version 2 of the secure sums computes, byte for byte: devices of two releases must agree
with each other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import primitives
from hdpmf.common.aggregation.masks.plan import (
    SumPolicy,
    commitment_of,
    is_safe,
    keys_text,
    pair_check,
    pair_info,
    propose,
    risks,
    safe_sizes,
    self_mask_key,
    smallest_threshold,
    survivors_text,
)
from hdpmf.common.aggregation.masks.primitives import (
    Agreement,
    add_mask,
    is_identity_key,
    is_low_order,
    seal,
    unseal,
)
from hdpmf.common.aggregation.masks.roster import (
    DeviceIdentity,
    Roster,
    bitmap,
    bitmap_size,
    draw_holders,
    read_bitmap,
)
from hdpmf.errors import SecureSumError

DIGEST = bytes(range(32))
DEVICES = [DeviceIdentity(bytes([number]) * 32) for number in range(70)]
ROSTER = Roster(device.public for device in DEVICES)


def test_texts_that_are_signed_or_committed_to() -> None:
    known = {
        keys_text(
            DIGEST, 258, b"c" * 32, b"m" * 32, b"k" * 32
        ): "f9db82b84eb4c770ffa1eba28451c8c80868ae133dc0780031b5bd8a4b6c5d57",
        survivors_text(
            DIGEST, 258, b"\7"
        ): "7438ac96fcd6694ed0f93165af18cfa7540388a69ef5c85724150e14e9615eef",
        pair_check(
            DIGEST, 1, 258, b"s" * 33 + b"k" * 33
        ): "d0cb1dd1801569330020312329be3ff529c1103c390a00d88fc1101745c"
        "bb54d8d89b152d182b3e7f675d76eef96d2eccd615ee97de32e509b60e0454d1ab0f9",
        commitment_of(
            DIGEST, b"s" * 32
        ): "2bf6dfd1eb77a13a8331b4fbe325f9d7efcfda5363252933bea734902abacc88",
        self_mask_key(
            DIGEST, b"s" * 32
        ): "6b9ee7925bb2866d2155d3176a6e029ba83068eadbbc0cb38a0163f1a1e9b489",
        Roster(
            device.public for device in DEVICES[:4]
        ).digest: "41a98de0619207922fa4d26fd948ff32d3c45d6f6c9ab72dba68ac4407433a54",
    }
    assert [text.hex() for text in known] == list(known.values())
    assert pair_info(b"x", 258, 1) == pair_info(b"x", 1, 258) == b"x\1\0\0\0\2\1\0\0"


def test_keys_masks_and_seals() -> None:
    ours, theirs = Agreement(b"a" * 32), Agreement(b"b" * 32)
    both = ours.key(theirs.public, DIGEST, b"info", 64)
    assert both.hex() == (
        "efc8ebc67f9ffdd630da940e47ca71fa2058fb7d562afcdc71c520b396078ffb"
        "1fe58b6d4a984bb660a7fafa0c165998fe51f7cbf05de53461629ca7fa4996a5"
    )
    assert theirs.key(ours.public, DIGEST, b"info") == both[:32]
    narrow, wide = np.arange(3, dtype="<u4"), np.arange(3, dtype="<u8")
    add_mask(narrow, DIGEST)
    add_mask(wide, DIGEST, subtract=True)
    assert narrow.tolist() == [2100034873, 1780073946, 1996733839]
    assert wide.tolist() == [10801384693372814023, 13165467875835396724, 3716913641529264760]
    sealed = seal(DIGEST, b"text")
    assert sealed.hex() == "6cdd3a45d8b927e651be27421f63383ec09130d0"
    assert unseal(DIGEST, sealed) == b"text"
    assert unseal(bytes(32), sealed) is None


def test_a_long_mask_is_one_key_stream() -> None:
    words = np.zeros(3 * primitives._BLOCK_BYTES // 4 + 5, "<u4")
    add_mask(words, DIGEST)
    assert words[:3].tolist() == [2100034873, 1780073945, 1996733837]
    assert len(np.unique(words)) > len(words) - 20  # no piece of it comes twice
    add_mask(words, DIGEST, subtract=True)
    assert not words.any()


def test_holders_are_drawn_as_others_draw_them() -> None:
    asked = np.arange(0, 40, 2)
    assert draw_holders(asked, 6, 5, DIGEST) == (4, 10, 16, 22, 38)
    everyone = tuple(place for place in range(0, 40, 2) if place != 6)
    assert draw_holders(asked, 6, 19, DIGEST) == draw_holders(asked, 6, 40, DIGEST) == everyone
    most = draw_holders(asked, 6, 18, DIGEST)
    assert len(most) == 18
    assert set(most) < set(everyone)


def test_bitmaps() -> None:
    assert bitmap([0, 9, 10], 17) == bytes([1, 6, 0])
    assert read_bitmap(bytes([1, 6, 0])).tolist() == [0, 9, 10]
    assert [bitmap_size(n) for n in (1, 8, 9, 16, 17)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold_fraction": Fraction(49, 100)},
        {"threshold_fraction": Fraction(1)},
        {"min_survivors": 1},
        {"min_neighbours": 0},
        {"max_colluding": Fraction(1)},
        {"max_colluding": Fraction(-1, 100)},
        {"min_fraction": Fraction(101, 100)},
        {"min_fraction": Fraction(-1, 100)},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SecureSumError):
        SumPolicy(**changes)  # type: ignore[arg-type]


def test_a_policy_at_its_limits() -> None:
    SumPolicy(
        threshold_fraction=Fraction(1, 2),
        min_survivors=2,
        min_neighbours=1,
        max_colluding=Fraction(0),
    )
    SumPolicy(max_colluding=Fraction(99, 100), min_fraction=Fraction(1))
    SumPolicy(min_fraction=Fraction(0))
    assert [SumPolicy().colluding(n) for n in (0, 1, 20, 21, 6040)] == [0, 1, 1, 2, 302]


POLICY = SumPolicy(
    min_survivors=20, min_neighbours=10, max_length=7, max_colluding=Fraction(0), max_risk=1.0
)


def test_a_plan_just_good_enough_and_just_not() -> None:
    right = {"length": 7, "neighbours": 10, "threshold": 7, "minimum": 20}

    def offers(roster: int = 70, **changes: int) -> None:
        POLICY.check(propose(ROSTER, **(right | changes)), roster)  # type: ignore[arg-type]

    offers()
    offers(roster=200)  # a tenth of it
    for worse in (
        {"length": 8},
        {"neighbours": 9},
        {"threshold": 6},
        {"minimum": 19},
        {"roster": 201},
    ):
        with pytest.raises(SecureSumError, match="this device"):
            offers(**worse)


def test_few_devices_have_everyone_as_neighbours() -> None:
    small = Roster(ROSTER.keys[:6])
    policy = SumPolicy(min_survivors=3, max_colluding=Fraction(0), max_risk=1.0)
    policy.check(propose(small, 1, neighbours=5, minimum=5), 6)
    with pytest.raises(SecureSumError, match="4 neighbours"):
        policy.check(propose(small, 1, neighbours=4, minimum=5), 6)


def test_two_honest_survivors_are_the_fewest() -> None:
    assert is_safe(12, 12, 11, 11, 10, max_risk=1.0)
    assert not is_safe(12, 12, 11, 11, 11, max_risk=1.0)
    assert is_safe(12, 12, 11, 11, 0, max_risk=0.0)


def test_sizes_that_devices_agree_to() -> None:
    """Two thirds of 64 for few colluders; three quarters of more where it takes them; everyone
    where nothing helps.
    """
    assert safe_sizes(30, 30) == (29, smallest_threshold(29))
    assert safe_sizes(200, 200, colluding=Fraction(0)) == (64, 43)
    degree, threshold = safe_sizes(6040, 6040)
    assert (degree, threshold) == (66, 50)
    assert is_safe(6040, 6040, degree, threshold, 302)
    assert not is_safe(6040, 6040, 64, smallest_threshold(64), 302)
    assert safe_sizes(40, 4000)[0] == 39


def test_what_is_proposed_by_default() -> None:
    plan = propose(ROSTER, 3)
    assert read_bitmap(plan.participants).tolist() == list(range(70))
    assert (plan.neighbours, plan.threshold) == safe_sizes(70, 70)
    assert plan.minimum == max(plan.threshold + 1, smallest_threshold(70))
    assert (plan.length, plan.wide, len(plan.session)) == (3, False, 16)
    chosen = propose(ROSTER, 3, participants=[5, 3, 69, 5, 0], wide=True)
    assert read_bitmap(chosen.participants).tolist() == [0, 3, 5, 69]
    assert chosen.wide
    assert chosen.minimum == 4
    for wrong in ([], [-1, 2, 3], [1, 2, 70]):
        with pytest.raises(SecureSumError, match="numbers on the roster"):
            propose(ROSTER, 3, participants=wrong)


def test_identities() -> None:
    assert DEVICES[1].sign(b"text").hex() == (
        "801e6169ef38b9af314b5dac2aef55728dc5b21871858070414593b8f3635fbd"
        "dc7bda28b3728faa4c923c68db1061cf07cc84d2e867cdafb32660629675a609"
    )
    for size in (31, 33):
        with pytest.raises(SecureSumError, match="32 bytes"):
            DeviceIdentity(bytes(size))
    with pytest.raises(SecureSumError, match="32 bytes"):
        Roster([*ROSTER.keys[:3], bytes(31)])
    for keys in (ROSTER.keys[:2], ()):
        with pytest.raises(SecureSumError, match="3 to"):
            Roster(keys)
    assert len(Roster(ROSTER.keys[:3])) == 3
    signature = DEVICES[69].sign(b"text")
    assert ROSTER.verifies(69, signature, b"text")
    for place in (-1, 70, 68):
        assert not ROSTER.verifies(place, signature, b"text")


def test_which_bytes_are_an_identity() -> None:
    """Half of all numbers are on the curve; a key is one that has a secret and cannot be written
    in two ways.
    """
    assert all(is_identity_key(device.public) for device in DEVICES)
    found = [is_identity_key(number.to_bytes(32, "little")) for number in range(2, 42)]
    on_the_curve = [_on_the_curve(number) for number in range(2, 42)]
    assert found == on_the_curve
    assert 10 < sum(found) < 30
    assert not is_identity_key(DEVICES[0].public + b"\0")
    assert not is_identity_key(DEVICES[0].public[:31])
    assert is_low_order(bytes(32))
    assert not is_low_order(Agreement(b"a" * 32).public)


def _on_the_curve(y: int) -> bool:
    """-x^2 + y^2 = 1 + d x^2 y^2 has an x."""
    prime = 2**255 - 19
    d = -121665 * pow(121666, -1, prime)
    square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
    return square == 0 or pow(square, (prime - 1) // 2, prime) == 1


def test_more_holders_than_others_are_all_others() -> None:
    for neighbours in (12, 13, 64):
        assert risks(12, neighbours, 8, colluding=5, dropping=4) == risks(
            12, 11, 8, colluding=5, dropping=4
        )
    assert risks(12, 10, 8, colluding=5, dropping=4) != risks(12, 11, 8, colluding=5, dropping=4)
    risks(12, 11, 11, colluding=11, dropping=11)
    risks(12, 11, 6, colluding=0, dropping=0)
    for wrong in ((8, 12, 0), (8, 0, 12), (8, -1, 0), (8, 0, -1), (5, 0, 0), (12, 0, 0)):
        with pytest.raises(SecureSumError, match="among the other devices"):
            risks(12, 11, wrong[0], colluding=wrong[1], dropping=wrong[2])
