"""Rosters as files: what a hostile one may not do to whoever reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.base.names import plain_name
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol import enrolment as module
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.errors import ConfigError

KEYS = st.text("0123456789abcdef", min_size=64, max_size=64)
CARDS = st.lists(
    st.builds(
        DeviceCard,
        name=st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=200),
        identity=KEYS,
        users=st.integers(1, (1 << 31) - 1),
    ),
    max_size=6,
    unique_by=(lambda card: plain_name(card.name), lambda card: card.identity),
)


def _card(number: int, **wrong: object) -> dict[str, object]:
    return {"name": f"d{number}", "identity": f"{number:064x}", "users": 1} | wrong


def _file(*cards: dict[str, object], digest: object = None) -> bytes:
    """With the digest that fits, as whoever writes a hostile one would."""
    if digest is None:
        rows = [[card["name"], card["identity"], card["users"]] for card in cards]
        plain = module.sha256(
            b"hdpmf roster 2 " + json.dumps(rows, separators=(",", ":")).encode()
        ).hexdigest()[:32]
        digest = " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))
    return json.dumps({"devices": cards, "digest": digest}).encode()


@given(CARDS)
def test_a_roster_comes_back_from_its_file(cards: list[DeviceCard]):
    made = Enrolled(cards)
    read = Enrolled.from_json(made.to_json())
    assert (read.cards, read.digest) == (made.cards, made.digest)


def test_the_digest_is_of_names_keys_and_users_in_order():
    digests = {
        Enrolled.from_json(_file(*cards)).digest
        for cards in (
            (_card(1), _card(2)),
            (_card(2), _card(1)),
            (_card(1), _card(2, users=2)),
            (_card(1), _card(3)),
            (_card(1), _card(2, name="d3")),
        )
    }
    assert len(digests) == 5


def test_a_file_of_before_has_the_new_digest():
    """It had a digest of keys and users."""
    rows = [[f"{number:064x}", 1] for number in (1, 2)]
    text = json.dumps(rows, separators=(",", ":")).encode()
    plain = module.sha256(b"hdpmf roster " + text).hexdigest()[:32]
    old = " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))
    read = Enrolled.from_json(_file(_card(1), _card(2), digest=old))
    assert read.digest == Enrolled.from_json(_file(_card(1), _card(2))).digest != old


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (_file(_card(1), _card(2, identity=f"{1:064x}")), "same identity"),
        (_file(_card(1, node="n1")), "not a roster"),
        (_file(_card(1), _card(2, name="d1")), "same name"),
        (_file(_card(1), _card(2, name="D1")), "look the same"),
        (_file(_card(1, users=0)), "at least one user"),
        (_file(_card(1, users=1 << 31)), "at least one user"),
        (_file(_card(1, users="1")), "not a roster"),
        (_file(_card(1, identity="AB" * 32)), "hexadecimal"),
        (_file(_card(1, name="\x1b[2J")), "printable"),
        (_file(_card(1, name="x" * 201)), "printable"),
        (_file(_card(1, secret="x")), "not a roster"),
        (_file(_card(1), digest=5), "not a roster"),
        (_file(_card(1), digest="0000"), "changed by hand"),
        (b'{"devices": [], "digest": "\xff"}', "not a roster"),
        (b"[" * 100_000, "not a roster"),
    ],
)
def test_hostile_rosters_are_refused_with_a_word(data: bytes, word: str):
    with pytest.raises(ConfigError, match=word):
        Enrolled.from_json(data)


def test_one_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch):
    data = _file(*(_card(number) for number in range(20)))
    monkeypatch.setattr(module, "MOST_ROSTER_BYTES", len(data))
    assert len(Enrolled.from_json(data)) == 20
    monkeypatch.setattr(module, "MOST_ROSTER_BYTES", len(data) - 1)
    with pytest.raises(ConfigError, match="at most"):
        Enrolled.from_json(data)


@given(st.binary(max_size=200))
def test_whatever_comes_is_no_roster(data: bytes):
    for text in (data, b'{"devices": ' + data, b'{"devices": [], "digest": "' + data + b'"}'):
        with pytest.raises(ConfigError):
            Enrolled.from_json(text)
