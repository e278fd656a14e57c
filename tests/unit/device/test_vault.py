"""What is sealed opens with the passphrase, in its place, unchanged; and not otherwise."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.device import vault
from hdpmf.device.vault import Vault
from hdpmf.errors import PrivacyError, StorageError

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(vault, "SCRYPT_COST", 16)
    VAULT = Vault.new("passphrase")


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
    again = Vault.unlock(VAULT.header(), "passphrase")
    assert again.open(VAULT.seal(b"data", b"here"), b"here") == b"data"
    assert again.tag(b"pair", "user", "item") == VAULT.tag(b"pair", "user", "item")
    for wrong in ("Passphrase", "passphrase ", None):
        with pytest.raises(PrivacyError):
            Vault.unlock(VAULT.header(), wrong)


def test_lengths_say_little_and_nothing_comes_twice() -> None:
    lengths = Counter(len(VAULT.seal(b"x" * size, b"")) for size in range(64))
    assert set(lengths.values()) == {64}
    assert len({VAULT.seal(b"the same", b"") for _ in range(100)}) == 100


def test_tags_need_the_key_and_keep_parts_apart() -> None:
    other = Vault.new("passphrase")
    assert other.tag(b"pair", "user", "item") != VAULT.tag(b"pair", "user", "item")
    told_apart = {VAULT.tag(b"pair", "ab", "c"), VAULT.tag(b"pair", "a", "bc"), VAULT.tag(b"user", "ab", "c")}
    assert len(told_apart) == 3


def test_a_damaged_header() -> None:
    with pytest.raises(StorageError, match="damaged"):
        Vault.unlock(b"nonsense", "passphrase")
    fields = msgspec.msgpack.decode(VAULT.header())
    for cost in (3, 1 << 40, 0):  # a tampered file must not be able to fill the memory
        with pytest.raises(StorageError, match="impossible"):
            Vault.unlock(msgspec.msgpack.encode(fields | {"cost": cost}), "passphrase")


def test_repr_says_nothing() -> None:
    assert repr(VAULT) == "Vault(encrypted)"
    assert repr(Vault.new()) == "Vault(plain)"


def test_without_the_package_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from hdpmf.device.vault import Vault\n"
        "from hdpmf.errors import MissingExtraError\n"
        "Vault.new()\n"
        "try:\n    Vault.new('passphrase')\nexcept MissingExtraError as error:\n    print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "hdpmf[federation]" in ended.stdout
