"""Devices and a recommender's service on a network in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.net import InProcessNetwork
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world.devices import OPEN, Device, NoNoise, enrol, make_store, part_of


class Federation:
    """Devices on a network in memory, and a recommender's service where a test wants one.

    Args:
        ratings: All ratings; users go to devices in order.
        sizes: How many users each device has.
        policy: Of each device.
        held: Which of its ratings a device holds at the beginning.
        options: What each device's participant gets, by its number.

    Attributes:
        devices: The devices.
        network: The network with all of them; `attach` and `detach` are its faults.
        enrolled: The recommender's roster of them. Every device has pinned it.
    """

    def __init__(
        self,
        ratings: Ratings,
        sizes: Sequence[int],
        *,
        policy: Policy = OPEN,
        held: slice = slice(None),
        options: Callable[[int], dict[str, Any]] = lambda number: {"noise": NoNoise()},
    ) -> None:
        self.ratings = ratings
        self.table = catalogue_table(ratings.items, ratings.scale, ratings.item_table)
        self.devices: list[Device] = []
        ends = np.cumsum(sizes).tolist()
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            own = part_of(ratings, end - size, end)
            store = make_store(own.take(np.arange(len(own))[held]), users=size, policy=policy)
            self.devices.append(Device(store, simulation=True, **options(number)))
        self.enrolled = Enrolled(device.card for device in self.devices)
        enrol(self.devices)
        self.answers: dict[str, Callable[[bytes], bytes]] = {
            device.name: device.answer for device in self.devices
        }
        self.network = InProcessNetwork(self.answers)

    @property
    def stores(self) -> list[DeviceStore]:
        """The devices' stores."""
        return [device.store for device in self.devices]

    def serve(self, folder: Path, pace: Pace, **options: Any) -> Service:
        """A recommender's service over a new folder that has all devices on its roster."""
        made = ServiceFolder.create(folder, Config(name="test", pace=pace), self.table)
        made.enroll(self.enrolled.cards)
        return Service(made, self.network, **({"sleep": lambda _: None} | options))


def conduct(service: Service, settings: RunSettings) -> RunOutcome:
    """A whole run of a service."""
    return service.conduct(service.begin(settings))
