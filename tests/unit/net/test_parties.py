"""Two parties share secrets that never travel."""

from __future__ import annotations

import pytest

from hdpmf.common.protocol.identity import PartyKey, verify_key
from hdpmf.errors import ConfigError


def test_both_have_the_same_and_others_have_not() -> None:
    leader, helper, other = (PartyKey.generate() for _ in range(3))
    key = verify_key(leader, helper.public, b"task", 32)
    assert key == verify_key(helper, leader.public, b"task", 32)
    assert key != verify_key(other, leader.public, b"task", 32)
    assert key != verify_key(leader, helper.public, b"another task", 32)


def test_a_token_is_good_in_one_direction() -> None:
    leader, helper = PartyKey.generate(), PartyKey.generate()
    shown = leader.token(helper.public, to=helper.public)
    assert shown == helper.token(leader.public, to=helper.public)
    assert shown != helper.token(leader.public, to=leader.public)


def test_keys_are_kept_and_never_shown() -> None:
    key = PartyKey.generate()
    assert PartyKey.from_bytes(key.to_bytes()).public == key.public
    assert key.to_bytes().hex() not in repr(key)


def test_what_is_no_key_is_refused() -> None:
    key = PartyKey.generate()
    with pytest.raises(ConfigError):
        PartyKey.from_bytes(b"short")
    with pytest.raises(ConfigError):
        key.shared("A" * 43, b"a point of small order")
    with pytest.raises(ConfigError):
        key.shared("zz", b"no key")
