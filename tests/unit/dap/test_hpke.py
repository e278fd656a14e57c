"""HPKE: the RFC's vector, what is bound to what, and that nothing else opens."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
    input_share_info,
    seal,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HpkeCiphertext,
    HpkeConfig,
    Role,
)
from hdpmf.errors import DapError

KEYS = KeyPair(7, bytes(range(32)))
INFO, AAD, TEXT = input_share_info(Role.LEADER), b"what it is bound to", b"an input share"
SEALED = seal(KEYS.config, INFO, AAD, TEXT)


def test_the_vector_of_rfc_9180_opens():
    """Appendix A.1.1 (X25519, HKDF-SHA256, AES-128-GCM, base mode), sequence number 0."""
    keys = KeyPair(
        0, bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    )
    sealed = HpkeCiphertext(
        0,
        bytes.fromhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"),
        bytes.fromhex(
            "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
        ),
    )
    assert (
        keys.config.public_key.hex()
        == "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"
    )
    assert (
        keys.open(sealed, b"Ode on a Grecian Urn", b"Count-0") == b"Beauty is truth, truth beauty"
    )


@given(st.binary(max_size=300), st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=20)
def test_what_is_sealed_opens(text: bytes, info: bytes, aad: bytes):
    sealed = seal(KEYS.config, info, aad, text)
    assert KEYS.open(sealed, info, aad) == text
    assert seal(KEYS.config, info, aad, text) != sealed  # the same again is not seen to be the same


def test_the_configuration_names_the_algorithms():
    config = KEYS.config
    assert (config.id, config.kem_id, config.kdf_id, config.aead_id) == (7, 0x0020, 0x0001, 0x0001)


def test_infos_are_the_drafts():
    assert input_share_info(Role.LEADER) == b"dap-18 input share\x01\x02"
    assert input_share_info(Role.HELPER) == b"dap-18 input share\x01\x03"
    assert aggregate_share_info(Role.LEADER) == b"dap-18 aggregate share\x02\x00"
    assert aggregate_share_info(Role.HELPER) == b"dap-18 aggregate share\x03\x00"


@pytest.mark.parametrize(
    ("keys", "sealed", "info", "aad"),
    [
        (KeyPair(7, bytes(32)), SEALED, INFO, AAD),
        (KEYS, SEALED, input_share_info(Role.HELPER), AAD),
        (KEYS, SEALED, aggregate_share_info(Role.LEADER), AAD),
        (KEYS, SEALED, INFO, b"another task"),
        (KEYS, HpkeCiphertext(7, SEALED.enc, SEALED.payload[:-1]), INFO, AAD),
        (KEYS, HpkeCiphertext(7, SEALED.enc, b"short"), INFO, AAD),
        (KEYS, HpkeCiphertext(7, SEALED.enc[:-1], SEALED.payload), INFO, AAD),
        (KEYS, HpkeCiphertext(7, bytes(32), SEALED.payload), INFO, AAD),  # a key of small order
        (KEYS, HpkeCiphertext(7, bytes(32 * 50), SEALED.payload), INFO, AAD),
    ],
)
def test_nothing_else_opens(keys: KeyPair, sealed: HpkeCiphertext, info: bytes, aad: bytes):
    with pytest.raises(DapError) as refused:
        keys.open(sealed, info, aad)
    assert refused.value.kind == "hpke_decrypt_error"


@given(place=st.integers(0, len(SEALED.enc + SEALED.payload) - 1), bit=st.integers(0, 7))
@settings(max_examples=40)
def test_a_single_wrong_bit_does_not_open(place: int, bit: int):
    joined = bytearray(SEALED.enc + SEALED.payload)
    joined[place] ^= 1 << bit
    changed = HpkeCiphertext(7, bytes(joined[:32]), bytes(joined[32:]))
    with pytest.raises(DapError):
        KEYS.open(changed, INFO, AAD)


def test_another_key_is_another_problem():
    with pytest.raises(DapError) as refused:
        KEYS.open(HpkeCiphertext(8, SEALED.enc, SEALED.payload), INFO, AAD)
    assert refused.value.kind == "hpke_unknown_config_id"


def test_a_pair_comes_back_from_its_bytes():
    again = KeyPair.from_bytes(KEYS.to_bytes())
    assert again.config == KEYS.config
    assert again.open(SEALED, INFO, AAD) == TEXT


@pytest.mark.parametrize("data", [b"", bytes(32), bytes(34)])
def test_other_bytes_are_no_pair(data: bytes):
    with pytest.raises(DapError):
        KeyPair.from_bytes(data)


def test_pairs_are_new():
    assert len({KeyPair.generate().to_bytes() for _ in range(10)}) == 10
    assert KeyPair.generate(3).config.id == 3
    with pytest.raises(DapError):
        KeyPair.generate(256)


def test_a_secret_key_is_not_shown_or_copied():
    secret = KEYS.to_bytes()[1:]
    assert repr(KEYS) == str(KEYS) == "KeyPair(config_id=7)"
    assert secret not in KEYS.config.encode()
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            copied(KEYS)


@pytest.mark.parametrize(
    "config",
    [
        HpkeConfig(1, 0x0010, 1, 1, KEYS.config.public_key),
        HpkeConfig(1, 0x0020, 1, 1, bytes(31)),
        HpkeConfig(1, 0x0020, 1, 1, bytes(32)),
    ],
)
def test_nothing_is_sealed_to_what_is_no_key(config: HpkeConfig):
    with pytest.raises(DapError):
        seal(config, INFO, AAD, TEXT)


def test_messages_need_no_extra_and_keys_say_which():
    """In a process of its own: without pyhpke there are messages, and a hint for keys."""
    package = "hdpmf.common.aggregation.two_servers.dap"
    code = f"import sys; sys.modules['pyhpke'] = None; import {package}; import {package}.hpke"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (
        "MissingExtraError: sums by two servers need the package pyhpke: pip install" in done.stderr
    )
