"""Two servers, a recommender's folder and a clock, all in the test's hands, around real devices."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import numpy as np

from hdpmf.common.aggregation.masks.primitives import verifies
from hdpmf.common.aggregation.two_servers.dap import (
    InputShareAad,
    PlaintextInputShare,
    Report,
    Role,
    id_from_text,
)
from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.protocol import CatalogueTable, Grouping, ItemFacts, Survey, decode, encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.lists import ListTable
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.survey_task import stated
from hdpmf.common.protocol.task import Task, prio_of, task_id
from hdpmf.errors import TransportError
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore

N_ITEMS = 12
START = 1_800_000_000
PERIOD = 7200
STARS = {f"item {place:02d}": float(1 + place % 5) for place in range(0, N_ITEMS, 2)}
KEYS = (
    KeyPair(1, bytes(range(32))),
    KeyPair(2, bytes(range(1, 33))),
    KeyPair(3, bytes(range(2, 34))),
)


def server(name: str, key: KeyPair, identity: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name.lower()}.example:8443",
        hpke=key.config.encode().hex(),
        identity=identity * 64,
    )


SERVERS = Servers(leader=server("Leaders", KEYS[0], "a"), helper=server("Helpers", KEYS[1], "b"))
COLLECTOR = Collector(organisation="Films", hpke=KEYS[2].config.encode().hex(), identity="c" * 64)
POLICY = Policy(servers=(SERVERS.digest,))


def table(**changes: Any) -> CatalogueTable:
    fields: dict[str, Any] = {
        "ids": tuple(f"item {place:02d}" for place in range(N_ITEMS)), "integer_ids": False,
        "scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0,
    }  # fmt: skip
    return CatalogueTable(**(fields | changes))


TABLE = table()


def survey(**changes: Any) -> Survey:
    fields: dict[str, Any] = {
        "design": "A",
        "coding": "soft",
        "epsilon": 0.5,
        "n_items": N_ITEMS,
        "contributors": 1,
        "catalogue": known_items(TABLE).fingerprint,
        "scale_low": 1.0,
        "scale_high": 5.0,
        "scale_step": 1.0,
    }
    return Survey(**(fields | changes))


def make_task(
    asked: Survey | None = None, grouping: Grouping | None = None, **changes: Any
) -> bytes:
    """A task as it is published."""
    asked = survey() if asked is None else asked
    part = "labels" if grouping is not None else "counts" if asked.labels else "whole"
    circuit, noise = stated(asked, part, grouping)
    fields: dict[str, Any] = {
        "servers": SERVERS,
        "collector": COLLECTOR,
        "circuit": circuit,
        "noise": noise,
        "begin": START,
        "end": START + PERIOD,
        "precision": 3600,
        "minimum": 100,
        "survey": asked,
        "part": part,
        "grouping": grouping,
    }
    return encode(Task(**(fields | changes)))


def make_facts(mean: float = 3.0, **changes: Any) -> bytes:
    zeros = np.zeros(N_ITEMS, np.float32)
    fields: dict[str, Any] = {
        "catalogue": known_items(TABLE).fingerprint,
        "mean": mean,
        "bias": zeros,
        "variance": zeros + 1,
        "popularity": zeros + 1,
        "patterns": np.zeros((N_ITEMS, 0), np.float32),
    }
    return encode(ItemFacts(**(fields | changes)))


LISTS = encode(
    ListTable(
        form="linear",
        n_items=N_ITEMS,
        start=np.zeros(N_ITEMS + 1, np.int32),
        items=np.zeros(0, np.uint16),
        entries=np.zeros(0, np.int8),
        entries_unit=1.0,
        encode=np.ones((N_ITEMS, 2), np.int8),
        encode_unit=np.ones(2, np.float32),
        hidden=np.zeros(2, np.float32),
        decode=np.ones((N_ITEMS, 2), np.int8),
        decode_unit=np.ones(2, np.float32),
        output=np.zeros(N_ITEMS, np.float32),
    )
)


class World:
    """What is outside a device: it keeps every request, in its order.

    Attributes:
        now: The time.
        files: The recommender's folder.
        answers: What the leader says to the next uploads: a status, or TransportError before or
            after the bytes left.
        uploads: All uploads whose bytes left: task, device, report.
        requests: What was asked for, with the size of what was sent.
    """

    def __init__(self) -> None:
        self.now = float(START)
        self.files: dict[str, bytes] = {}
        self.index: dict[str, Any] = {}
        self.answers: list[int | str] = []
        self.otherwise: int | str = 201
        self.uploads: list[tuple[bytes, str, bytes]] = []
        self.requests: list[tuple[str, int]] = []
        self.logged: list[str] = []
        self.tasks: dict[bytes, bytes] = {}
        self.publish(catalogue=encode(TABLE))

    def publish(
        self,
        *,
        catalogue: bytes = b"",
        task: bytes = b"",
        facts: bytes = b"",
        run: str = "ab" * 16,
        lists: bytes = b"",
    ) -> None:
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

    # The door of a device

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
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
        self.requests.append((f"{leader.organisation} {path} {sorted(headers)}", len(body)))
        answer = self.answers.pop(0) if self.answers else self.otherwise
        if answer == "unreachable":
            raise TransportError("unreachable")
        leaving()
        task = id_from_text(path.split("/")[2], 32)
        device = headers.get("hdpmf-device", "")
        if device:
            said = b"hdpmf report " + task + sha256(body).digest()
            assert verifies(bytes.fromhex(device), bytes.fromhex(headers["hdpmf-signature"]), said)
        assert headers["content-type"] == "application/dap-report"
        self.uploads.append((task, device, body))
        if answer == "silent":
            raise TransportError("no answer")
        return int(answer)

    # What the two servers make of it

    def sums(self, task: bytes) -> list[int]:
        """The two servers' sum over the different reports of a task."""
        identity = task_id(task)
        read = decode(task)
        assert isinstance(read, Task)
        prio, key = prio_of(read, identity), bytes(32)
        totals: list[Any] = [None, None]
        for body in {report: None for one, _, report in self.uploads if one == identity}:
            report = Report.decode(body)
            metadata = report.report_metadata
            aad = InputShareAad(identity, metadata, report.public_share).encode()
            shares = [
                PlaintextInputShare.decode(pair.open(sealed, input_share_info(role), aad)).payload
                for pair, sealed, role in (
                    (KEYS[0], report.leader_encrypted_input_share, Role.LEADER),
                    (KEYS[1], report.helper_encrypted_input_share, Role.HELPER),
                )
            ]
            ready = [
                prio.prepare(key, place, metadata.report_id, report.public_share, share)
                for place, share in enumerate(shares)
            ]
            message = prio.verify([said for _, said in ready])
            for place, (kept, _) in enumerate(ready):
                out = prio.finish(kept, message)
                totals[place] = out if totals[place] is None else prio.field.add(totals[place], out)
        return [int(one) for one in prio.unshard([prio.field.encode(total) for total in totals])]


