"""One federation in memory for all tests: devices on real stores, a recommender's service and its
files, two servers, carriers with faults, and a clock that tests move.

A test takes the parts that it needs. Devices are real ones (`Device`), with noise off, seeded or
released. `Federation` puts them behind a network in memory; `ServerPair` is a leader and a helper;
`MemoryCarrier` is all that a device can reach, in the test's hands. The makers of messages
(`terms`, `plan`, `survey` and the others) build what an honest recommender would send, and take
changes for the others.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.masks.primitives import verifies
from hdpmf.common.aggregation.two_servers.dap import (
    HpkeConfig,
    InputShareAad,
    PlaintextInputShare,
    Report,
    ReportMetadata,
    Role,
    id_from_text,
)
from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    input_share_info,
    seal,
)
from hdpmf.common.data import Ratings
from hdpmf.common.net import InProcessNetwork
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol import (
    CatalogueTable,
    DeviceCard,
    Envelope,
    ItemFacts,
    Message,
    Opening,
    Plan,
    Refusal,
    Reply,
    Round,
    Survey,
    Task,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.servers import Server
from hdpmf.common.protocol.submission import signed_bytes
from hdpmf.common.protocol.task import prio_of, task_id
from hdpmf.errors import TransportError
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import HelperApi, Leader
from hdpmf.untrusted.aggregator.tasks import Rules, ServerKeys, SimulationRules
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings

RUN = b"the first run..."
HOUR = 3600
OPEN = Policy(
    methods=(
        "mf", "dpmf", "pdpmf", "hdpmf", "hdpmf-w", "hdpmf-r", "hdpmf-paid", "hdp-sum", "hdp-bit",
    ),
    allow_nominal=True,
    require_sums=False,
    allow_unprotected=True,
    min_participants=3,
    min_devices=3,
    min_neighbours=2,
    min_fraction="0",
    max_colluding="0",
    max_credit=100,
    min_epsilon_per_run=1e-9,
)  # fmt: skip
"""A policy that allows nearly everything."""


class Clock:
    """The time, which only tests move."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, as `time.sleep` does."""
        self.now += seconds


class NoNoise:
    """Noise off."""

    def uniforms(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(sigma), np.int64)

    def laplace_share(
        self, scale: object, n_shares: int, size: Any, *, count: int = 1
    ) -> np.ndarray:
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale: object, size: Any) -> np.ndarray:
        return np.zeros(size, np.int64)

    def bits(self, p_plus: np.ndarray, epsilon: Any = None) -> np.ndarray:
        return np.asarray(p_plus) > 0.5


class KnownNoise:
    """Adds the same number everywhere and remembers how often it was asked."""

    def __init__(self, number: int) -> None:
        self.number, self.draws = number, 0

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.draws += 1
        return np.full(size, self.number, np.int64)


# Messages of a recommender


def table(n_items: int = 40, **changes: Any) -> CatalogueTable:
    """An item table with five stars."""
    fields: dict[str, Any] = {
        "ids": tuple(f"item {place:02d}" for place in range(n_items)), "integer_ids": False,
        "scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0,
    }  # fmt: skip
    return CatalogueTable(**(fields | changes))


def stars(n_items: int = 40) -> dict[str, float]:
    """Ratings of every second item of a `table`, with all stars among them."""
    return {f"item {place:02d}": float(1 + place % 5) for place in range(0, n_items, 2)}


def terms(method: str, view: str, known: CatalogueTable, **changes: Any) -> Terms:
    """Terms of a run over this item table."""
    fields: dict[str, Any] = {
        "method": method,
        "view": view,
        "epsilon": 0.5,
        "rounds": 1 if method in ("hdp-sum", "hdp-bit") else 4,
        "catalogue": known_items(known).fingerprint,
        "users": 200,
        "minimum": 150,
        "sharing": 100,
    }
    return Terms(**(fields | changes))


def survey(design: str, known: CatalogueTable, **changes: Any) -> Survey:
    """A survey of this item table."""
    fields: dict[str, Any] = {
        "design": design,
        "coding": "threshold" if design == "L" else "soft",
        "epsilon": 0.5,
        "n_items": len(known.ids),
        "catalogue": known_items(known).fingerprint,
        "contributors": 100,
        "scale_low": known.scale_low,
        "scale_high": known.scale_high,
        "scale_step": known.scale_step,
    }
    return Survey(**(fields | changes))


