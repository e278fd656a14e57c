"""What is sealed opens with the passphrase, in its place, unchanged; and not otherwise."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.store import encryption
from hdpmf.private.device.store.encryption import StoreCipher

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(encryption, "SCRYPT_COST", 16)
    VAULT = StoreCipher.new("passphrase")


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_what_is_sealed_opens(data: bytes, about: bytes) -> None:
    assert VAULT.open(VAULT.seal(data, about), about) == data


@settings(max_examples=50)
@given(st.binary(max_size=100), st.data())
def test_a_changed_bit_is_found(data: bytes, draw: st.DataObject) -> None:
    sealed = bytearray(VAULT.seal(data, b"here"))
    at = draw.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[at // 8] ^= 1 << at % 8
    with pytest.raises(StorageError, match="tampered"):
        VAULT.open(bytes(sealed), b"here")


def test_a_record_in_another_place_does_not_open() -> None:
    with pytest.raises(StorageError, match="tampered"):
        VAULT.open(VAULT.seal(b"data", b"here"), b"there")
    with pytest.raises(StorageError, match="tampered"):
        VAULT.open(b"short", b"here")


def test_it_opens_again_with_its_passphrase() -> None:
    again = StoreCipher.unlock(VAULT.header(), "passphrase")
    assert again.open(VAULT.seal(b"data", b"here"), b"here") == b"data"
    assert again.tag(b"pair", "user", "item") == VAULT.tag(b"pair", "user", "item")
    for wrong in ("Passphrase", "passphrase ", None):
        with pytest.raises(PrivacyError):
            StoreCipher.unlock(VAULT.header(), wrong)


def test_lengths_say_little_and_nothing_comes_twice() -> None:
    lengths = Counter(len(VAULT.seal(b"x" * size, b"")) for size in range(64))
    assert set(lengths.values()) == {64}
    assert len({VAULT.seal(b"the same", b"") for _ in range(100)}) == 100


PLAIN = bytes.fromhex(
    "84a46b696e64a5706c61696ea473616c74c400a4636f737400a36b6579c420000102030405060708090a0b0c0d0e0f101112131415161718191a"
    "1b1c1d1e1f"
)


def test_a_header_may_ask_for_so_much_work_and_no_more() -> None:
    def header(cost: int) -> bytes:
        return msgspec.msgpack.encode(
            {"kind": "scrypt", "salt": bytes(16), "cost": cost, "key": bytes(60)}
        )

    for cost in (2, 16, 1 << 20):
        assert StoreCipher.needs_passphrase(header(cost))
    for cost in (-2, 0, 1, 3, 24, 1 << 21):
        with pytest.raises(StorageError, match="impossible amount of work"):
            StoreCipher.needs_passphrase(header(cost))
    assert not StoreCipher.needs_passphrase(PLAIN)
