"""Invitations: what is one, and what is none."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol.identity import MOST_INVITATION_BYTES, Invitation
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import ConfigError


def _server(name: str, digit: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name.lower()}.example:9444",
        identity=digit * 64,
        signing=digit * 63 + "0",
    )


PAIR = Servers(leader=_server("Library", "a"), helper=_server("University", "b"))
DIRECT = Invitation(address="https://films.example:9443", servers=PAIR, authority="PEM")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
HOSTS = st.from_regex(r"[a-z0-9.-]{1,40}|\[::[0-9a-f]{1,4}\]", fullmatch=True)


@given(HOSTS, st.integers(1, 65_535), TEXTS)
def test_an_invitation_is_a_file_or_a_link(host: str, port: int, authority: str):
    made = Invitation(address=f"https://{host}:{port}", servers=PAIR, authority=authority)
    assert (
        Invitation.read(made.to_json()) == Invitation.read(f" {made.to_link()}\n".encode()) == made
    )
    other = Invitation(
        address=f"https://{host}:{port % 65_535 + 1}", servers=PAIR, authority=authority
    )
    assert (
        len(
            {
                made.digest,
                other.digest,
                msgspec.structs.replace(made, authority=f"{authority}x").digest,
            }
        )
        == 3
    )


@pytest.mark.parametrize("name", ["Film club", "Café", "סרטים"])
def test_a_name_is_part_of_what_people_compare(name: str):
    made = msgspec.structs.replace(DIRECT, name=name)
    assert Invitation.read(made.to_json()) == Invitation.read(made.to_link().encode()) == made
    assert made.digest not in (DIRECT.digest, msgspec.structs.replace(made, name="Other").digest)


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "films.example:9443"},
        {"address": "http://films.example:9443"},
        {"address": "https://films.example:0"},
        {"address": "https://films.example:9443#x"},
        {"address": "https://films.example:9443\n"},
        {"address": "https://films.example:²"},
        {"address": "https://user@films.example:1"},
        {"address": f"https://{'a' * 400}:1"},
        {"name": "Film  club"},
        {"name": "Film\u202eclub"},
        {"name": "films.example"},
        {"name": "Cafe\u0301"},
        {"name": "x" * 61},
    ],
)
def test_what_is_no_invitation_is_refused(wrong: dict[str, object]):
    fields = {"address": DIRECT.address, "servers": PAIR, "authority": "PEM"} | wrong
    with pytest.raises(ConfigError):
        Invitation(**fields)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Invitation.read(msgspec.json.encode(fields))


@given(
    st.dictionaries(
        st.sampled_from(["address", "servers", "authority", "roster"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        ),
    )
)
def test_wrong_types_are_refused_with_a_word(fields: dict[str, object]):
    if (
        isinstance(fields.get("address"), str)
        and isinstance(fields.get("authority"), str)
        and "roster" not in fields
    ):
        fields["address"] = 5
    with pytest.raises(ConfigError):
        Invitation.read(json.dumps(fields).encode())


def test_one_that_is_too_long_is_not_even_unpacked():
    long = msgspec.structs.replace(DIRECT, authority="x" * MOST_INVITATION_BYTES)
    with pytest.raises(ConfigError, match="at most"):
        Invitation.read(long.to_json())
    assert len(long.to_link()) < 2000
    with pytest.raises(ConfigError, match="too long"):
        Invitation.read(long.to_link().encode())