def plan(known: CatalogueTable, **changes: Any) -> Plan:
    """A plan of hdpmf-paid over this item table."""
    fields: dict[str, Any] = {
        "n_items": len(known.ids),
        "n_factors": 3,
        "epochs": 4,
        "learning_rate": 0.05,
        "reg": 0.01,
        "mechanism": "paid",
        "epsilon": 0.5,
        "scale_low": known.scale_low,
        "scale_high": known.scale_high,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def opening(epsilon: float = 0.5) -> Opening:
    """The opening that belongs to the plan."""
    return Opening(noise_budget=epsilon)


def a_round(number: int, n_items: int = 40, **changes: Any) -> Round:
    """A round of three factors."""
    fields: dict[str, Any] = {
        "number": number, "item_factors": np.full((n_items, 3), 0.1, np.float32),
        "raters": np.full(n_items, 50), "h": None,
    }  # fmt: skip
    return Round(**(fields | changes))


def facts(known: CatalogueTable, **changes: Any) -> ItemFacts:
    """Facts about the items of this table."""
    n = len(known.ids)
    fields: dict[str, Any] = {
        "catalogue": known_items(known).fingerprint,
        "mean": 3.5,
        "bias": np.linspace(-1, 1, n).astype(np.float32),
        "variance": np.full(n, 0.1, np.float32),
        "popularity": np.ones(n, np.float32),
        "patterns": np.zeros((n, 0), np.float32),
    }
    return ItemFacts(**(fields | changes))


def envelope(
    message: Message | bytes, number: int = 0, *, run: bytes = RUN, part: str = "job"
) -> bytes:
    """A message as it travels."""
    body = message if isinstance(message, bytes) else encode(message)
    return encode(Envelope(run=run, number=number, part=part, body=body))  # type: ignore[arg-type]


# Devices


class Device(Participant):
    """A participant whose store tests may look into.

    Attributes:
        store: Its store.
        messages: What it was told, in order.
    """

    def __init__(self, store: DeviceStore, *arguments: Any, **options: Any) -> None:
        super().__init__(store, *arguments, **options)
        self.store = store

    @property
    def name(self) -> str:
        """Its identity, as networks and rosters have it."""
        return self.store.identity.public.hex()

    @property
    def card(self) -> DeviceCard:
        """Its entry on a roster."""
        return DeviceCard(name=self.name[:8], identity=self.name, users=self.store.users)


def make_store(
    ratings: Ratings | Mapping[str, float],
    *,
    users: int = 1,
    policy: Policy | None = OPEN,
    path: Any = ":memory:",
    weights: PrivacyWeights | None = None,
    catalogue: CatalogueTable | None = None,
) -> DeviceStore:
    """A device's store with these ratings (of one user, where they are stars by item); the item
    table is pinned where one is given.
    """
    store = DeviceStore.create(path, users=users, policy=policy)
    if isinstance(ratings, Ratings):
        if len(ratings):
            store.add(ratings)
            if weights is not None:
                store.set_weights(weights, ratings)
    else:
        for item, value in ratings.items():
            store.rate(item, value)
    if catalogue is not None:
        store.pin_catalogue(catalogue)
    return store


def enrol(
    devices: Sequence[Device], others: int = 0, users: Sequence[int] | None = None
) -> list[DeviceIdentity]:
    """Let all devices pin a roster of themselves and so many others, whose keys are returned."""
    strangers = [DeviceIdentity.generate() for _ in range(others)]
    stores = [device.store for device in devices]
    keys = [*(store.identity.public for store in stores), *(one.public for one in strangers)]
    counts = users or [*(store.users for store in stores), *(1 for _ in strangers)]
    for store in stores:
        store.pin_roster(keys, counts)
    return strangers


def ask(device: Participant, message: Message, number: int = 0, *, run: bytes = RUN) -> Any:
    """What the device says to a message; a Refusal where it refuses."""
    reply = decode(device.answer(envelope(message, number, run=run)))
    assert isinstance(reply, Reply)
    found = decode(reply.body)
    assert isinstance(found, Refusal) == (reply.part == "refusal")
    return found


def part_of(ratings: Ratings, begin: int, end: int) -> Ratings:
    """The ratings of the users from ``begin`` to ``end``, over the whole catalogue."""
    own = ratings.take((ratings.user_codes >= begin) & (ratings.user_codes < end))
    return Ratings.from_arrays(
        ratings.users.ids[own.user_codes],
        ratings.items.ids[own.item_codes],
        own.values,
        scale=ratings.scale,
        item_table=ratings.item_table,
        items_index=ratings.items,
    )


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


# What a device reaches: a recommender's files and a leader


class MemoryCarrier:
    """A recommender's files and a leader, all in the test's hands. It keeps every request, in its
    order.

    Attributes:
        clock: The time.
        files: The recommender's folder.
        answers: What the leader says to the next uploads: a status, or "unreachable" or "silent"
            for an error before or after the bytes left; then ``otherwise``.
        uploads: All uploads whose bytes left: task, device, report.
        requests: What was asked for, with the size of what was sent.
        logged: What devices said to their owners.
    """

    def __init__(self, now: float, catalogue: CatalogueTable) -> None:
        self.clock = Clock(now)
        self.files: dict[str, bytes] = {}
        self.index: dict[str, Any] = {}
        self.answers: list[int | str] = []
        self.otherwise: int | str = 201
        self.uploads: list[tuple[bytes, str, bytes]] = []
        self.requests: list[tuple[str, int]] = []
        self.logged: list[str] = []
        self.tasks: dict[bytes, bytes] = {}
        self.publish(catalogue=encode(catalogue))

    @property
    def now(self) -> float:
        """The time."""
        return self.clock.now

    @now.setter
    def now(self, now: float) -> None:
        self.clock.now = now

    def publish(
        self,
        *,
        catalogue: bytes = b"",
        task: bytes = b"",
        facts: bytes = b"",
        run: str = "ab" * 16,
        lists: bytes = b"",
    ) -> None:
        """Put files into the folder and name them in its index."""
        if catalogue:
            self.index["catalogue"] = self._keep("catalogue", catalogue)
        if task:
            name = task_id(task).hex()
            self.tasks[task_id(task)] = task
            self.files[f"task-{name}.msgpack"] = task
            self.index["task"] = {"file": f"task-{name}.msgpack", "id": name}
        if facts:
            self.index["model"] = self._keep("facts", facts) | {"run": run}
        if lists:
            self.index["lists"] = self._keep("lists", lists)
        self.files["index.json"] = json.dumps(self.index).encode()

    def _keep(self, kind: str, data: bytes) -> dict[str, str]:
        digest = sha256(data).hexdigest()
        self.files[f"{kind}-{digest}.msgpack"] = data
        return {"file": f"{kind}-{digest}.msgpack", "sha256": digest}

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        """Return a file, as `Carrier.fetch` does."""
        self.requests.append((name, 0))
        data = self.files.get(name)
        if data is None:
            raise TransportError("not there")
        if len(data) > most:
            raise TransportError("too long")
        tag = sha256(data).hexdigest()
        return None if etag == tag else (data, tag)

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Any
    ) -> int:
        """Take a report, as `Carrier.upload` does."""
        self.requests.append((f"{leader.organisation} {path} {sorted(headers)}", len(body)))
        answer = self.answers.pop(0) if self.answers else self.otherwise
        if answer == "unreachable":
            raise TransportError("unreachable")
        leaving()
        task = id_from_text(path.split("/")[2], 32)
        device = headers.get("hdpmf-device", "")
        if device:
            said = signed_bytes(task, sha256(body).digest())
            assert verifies(bytes.fromhex(device), bytes.fromhex(headers["hdpmf-signature"]), said)
        assert headers["content-type"] == "application/dap-report"
        self.uploads.append((task, device, body))
        if answer == "silent":
            raise TransportError("no answer")
        return int(answer)