def make_store(
    ratings: Any = None, *, users: int = 1, path: Any = ":memory:", policy: Policy = POLICY
) -> DeviceStore:
    """A device's store with these ratings, of one user."""
    store = DeviceStore.create(path, users=users, policy=policy)
    for item, value in (STARS if ratings is None else ratings).items():
        store.rate(item, value)
    return store


def reporter(store: DeviceStore, world: World, moment: float = 0.5, **options: Any) -> Participant:
    """A device whose random numbers are all ``moment``."""
    settings = {"every": 60.0, "uniform": lambda: moment, "log": world.logged.append} | options
    return Participant(
        store, world, recommender="https://films.example", clock=lambda: world.now, **settings
    )


def live(device: Participant, world: World, seconds: float) -> None:
    """Let time pass, a step at a time."""
    end = world.now + seconds
    while world.now < end:
        world.now = min(world.now + device.step(), end)
    device.step()


def plain_sums(task: bytes, ratings: Any, weight: int = 64) -> list[int]:
    """By NumPy, what ratings of full weight give."""
    read = decode(task)
    assert isinstance(read, Task)
    n = read.circuit.items  # type: ignore[union-attr]
    scores, weights, total = np.zeros(n, int), np.zeros(n, int), 0
    for item, value in ratings.items():
        place, level = int(item.split()[1]), round(value) - 1
        weights[place] += weight
        scores[place] += weight * read.circuit.codes[level]  # type: ignore[union-attr]
        total += weight * read.circuit.rulers[level]  # type: ignore[union-attr]
    return [*scores.tolist(), *weights.tolist(), total]


def actions(store: DeviceStore) -> list[str]:
    return [entry.action for entry in store.ledger.entries()]


def reported(
    task: bytes, *stores: DeviceStore, moments: tuple[float, ...] = (0.1, 0.5, 0.9)
) -> World:
    """A world in which these devices have lived through a period."""
    world = World()
    world.publish(task=task)
    for store, moment in zip(stores, moments, strict=False):
        world.now = float(START)
        live(reporter(store, world, moment), world, PERIOD + 200)
    return world
