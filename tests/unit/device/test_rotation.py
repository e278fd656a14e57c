"""New keys for a device, signed by its old ones: it stays one device, and nobody else takes its
place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hdpmf.common.net.certificates import (
    AuthorityMessage,
    announce,
    authority_message,
    change_over,
    ensure_certificates,
)
from hdpmf.common.protocol.identity import DeviceCard, Enrolled, Identity, KeyHistory
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.private.device.device_identity import (
    authorities_of,
    card_of,
    digests,
    follow,
    new_device,
    rotate,
)
from hdpmf.private.device.store.device_store import DeviceStore

from .full_store import RUN, full_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return full_store(tmp_path / "me", None)


def test_the_new_card_takes_the_old_ones_place(path: Path, tmp_path: Path) -> None:
    with new_device(tmp_path / "other", name="other") as other:
        neighbour = card_of(other)
    with DeviceStore.open(path) as store:
        old = card_of(store)
        signed = KeyHistory.from_json(rotate(store).to_json())
        new = card_of(store)
        entries = len(store.ledger.entries())
    assert new.identity != old.identity
    after = Enrolled((old, neighbour)).replaced("mine", signed)
    assert set(after.cards) == {new, neighbour}
    with DeviceStore.open(path) as store:  # and it is on the disk
        assert card_of(store) == new
        assert store.runs.load(RUN) is None
        assert len(store.ledger.entries()) == entries == 1


def test_nobody_else_takes_the_place(path: Path, tmp_path: Path) -> None:
    with (
        DeviceStore.open(path) as store,
        new_device(tmp_path / "thief", name="mine") as thief,
    ):
        old, stolen = card_of(store), rotate(thief)
        signed = rotate(store)
    with pytest.raises(ConfigError, match="not of device"):
        stolen.card_after(old)
    link = signed.links[0]
    forged = [  # another card, another name, somebody else's signature, none, no hex
        msgspec.structs.replace(link, card=stolen.links[0].card),
        msgspec.structs.replace(link, card=msgspec.structs.replace(link.card, name="x")),
        msgspec.structs.replace(link, signature=stolen.links[0].signature),
        msgspec.structs.replace(link, signature=""),
        msgspec.structs.replace(link, signature="zz"),
    ]
    for wrong in forged:
        with pytest.raises(ConfigError, match="signature"):
            KeyHistory(links=(wrong,)).card_after(old)
    with pytest.raises(ConfigError, match="gap"):
        KeyHistory(links=(link, stolen.links[0])).card_after(old)


def test_a_key_that_anybody_can_sign_for_is_refused() -> None:
    identity = Identity.generate()
    old = DeviceCard(name="a", identity=identity.public.hex())
    weak = KeyHistory(links=()).extended(
        identity, msgspec.structs.replace(old, identity="01" + "00" * 31)
    )
    with pytest.raises(ConfigError, match=r"identity key on the card of .* is malformed"):
        Enrolled((old,)).replaced("a", weak)


def test_a_rotation_that_the_pinned_authority_signed_is_followed_and_told(tmp_path: Path) -> None:
    folder, said = tmp_path / "tls", list[str]()
    made = ensure_certificates(folder, ["localhost"])
    old = made.authority.read_bytes()
    with new_device(tmp_path / "me") as store:
        nothing = authority_message(folder)
        assert follow(store, nothing, said.append) == b""  # public authorities: none is pinned
        assert authorities_of(store) is None
        store.change_recommender(authority=old)
        assert follow(store, nothing, said.append) == old
        assert authorities_of(store) == {"sha256": digests(old), "changed": None}
        new = announce(folder).read_bytes()
        both = follow(store, authority_message(folder), said.append)
        assert both == store.recommender.authority == old + new
        assert [digests(new)[0][:16] in line for line in said] == [True]
        assert "both are trusted" in said[0]
        changed = authorities_of(store)
        assert changed is not None
        assert changed["changed"]
        change_over(folder, ["localhost"])
        assert follow(store, authority_message(folder), said.append) == new
        assert store.recommender.authority == new
        assert [digests(old)[0][:16] in line for line in said] == [False, True]
        assert "not trusted any more" in said[1]


def test_a_rotation_that_somebody_else_signed_changes_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    ours, _ = (ensure_certificates(tmp_path / name, ["localhost"]) for name in ("a", "b"))
    announce(tmp_path / "b")
    theirs = authority_message(tmp_path / "b")
    old = ours.authority.read_bytes()
    forged = msgspec.structs.replace(
        msgspec.msgpack.decode(theirs, type=AuthorityMessage), authority=old.decode()
    )
    with new_device(tmp_path / "me") as store:
        store.change_recommender(authority=old)
        with pytest.raises(ProtocolError, match="has not signed it"):
            follow(store, msgspec.msgpack.encode(forged), said.append)
        assert follow(store, theirs, said.append) == old
        assert store.recommender.authority == old
    assert said == []