def live(device: Participant, world: MemoryCarrier, seconds: float) -> None:
    """Let time pass, a step at a time."""
    end = world.now + seconds
    while world.now < end:
        world.now = min(world.now + device.step(), end)
    device.step()


# Two servers


def server_keys() -> tuple[ServerKeys, ServerKeys]:
    """The keys of a leader and of a helper."""
    made = []
    for name in ("library", "university"):
        party, hpke = PartyKey.generate(), KeyPair.generate(7)
        config = hpke.config.encode().hex()
        card = Server(
            organisation=name, url=f"https://{name}.example:443", hpke=config, identity=party.public
        )
        made.append((party, hpke, card))
    (first, hpke, leader), (second, other, helper) = made
    return (
        ServerKeys(role="leader", party=first, hpke=hpke, own=leader, partner=helper),
        ServerKeys(role="helper", party=second, hpke=other, own=helper, partner=leader),
    )


class ServerPair:
    """A leader and a helper with a clock, in memory or over databases in a folder.

    Args:
        clock: Of both.
        noises: Of the leader and of the helper.
        folder: Of their databases and of what they have released; in memory without one.
        rules: Of both.
        between: Puts something between the leader and the helper.
        url: Of the database of a role.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        noises: tuple[Any, Any],
        *,
        folder: Path | None = None,
        rules: Rules | None = None,
        between: Callable[[HelperApi], HelperApi] = lambda helper: helper,
        url: Callable[[str], str] | None = None,
    ) -> None:
        self.keys = server_keys()
        self.servers = self.keys[0].servers
        self.clock, self.noises = clock, noises
        self.folder, self.between = folder, between
        self.rules = SimulationRules(minimum=2) if rules is None else rules
        self.url = url or (
            lambda role: "sqlite://" if folder is None else f"sqlite:///{folder / role}.sqlite"
        )
        self._open()
        self.start()

    def _open(self) -> None:
        self.databases = [ServerDatabase(self.url(role)) for role in ("leader", "helper")]

    def start(self) -> None:
        """Start both servers from what is in their databases."""
        logs = [
            None if self.folder is None else self.folder / f"{role}.released"
            for role in ("leader", "helper")
        ]
        options: dict[str, Any] = {"clock": self.clock, "rules": self.rules}
        self.helper = Helper(
            self.keys[1],
            self.databases[1],
            noise=self.noises[1],
            released_batches=logs[1],
            **options,
        )
        self.leader = Leader(
            self.keys[0],
            self.databases[0],
            self.between(self.helper),
            noise=self.noises[0],
            released_batches=logs[0],
            **options,
        )

    def restart(self) -> None:
        """Start again with nothing but what is on the disk."""
        if self.folder is not None:
            for database in self.databases:
                database.close()
            self._open()
        self.start()

    def aggregate_all(self, limit: int = 256) -> int:
        """Check all reports together; how many there were."""
        done = 0
        while found := self.leader.aggregate(limit):
            done += found
        return done


@dataclass
class Uploader:
    """The key of somebody who uploads reports that a test has made."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def identity(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, task: bytes, report: bytes) -> bytes:
        return self.key.sign(signed_bytes(task, sha256(report).digest()))


