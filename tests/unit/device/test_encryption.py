"""What is sealed opens with the passphrase, in its place, unchanged; and not otherwise."""

from __future__ import annotations

import subprocess
import sys
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


def test_tags_need_the_key_and_keep_parts_apart() -> None:
    other = StoreCipher.new("passphrase")
    assert other.tag(b"pair", "user", "item") != VAULT.tag(b"pair", "user", "item")
    told_apart = {
        VAULT.tag(b"pair", "ab", "c"),
        VAULT.tag(b"pair", "a", "bc"),
        VAULT.tag(b"user", "ab", "c"),
    }
    assert len(told_apart) == 3


def test_a_damaged_header() -> None:
    with pytest.raises(StorageError, match="damaged"):
        StoreCipher.unlock(b"nonsense", "passphrase")
    fields = msgspec.msgpack.decode(VAULT.header())
    for cost in (3, 1 << 40, 0):  # a tampered file must not be able to fill the memory
        with pytest.raises(StorageError, match="impossible"):
            StoreCipher.unlock(msgspec.msgpack.encode(fields | {"cost": cost}), "passphrase")


def test_repr_says_nothing() -> None:
    assert repr(VAULT) == "StoreCipher(encrypted)"
    assert repr(StoreCipher.new()) == "StoreCipher(plain)"


def test_without_the_package_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from hdpmf.private.device.store.encryption import StoreCipher\n"
        "from hdpmf.errors import MissingExtraError\n"
        "StoreCipher.new()\n"
        "try:\n    StoreCipher.new('passphrase')\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "hdpmf[federation]" in ended.stdout


HEADER = bytes.fromhex(
    "84a46b696e64a6736372797074a473616c74c410000102030405060708090a0b0c0d0e0fa4636f737410a36b6579c45c00010203040506070809"
    "0a0b6c32dfa872fe3b1b5e303bb110f35221fa473d07716dfedb1a9f22d9de425980846bbb138736e0f5fe2039180e818351203efc1654034e64"
    "a17cdd18814ff4139a015518bd03366656f6df6656e5f8d0"
)
PLAIN = bytes.fromhex(
    "84a46b696e64a5706c61696ea473616c74c400a4636f737400a36b6579c420000102030405060708090a0b0c0d0e0f101112131415161718191a"
    "1b1c1d1e1f"
)
SEALED = bytes.fromhex(
    "000102030405060708090a0b6fcf0a6db5760d197a38f4af5dcd0c30aed6ad90748b5996c622e4e7a48377b6df3938daa2b8e4c82783edc054b0"
    "29f7db5da88feb55f34acae558a0db8a2d899931707a936d7955f9a2415e0d52603e"
)


def test_what_was_written_before_opens_for_ever() -> None:
    """Header, record, digest and name as they are in files: with other ones nobody's store would
    open any more.
    """
    encrypted, plain = StoreCipher.unlock(HEADER, "horse"), StoreCipher.unlock(PLAIN)
    assert encrypted.open(SEALED, b"ratings") == b"a rating"
    for found in (encrypted, plain):
        assert (
            found.check(b"row").hex()
            == "1b08f52f8d89c566859e18a188d525fd4b00f592b4603d482f9f6a320623e765"
        )
        assert found.tag(b"user", "ana", "film").hex() == "e005516ff6c46242ce093713b47d0ec6"
    assert (encrypted.header(), plain.header()) == (HEADER, PLAIN)
    assert (encrypted.is_encrypted, plain.is_encrypted) == (True, False)


def test_new_vaults_are_written_like_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hdpmf.private.device.store.encryption.secrets.token_bytes", lambda n: bytes(range(n))
    )
    made = StoreCipher.new("horse")
    assert made.header() == HEADER
    assert made.seal(b"a rating", b"ratings") == SEALED
    assert StoreCipher.new().header() == PLAIN


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
