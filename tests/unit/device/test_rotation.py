"""New keys for a device, signed by its old ones: it stays one device, and nobody else takes its
place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hdpmf.common.protocol.identity import DeviceCard, Enrolled, Identity, KeyHistory
from hdpmf.errors import ConfigError
from hdpmf.private.device.device_identity import card_of, new_device, rotate
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
