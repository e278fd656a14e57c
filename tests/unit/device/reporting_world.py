"""A recommender with two servers, played by the test on a `MemoryCarrier`, around real devices."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from hdpmf.common.protocol.survey_task import survey_circuit

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HpkeConfigList,
    InputShareAad,
    PlaintextInputShare,
    Report,
    Role,
)
from hdpmf.common.protocol import CatalogueTable, Survey, decode, encode
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.key_list import KeyList, PublishedKeys, SignedKeyList
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.task import Task, prio_of, task_id
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.hpke_keys import SigningKey
from tests import world
from tests.world import Device, MemoryCarrier, live

N_ITEMS = 12
START = 1_800_000_000
PERIOD = 7200
STARS = world.stars(N_ITEMS)
KEYS = (
    KeyPair(1, bytes(range(32))),
    KeyPair(2, bytes(range(1, 33))),
    KeyPair(3, bytes(range(2, 34))),
)


def signing_key(key: KeyPair) -> SigningKey:
    """The long-term key of the server with this HPKE key."""
    return SigningKey(sha256(key.config.encode()).digest())


def server(name: str, key: KeyPair, identity: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name.lower()}.example:8443",
        identity=identity * 64,
        signing=signing_key(key).public,
    )


def key_lists(leader: KeyPair, helper: KeyPair) -> bytes:
    """The lists of keys that these servers have signed, as a recommender publishes them."""
    lists = []
    for key in (leader, helper):
        configs = to_base64(HpkeConfigList((key.config,)).encode())
        keys = KeyList(serial=1, not_after=START + 1000 * PERIOD, configs=configs)
        lists.append(SignedKeyList.make(keys, signing_key(key).sign).to_bytes())
    return PublishedKeys.of(lists[0], lists[1]).to_bytes()


SERVERS = Servers(leader=server("Leaders", KEYS[0], "a"), helper=server("Helpers", KEYS[1], "b"))
COLLECTOR = Collector(organisation="Films", hpke=KEYS[2].config.encode().hex(), identity="c" * 64)
POLICY = Policy(servers=(SERVERS.digest,))


def table(**changes: Any) -> CatalogueTable:
    return world.table(N_ITEMS, **changes)


TABLE = table()


def survey(**changes: Any) -> Survey:
    asked = {"design": "A", "contributors": 1, "coding": "soft"} | changes
    return world.survey(asked.pop("design"), TABLE, **asked)


def make_task(asked: Survey | None = None, **changes: Any) -> bytes:
    """A task as it is published."""
    asked = survey() if asked is None else asked
    circuit, noise = survey_circuit(asked)
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
        "token_key": world.issuer().public.encoded,
    }
    return encode(Task(**(fields | changes)))


def make_facts(mean: float = 3.0, **changes: Any) -> bytes:
    zeros = np.zeros(N_ITEMS, np.float32)
    fields = {"mean": mean, "bias": zeros, "variance": zeros + 1} | changes
    return encode(world.facts(TABLE, **fields))


class World(MemoryCarrier):
    """What is outside a device, at the start of a period; the two servers' keys are the test's."""

    def __init__(self, keys: bytes | None = None) -> None:
        super().__init__(float(START), TABLE)
        self.publish(keys=key_lists(KEYS[0], KEYS[1]) if keys is None else keys)

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
    ratings: Any = None, *, path: Any = ":memory:", policy: Policy = POLICY
) -> DeviceStore:
    """A device's store with these ratings, of one user."""
    kept = STARS if ratings is None else ratings
    return world.make_store(kept, path=path, policy=policy)


def reporter(store: DeviceStore, world: World, moment: float = 0.5, **options: Any) -> Device:
    """A device whose random numbers are all ``moment``, and which has pinned the two servers."""
    if not store.recommender.servers:
        store.change_recommender(servers=SERVERS.to_json())
    settings = {"every": 60.0, "uniform": lambda: moment, "log": world.logged.append} | options
    return Device(store, world, recommender="https://films.example", clock=world.clock, **settings)


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
