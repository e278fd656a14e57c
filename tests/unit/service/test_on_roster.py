"""A device that is taken off the roster, or changes its keys, while the service runs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.protocol import Round
from hdpmf.common.protocol.enrolment import KeyHistory
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import small_federation


def test_who_is_taken_off_is_asked_nothing_in_the_next_exchange(tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=5, factors=3)
    world = small_federation([1] * 5, tmp_path)
    gone = world.devices[2]

    def expel(exchange: int, asked: Collection[str]) -> None:
        if len(gone.told(Round)) == 2 and gone.name in world.folder.enrolled.users:
            world.folder.expel(gone.name)

    world.network.after = expel
    outcome = world.run(settings)
    rounds = [len(device.told(Round)) for device in world.devices]
    assert rounds == [5, 5, 2, 5, 5]
    assert outcome.summary["least_users_in_a_round"] == 4


def test_a_device_with_new_keys_is_there_once(tmp_path: Path) -> None:
    settings = RunSettings(method="hdp-bit", view="messages", minimum=5, rounds=1, epsilon=50.0)
    world = small_federation([1] * 6, tmp_path)
    folder = world.folder
    world.run(settings)
    device, new, old = world.devices[3], DeviceIdentity.generate(), world.cards[3]
    card = msgspec.structs.replace(old, identity=new.public.hex())
    signed = KeyHistory(links=()).extended(device.store.identity, card)
    with pytest.raises(ConfigError, match="no device 'nobody'"):
        folder.replace("nobody", signed)
    with pytest.raises(ConfigError, match="not of device"):
        folder.replace(world.devices[1].name, signed)
    before = folder.enrolled
    enrolled = folder.replace(old.name, signed)
    assert len(enrolled) == 6
    assert [*enrolled.users].index(card.identity) == 3
    assert device.name not in enrolled.users
    assert enrolled.digest != before.digest
    again = DeviceIdentity.generate()
    third = msgspec.structs.replace(card, identity=again.public.hex())
    folder.replace(card.name, signed.extended(new, third))
    assert [*folder.enrolled.users].index(third.identity) == 3
