"""TurboSHAKE128 against its RFC and against PyCryptodome."""

from __future__ import annotations

import pytest
from Crypto.Hash import TurboSHAKE128

from hdpmf.common.aggregation.two_servers.prio.xof import derive_seed, turboshake128


def test_the_answer_of_the_rfc():
    # RFC 9861, section 5: TurboSHAKE128(M = empty, D = 1F, 32 bytes)
    expected = "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"
    assert turboshake128(b"", 0x1F, 4).tobytes().hex() == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 166, 167, 168, 169, 335, 336, 1000])
def test_any_length_in_and_out(size: int):
    message = bytes(i * i % 251 for i in range(size))
    for count in (1, 21, 22, 63):
        theirs = TurboSHAKE128.new(data=message, domain=1).read(8 * count)
        assert turboshake128(message, 1, count).tobytes() == theirs


def test_tag_seed_and_binder_are_kept_apart():
    theirs = TurboSHAKE128.new(data=b"\x03tagseedbinder", domain=1).read(13)
    assert derive_seed(b"tag", b"seed", b"binder", 13) == theirs
    assert derive_seed(b"tags", b"eed", b"binder", 13) != theirs
