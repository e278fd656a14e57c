"""Devices on a network in memory, and a recommender's service over a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.net import DeviceReply, InProcessNetwork, RecommenderTransport
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import Masks
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import public_file, public_files
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world.devices import OPEN, Device, make_store, part_of

PACE = Pace(gather=0.0, deadline=30.0, attempts=2, pause=0.0)
FEW = msgspec.structs.replace(
    OPEN, min_participants=2, min_devices=2, min_neighbours=1, threshold_fraction="1/2"
)
"""A policy with which few devices are enough."""
PLENTY = msgspec.structs.replace(FEW, epsilon=20_000.0, max_total=None, max_list_bytes=0)
"""And with which a rating can pay several times for what `SUMS` and `BITS` ask."""
# With such an epsilon there is next to no noise. Each rating could pay it four times over.
SUMS = RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1, epsilon=5_000.0)
BITS = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1, epsilon=5_000.0)
GROWING = synthetic_world(8, 40, 160, rng=3)


class Killed(BaseException):
    """The recommender's process is gone, as after kill -9: nothing catches it."""


class Network(InProcessNetwork):
    """A network in memory on which a test interferes.

    Attributes:
        before: Called before an exchange with its number, from 1, and with whom it asks.
        after: Called after an exchange with the same.
        replies_left: With a number, the recommender dies when so many more replies have come.
        turns: Whom each exchange has asked, and the seconds that they had.
    """

    def __init__(self, answers: Mapping[str, Callable[[bytes], bytes]], **options: Any) -> None:
        super().__init__(answers, **options)
        self.before: Callable[[int, Collection[str]], object] = lambda number, asked: None
        self.after: Callable[[int, Collection[str]], object] = lambda number, asked: None
        self.replies_left: int | None = None
        self.turns: list[tuple[frozenset[str], float]] = []

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in `RecommenderTransport`."""
        self.turns.append((frozenset(messages), deadline))
        self.before(len(self.turns), messages)
        for reply in super().exchange(messages, deadline):
            if self.replies_left == 0:
                self.replies_left = None
                raise Killed
            if self.replies_left is not None:
                self.replies_left -= 1
            yield reply
        self.after(len(self.turns), messages)


class PublicFolder(dict[str, bytes]):
    """The public files of a service as they are now."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def get(self, name: str, default: Any = None) -> Any:
        """A file by its name."""
        found = public_file(self._folder, name)
        return default if found is None else found


