"""A device that is taken off the roster, or changes its keys, while the service runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net import DeviceReply, InProcessNetwork
from hdpmf.common.protocol import Round
from hdpmf.common.protocol.key_rotation import Succession
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings

PACE = Pace(gather=0.0, deadline=30.0, attempts=2, pause=0.0)


class Watched(InProcessNetwork):
    """Tells somebody before every exchange."""

    def __init__(self, answers: Mapping[str, Any], tell: Callable[[], None]) -> None:
        super().__init__(answers)
        self._tell = tell

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        yield from super().exchange(messages, deadline)
        self._tell()


def folder_of(world: Any, path: Path) -> ServiceFolder:
    folder = ServiceFolder.create(path, Config(name="test", pace=PACE), world.table)
    folder.enroll(world.enrolled.cards)
    return folder


def test_who_is_taken_off_is_asked_nothing_in_the_next_exchange(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=5, factors=3)
    world = make_world(settings, [1] * 5)
    folder = folder_of(world, tmp_path / "r")
    gone = world.devices[2]

    def rounds() -> int:
        return sum(isinstance(message, Round) for message in gone.log)

    def expel() -> None:
        if rounds() == 2 and gone.name in folder.enrolled.users:
            folder.expel(gone.name)

    service = Service(folder, Watched(world.answers, expel), sleep=lambda _: None)
    outcome = service.conduct(service.begin(settings))
    assert rounds() == 2
    others = [sum(isinstance(message, Round) for message in device.log) for device in world.devices]
    assert others == [6, 6, 2, 6, 6]  # and the result
    assert outcome.summary["least_users_in_a_round"] == 4
    assert service.hand_out() == 0  # nor does it get the model; the others have it


def test_a_device_with_new_keys_has_the_model_and_is_there_once(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    settings = RunSettings(method="hdp-bit", view="messages", minimum=5, rounds=1, epsilon=50.0)
    world = make_world(settings, [1] * 6)
    folder = folder_of(world, tmp_path / "r")
    service = Service(folder, InProcessNetwork(world.answers), sleep=lambda _: None)
    service.conduct(service.begin(settings))
    device, new = world.devices[3], DeviceIdentity.generate()
    card = msgspec.structs.replace(device.card, identity=new.public.hex())
    signed = Succession(links=()).extended(device.identity, card)
    with pytest.raises(ConfigError, match="no device 'nobody'"):
        folder.replace("nobody", signed)
    with pytest.raises(ConfigError, match="not of device"):
        folder.replace(world.devices[1].name, signed)
    before = folder.enrolled
    enrolled = folder.replace(device.card.name, signed)
    assert len(enrolled) == 6
    assert [*enrolled.users].index(card.identity) == 3
    assert device.name not in enrolled.users
    assert enrolled.digest != before.digest
    again = DeviceIdentity.generate()
    third = msgspec.structs.replace(card, identity=again.public.hex())
    folder.replace(card.name, signed.extended(new, third))
    assert folder.identity_now(device.name) == third.identity
    service._way.attach(third.identity, device.answer)  # type: ignore[union-attr]
    assert service.hand_out() == 0
