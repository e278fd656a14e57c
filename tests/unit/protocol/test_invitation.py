"""Invitations: what is one, and what is none."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol.documents import file_digest
from hdpmf.common.protocol.identity import (
    MOST_INVITATION_BYTES,
    MOST_LINK,
    Invitation,
    InvitationLink,
)
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import ConfigError


def _server(name: str, digit: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name.lower()}.example:9444",
        identity=digit * 42 + "A",
        signing=digit * 42 + "E",
    )


PAIR = Servers(leader=_server("Library", "a"), helper=_server("University", "b"))
DIRECT = Invitation(address="https://films.example:9443", servers=PAIR, authority="PEM")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
HOSTS = st.from_regex(r"[a-z0-9.-]{1,40}|\[::[0-9a-f]{1,4}\]", fullmatch=True)


SECRET = "s" * 32


@given(HOSTS, st.integers(1, 65_535), st.sampled_from(["", SECRET]))
def test_a_link_leads_to_one_invitation(host: str, port: int, secret: str):
    made = Invitation(address=f"https://{host}:{port}", servers=PAIR)
    assert Invitation.read(made.to_json()) == made
    link = InvitationLink.read(f" {made.link(secret)}\n")
    assert link.secret == secret
    opened = link.opened(made.to_json(), "PEM")
    assert (opened.servers, opened.authority) == (PAIR, "PEM")
    assert len(made.link(secret)) <= MOST_LINK
    other = msgspec.structs.replace(made, name="Other")
    with pytest.raises(ConfigError, match="another invitation"):
        link.opened(other.to_json())
    assert made.digest != other.digest


def test_a_link_has_no_authority_and_no_servers_in_it():
    link = DIRECT.link(SECRET)
    assert link.startswith("https://films.example:9443/join#")
    assert len(link) == len("https://films.example:9443/join#") + 43 + 1 + 32
    with pytest.raises(ConfigError, match="at most 300"):
        msgspec.structs.replace(DIRECT, address=f"https://{'a' * 250}.example").link(SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://films.example:9443/join",
        "https://films.example:9443/join#abc",
        DIRECT.link(SECRET)[:-1],
        DIRECT.link(SECRET) + "x",
        DIRECT.link(SECRET).replace("https", "http"),
        DIRECT.link(SECRET).replace("films", "user@films"),
        DIRECT.link(SECRET).replace("films", "films\u2024evil"),
        "https://films.example/join#" + "a" * 10_000,
    ],
)
def test_what_is_no_link_is_refused(text: str):
    with pytest.raises(ConfigError):
        InvitationLink.read(text)


def test_an_invitation_of_another_address_is_refused():
    other = msgspec.structs.replace(DIRECT, address="https://evil.example:9443")
    link = InvitationLink.read(DIRECT.link())._replace(digest=file_digest(other.to_json()))
    with pytest.raises(ConfigError, match="another address"):
        link.opened(other.to_json())


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


def test_one_that_is_too_long_is_not_read():
    long = msgspec.structs.replace(DIRECT, authority="x" * MOST_INVITATION_BYTES)
    with pytest.raises(ConfigError, match="at most"):
        Invitation.read(long.to_json())