class Federation:
    """Devices on a network and, where a test gives a folder, a recommender's service.

    Args:
        ratings: All ratings. Users go to devices in order, under their ids as text.
        sizes: How many users each device has; one each unless told otherwise.
        folder: Of the service; it is made as ``r`` in this one.
        policy: Of each device.
        weights: Of all ratings; 1 unless told otherwise.
        noise: Of a device, by its number; None makes real devices, which draw their own.
        held: Which of its ratings a device holds at the beginning; `add_later_ones` adds the rest.
        joined: How many devices, the first ones, are enrolled and connected; all unless told
            otherwise.
        name: Of the recommender.
        pace: Of its runs.

    Attributes:
        ratings: All ratings, as the devices know them.
        devices: The devices; `restart` puts others in their places.
        network: The network. Faults are `Network.attach`, `Network.detach` and its attributes.
        answers: What every device answers, by its identity; a restarted one in its new state.
        folder: The folder of the service.
        service: The service; `restart_service` puts another in its place.
    """

    def __init__(
        self,
        ratings: Ratings,
        sizes: Sequence[int] | None = None,
        folder: Path | None = None,
        *,
        policy: Policy = PLENTY,
        weights: PrivacyWeights | None = None,
        noise: Callable[[int], Any] | None = SeededNoise,
        held: slice = slice(None),
        joined: int | None = None,
        name: str = "town",
        pace: Pace = PACE,
    ) -> None:
        self.ratings = as_on_devices(ratings)
        self.table = catalogue_table(ratings.items, ratings.scale, ratings.item_table)
        self._files: Mapping[str, bytes] = public_files(self.table)
        if folder is not None:
            self._files = PublicFolder(folder / "r" / "public")
        self.devices: list[Device] = []
        self._noise = noise
        self._later: list[Ratings] = []
        sizes = [1] * ratings.n_users if sizes is None else sizes
        ends = np.cumsum(sizes).tolist()
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            own = part_of(ratings, end - size, end)
            places = np.arange(len(own))
            store = make_store(own.take(places[held]), users=size, policy=policy, weights=weights)
            self._later.append(own.take(np.setdiff1d(places, places[held])))
            self.devices.append(self._device(store, number))
        self.answers: dict[str, Callable[[bytes], bytes]] = {
            device.name: self._answer(number) for number, device in enumerate(self.devices)
        }
        self.network = Network({})
        first = range(len(self.devices) if joined is None else joined)
        self.connect(*first)
        if folder is None:
            self.enrolled = Enrolled(self.cards[number] for number in first)
            self._pin()
        else:
            config = Config(name=name, pace=pace)
            self.folder = ServiceFolder.create(folder / "r", config, self.table)
            self.service = Service(self.folder, self.network, sleep=lambda _: None)
            self.enroll(*first)

    def _device(self, store: DeviceStore, number: int) -> Device:
        options: dict[str, Any] = {}
        if self._noise is not None:
            options = {"noise": self._noise(number), "simulation": True, "seed": 0}
        device = Device(store, **options)
        device.files.files = self._files
        return device

    def _answer(self, number: int) -> Callable[[bytes], bytes]:
        def answer(data: bytes) -> bytes:
            # As where it polls, and is told which version the files have.
            version = sha256(self._files.get("index.json", b"")).hexdigest()
            self.devices[number].look(version)
            return self.devices[number].answer(data)

        return answer

    def _pin(self) -> None:
        cards = self.enrolled.cards
        if len(cards) > 2:  # with fewer there are no sums
            for card in cards:
                store = self.stores[[*self.answers].index(card.identity)]
                store.pin_roster(
                    [bytes.fromhex(each.identity) for each in cards], [each.users for each in cards]
                )

    @property
    def stores(self) -> list[DeviceStore]:
        """The devices' stores."""
        return [device.store for device in self.devices]

    @property
    def cards(self) -> list[DeviceCard]:
        """The devices' entries on a roster, whether they are on one or not."""
        return [
            msgspec.structs.replace(device.card, name=f"d{number}")
            for number, device in enumerate(self.devices)
        ]

    def enroll(self, *numbers: int) -> None:
        """Put devices on the roster of the service, which all that are on it pin."""
        self.enrolled = self.folder.enroll(self.cards[number] for number in numbers)
        self._pin()

    def connect(self, *numbers: int) -> None:
        """Let devices come to the network, or back to it."""
        for number in numbers:
            name = self.devices[number].name
            self.network.attach(name, self.answers[name])

    def disconnect(self, *numbers: int) -> None:
        """Let devices leave the network."""
        for number in numbers:
            self.network.detach(self.devices[number].name)

    def restart(self, *numbers: int) -> None:
        """Start devices again with nothing but their stores."""
        for number in numbers:
            self.devices[number] = self._device(self.stores[number], number)

    def restart_service(self, **options: Any) -> Service:
        """Start the service again with nothing but its folder."""
        self.folder = ServiceFolder(self.folder.path)
        options = {"transport": self.network, "sleep": lambda _: None} | options
        self.service = Service(self.folder, **options)
        return self.service

    def run(self, settings: RunSettings) -> RunOutcome:
        """A whole run of the service, whose model all devices see that are there at the end."""
        outcome = self.service.conduct(self.service.begin(settings))
        self.look()
        return outcome

    def look(self) -> None:
        """Let all devices that are connected look at the files of the service."""
        there = self.network.present()
        for device in self.devices:
            if device.name in there:
                device.look_now()

    def run_alone(
        self, settings: RunSettings, network: RecommenderTransport | None = None, **options: Any
    ) -> Run:
        """A run of the devices without a service."""
        given = {"pace": PACE, "sleep": lambda _: None} | options
        kind = Masks if settings.view == "sums" else Direct
        return Run(
            settings=settings,
            table=self.table,
            enrolled=self.enrolled,
            aggregation=kind(self.network if network is None else network),
            **given,
        )

    def held(self) -> np.ndarray:
        """How many of the ratings that devices hold now are of each item."""
        counts = np.zeros(self.ratings.n_items, np.int64)
        places = {str(item): place for place, item in enumerate(self.ratings.items.ids.tolist())}
        for store in self.stores:
            for record in store.records():
                if record.item in places:
                    counts[places[record.item]] += 1
        return counts

    def add_later_ones(self) -> None:
        """Let every device have the ratings that it did not hold at the beginning."""
        for store, ratings in zip(self.stores, self._later, strict=True):
            store.add(ratings)

    def spent(self) -> list[float]:
        """How much the ratings of each device have spent."""
        return [store.ledger.spent_total() for store in self.stores]


def growing_federation(folder: Path, ratings: Ratings = GROWING) -> Federation:
    """A service, and a device for each user; they hold every second rating at the beginning."""
    return Federation(ratings, folder=folder, held=slice(None, None, 2))


def small_federation(
    sizes: Sequence[int], folder: Path | None = None, **options: Any
) -> Federation:
    """A federation of so many users on each device, with thirty ratings each of forty items."""
    users = sum(sizes)
    return Federation(synthetic_world(users, 40, 30 * users, rng=5), sizes, folder, **options)


def as_on_devices(ratings: Ratings) -> Ratings:
    """Users' ids as text, which is how devices know them: first vectors follow from ids."""
    return Ratings.from_arrays(
        [str(user) for user in ratings.users.ids[ratings.user_codes].tolist()],
        ratings.items.ids[ratings.item_codes],
        ratings.values,
        scale=ratings.scale,
        items_index=ratings.items,
        item_table=ratings.item_table,
    )
