"""Signed lists of a server's keys: who signed them, which may follow which, which are used."""

from __future__ import annotations

import msgspec
import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig, HpkeConfigList
from hdpmf.common.protocol.documents import canonical, to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.key_list import (
    KeyList,
    PublishedKeys,
    SignedKeyList,
    config_of,
    follow_key_list,
    read_key_list,
    read_published_keys,
)
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import ConfigError, ProtocolError, TransportError

SIGNING, OTHER = Identity(bytes(range(32))), Identity(bytes(range(1, 33)))
OLD, NEW = KeyPair(1, bytes(range(32))).config, KeyPair(2, bytes(range(1, 33))).config
FOREIGN = HpkeConfig(9, 0x9999, 1, 1, b"of some later draft")


def card(**changes: object) -> Server:
    fields = {"organisation": "North", "url": "https://north.example", "identity": "a" * 42 + "A"}
    return Server(**{**fields, "signing": to_base64(SIGNING.public), **changes})  # type: ignore[arg-type]


def encoded(configs: HpkeConfigList) -> str:
    return to_base64(configs.encode())


def signed(
    *configs: HpkeConfig, serial: int = 5, not_after: int = 100, by: Identity = SIGNING
) -> bytes:
    keys = KeyList(
        serial=serial, not_after=not_after, configs=encoded(HpkeConfigList(configs or (NEW,)))
    )
    return SignedKeyList.make(keys, by.sign).to_bytes()


def test_the_first_key_that_we_can_encrypt_to_is_used() -> None:
    assert config_of(card(), signed(FOREIGN, NEW, OLD), 99.9) == NEW
    with pytest.raises(ProtocolError, match="no key for X25519"):
        config_of(card(), signed(FOREIGN), 99.9)


def test_nothing_is_encrypted_without_a_list_or_by_an_old_one() -> None:
    with pytest.raises(TransportError, match="has not come yet"):
        config_of(card(), b"", 0.0)
    with pytest.raises(TransportError, match="was valid until 1970-01-01T00:01"):
        config_of(card(), signed(), 100.0)


def test_a_changed_list_is_refused() -> None:
    whole = signed()
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(ProtocolError):
            read_key_list(changed, card())
    longer = msgspec.json.decode(whole)
    longer["keys"]["not_after"] += 1
    with pytest.raises(ProtocolError, match="not signed by the key on its card"):
        read_key_list(canonical(longer), card())


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, bytes(20_000), b'{"keys":1}'])
def test_any_bytes_are_a_list_or_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_key_list(data, card())
    with pytest.raises(ProtocolError):
        read_published_keys(data)


def test_what_is_signed_for_something_else_is_no_list() -> None:
    plain = KeyList(serial=1, not_after=2, configs="")
    bare = SignedKeyList.make(plain, lambda digest: SIGNING.sign(canonical(plain)))
    with pytest.raises(ProtocolError, match="not signed"):
        read_key_list(bare.to_bytes(), card())
    for keys in (
        KeyList(serial=1, not_after=2, configs=to_base64(b"no list")),
        KeyList(serial=-1, not_after=2, configs=encoded(HpkeConfigList((NEW,)))),
    ):
        with pytest.raises(ProtocolError):
            read_key_list(SignedKeyList.make(keys, SIGNING.sign).to_bytes(), card())


def test_a_list_of_another_server_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not signed by the key on its card"):
        read_key_list(signed(by=OTHER), card())


def test_lists_only_go_forward() -> None:
    known = signed(OLD, serial=5)
    assert follow_key_list(known, b"", card()).serial == 5
    assert follow_key_list(known, known, card()).serial == 5
    assert follow_key_list(signed(NEW, serial=6), known, card()).serial == 6
    with pytest.raises(ProtocolError, match=r"older than the one before \(4 after 5\)"):
        follow_key_list(signed(NEW, serial=4), known, card())
    with pytest.raises(ProtocolError, match="another one than before with the same number"):
        follow_key_list(signed(NEW, serial=5), known, card())
    with pytest.raises(ProtocolError, match="another one than before with the same number"):
        follow_key_list(signed(OLD, serial=5, not_after=101), known, card())


def test_the_pair_travels_in_one_file() -> None:
    both = PublishedKeys.of(signed(), b"")
    assert read_published_keys(both.to_bytes()) == both


def test_a_signing_key_is_32_bytes() -> None:
    with pytest.raises(ConfigError, match=r"signing key"):
        card(signing="A" * 42 + "B")


def test_one_signing_key_is_no_pair() -> None:
    with pytest.raises(ConfigError, match="same key"):
        Servers(leader=card(), helper=card(organisation="South", identity="b" * 42 + "A"))