def make_report(
    task: Task,
    number: bytes,
    weights: np.ndarray,
    levels: np.ndarray,
    *,
    time: int | None = None,
    report_id: bytes | None = None,
    spoil: Callable[[int, bytes], bytes] = lambda server, share: share,
    extensions: tuple[Any, ...] = (),
    sealed_for: bytes | None = None,
) -> bytes:
    """One user's report for a task with this id; ``spoil`` changes a share before it is
    encrypted.
    """
    prio = prio_of(task, number)
    report_id = secrets.token_bytes(16) if report_id is None else report_id
    sharded = prio.shard(prio.circuit.encode(weights, levels), report_id)  # type: ignore[attr-defined]
    metadata = ReportMetadata(report_id, task.begin if time is None else time)
    aad = InputShareAad(sealed_for or number, metadata, sharded.public_share).encode()
    servers, sealed = ((task.servers.leader, Role.LEADER), (task.servers.helper, Role.HELPER)), []
    for place, (server, role) in enumerate(servers):
        plain = PlaintextInputShare(extensions, spoil(place, sharded.input_shares[place])).encode()
        config = HpkeConfig.decode(bytes.fromhex(server.hpke))
        sealed.append(seal(config, input_share_info(role), aad, plain))
    return Report(metadata, sharded.public_share, sealed[0], sealed[1]).encode()
