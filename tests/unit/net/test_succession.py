"""An authority is followed by another one: whoever trusts the old one learns the new one, and
from nobody else.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.net.certificates import (
    Certificates,
    announce,
    authority_message,
    change_over,
    ensure_certificates,
    successor_of,
)
from hdpmf.common.protocol.authority import (
    MAX_AUTHORITY_MESSAGE,
    AuthorityMessage,
    check_authority,
    learn,
    read_authorities,
)
from hdpmf.errors import ConfigError, ProtocolError, StorageError
from tests.unit.net.handshake import shake_hands

NAMES = ["localhost"]


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return ensure_certificates(tmp_path, NAMES)


def test_a_device_that_calls_in_time_never_loses_the_recommender(
    made: Certificates, tmp_path: Path
):
    old = made.authority.read_bytes()
    assert learn(old, authority_message(tmp_path)) == old  # nothing is announced
    new = announce(tmp_path).read_bytes()
    shake_hands(made, "localhost", old)  # certificates still come from the old one
    both = learn(old, authority_message(tmp_path))
    assert both == old + new
    assert learn(both, authority_message(tmp_path)) == both
    assert check_authority(both).subject == check_authority(new).subject
    shake_hands(made, "localhost", both)
    change_over(tmp_path, NAMES)
    assert made.authority.read_bytes() == new
    shake_hands(made, "localhost", both)
    assert learn(both, authority_message(tmp_path)) == new
    shake_hands(made, "localhost", new)
    assert successor_of(tmp_path) is None


def test_a_device_that_did_not_needs_its_owner(made: Certificates, tmp_path: Path):
    old = made.authority.read_bytes()
    announce(tmp_path)
    change_over(tmp_path, NAMES)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(made, "localhost", old)


def test_a_recommender_that_is_restored_from_before_is_known(made: Certificates, tmp_path: Path):
    old, before = made.authority.read_bytes(), authority_message(tmp_path)
    announce(tmp_path)
    both = learn(old, authority_message(tmp_path))
    assert learn(both, before) == old


def test_only_what_the_pinned_authority_has_signed_is_trusted(made: Certificates, tmp_path: Path):
    hostile = ensure_certificates(tmp_path / "hostile", NAMES)
    old, other = made.authority.read_bytes(), hostile.authority.read_bytes()
    announce(tmp_path)
    honest = msgspec.msgpack.decode(authority_message(tmp_path), type=AuthorityMessage)
    announce(tmp_path / "hostile")
    theirs = msgspec.msgpack.decode(authority_message(tmp_path / "hostile"), type=AuthorityMessage)
    forged = [
        AuthorityMessage(old.decode(), other.decode(), b""),
        AuthorityMessage(old.decode(), other.decode(), honest.signature),  # of another successor
        AuthorityMessage(old.decode(), theirs.successor, theirs.signature),  # by another authority
        msgspec.structs.replace(honest, successor=honest.successor + other.decode()),
    ]
    for lie in forged:
        with pytest.raises(ProtocolError, match="has not signed it"):
            learn(old, msgspec.msgpack.encode(lie))
    # An authority that is not pinned may say what it likes.
    assert learn(old, msgspec.msgpack.encode(theirs)) == old
    assert learn(old, msgspec.msgpack.encode(AuthorityMessage(other.decode()))) == old


def test_a_servers_certificate_is_no_successor(made: Certificates, tmp_path: Path):
    """It is signed by the authority, too, in another way."""
    server = made.server.read_text()
    with pytest.raises(ProtocolError, match="has not signed it"):
        learn(
            made.authority.read_bytes(),
            msgspec.msgpack.encode(AuthorityMessage(made.authority.read_text(), server, b"")),
        )


@pytest.fixture(scope="module")
def announced(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("announced")
    old = ensure_certificates(folder, NAMES).authority.read_bytes()
    announce(folder)
    return old, authority_message(folder)


@given(place=st.integers(0, 1 << 14), flip=st.integers(1, 255))
def test_changed_on_the_way_it_introduces_nobody(
    announced: tuple[bytes, bytes], place: int, flip: int
):
    old, data = announced
    changed = bytearray(data)
    changed[place % len(data)] ^= flip
    try:
        trusted = learn(old, bytes(changed))
    except ProtocolError:
        return
    assert set(read_authorities(trusted)) <= set(read_authorities(learn(old, data)))


@given(st.binary(max_size=200))
def test_nonsense_is_refused(announced: tuple[bytes, bytes], data: bytes):
    with pytest.raises(ProtocolError, match="malformed"):
        learn(announced[0], data)


def test_what_is_too_long_is_not_read(announced: tuple[bytes, bytes]):
    with pytest.raises(ProtocolError, match="too long"):
        learn(announced[0], bytes(MAX_AUTHORITY_MESSAGE + 1))


@pytest.mark.parametrize("step", range(4))
def test_a_killed_change_over_is_finished_by_another(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
):
    old, new = made.authority.read_bytes(), announce(tmp_path).read_bytes()
    writes, replace = 0, os.replace

    def die(source: str, target: str) -> None:
        nonlocal writes
        writes += 1
        if writes > step:
            raise OSError(28, "killed")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(StorageError):
            change_over(tmp_path, NAMES)
    shake_hands(ensure_certificates(tmp_path, NAMES) if step != 1 else made, "localhost", old + new)
    change_over(tmp_path, NAMES)
    shake_hands(made, "localhost", new)
    assert learn(old + new, authority_message(tmp_path)) == new


def test_steps_out_of_turn_are_refused(made: Certificates, tmp_path: Path):
    with pytest.raises(ConfigError, match="no new authority is announced"):
        change_over(tmp_path, NAMES)
    announce(tmp_path)
    with pytest.raises(ConfigError, match="announced already"):
        announce(tmp_path)
