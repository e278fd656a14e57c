"""A whole federation with two servers on this machine: every user of a data set is a device of its own.

::

    python benchmarks/two_servers_federation.py --data ml-1m

The servers are processes of their own with databases on the disk. Every device has a store, chooses and pays for its
ratings, makes its report and uploads it over a TLS connection of its own; devices are dealt to two processes. Counted
are the time in which all devices report, the time from then on until the sum is there (the rest of the period is waited
for and not counted), and the processor time of each side.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.federation.population import DeviceRatings, deal
from hdpmf.privacy import PrivacySpec
from hdpmf.protocol import Task, decode, encode
from hdpmf.protocol.catalogue import catalogue_table, known_items
from hdpmf.protocol.servers import Server
from hdpmf.protocol.task import OneRating, prio_of, task_id
from hdpmf.ratings import load_dataset
from hdpmf.service.collector import collection_request, make_task, open_collection
from hdpmf.service.collector_keys import CollectorKeys
from hdpmf.service.settings import RunSettings
from hdpmf.transport.two_servers import TwoServers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "aggregator"))
from server_processes import HELPER, LEADER, Pair

from hdpmf.aggregator.config import TaskRules


class Door:
    """The recommender's files are here; the leader is reached over TLS."""

    def __init__(self, files: dict[str, bytes]) -> None:
        from hdpmf.transport.web import WebDoor

        self._files, self._web = files, WebDoor("https://localhost")

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        """A file of the recommender."""
        return self._files[name], ""

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Callable[[], None]
    ) -> int:
        """Put a report to the leader."""
        return self._web.upload(leader, path, headers, body, leaving)


def devices(pipe: Connection) -> None:
    """A process with devices."""
    from hdpmf.device.pair import pin_servers
    from hdpmf.device.policy import Policy
    from hdpmf.device.reporting import Reporter
    from hdpmf.device.store import DeviceStore

    parts: list[DeviceRatings] = pipe.recv()
    policy = Policy(max_total=None, min_participants=2)
    stores = []
    for part in parts:
        store = DeviceStore.create(":memory:", users=part.ratings.n_users, policy=policy)
        store.add(part.ratings)
        store.set_weights(part.weights, part.ratings)
        stores.append(store)
    pipe.send([store.identity.public.hex() for store in stores])
    servers, files = pipe.recv()
    for store in stores:
        pin_servers(store, servers)
    warm_up(files)
    pipe.send("ready")
    pipe.recv()
    processor, reported = time.process_time(), 0
    door = Door(files)
    for store in stores:
        said: list[str] = []
        reporter = Reporter(store, door, recommender="shop", uniform=lambda: 0.0, log=said.append)
        reporter.step()
        reported += any("reported" in line for line in said)
    pipe.send((time.process_time() - processor, reported))


def warm_up(files: dict[str, bytes]) -> None:
    """Load what Numba has compiled: a device does that once when it starts."""
    document = next(data for name, data in files.items() if name.startswith("task-"))
    task = decode(document)
    if not (isinstance(task, Task) and isinstance(task.circuit, OneRating)):
        raise SystemExit("the task is no survey")
    prio, none = prio_of(task, task_id(document)), np.zeros(task.circuit.items, np.int64)
    prio.shard(prio.circuit.encode(none, none), bytes(16))  # type: ignore[attr-defined]


def processor_seconds(pid: int) -> float:
    """Of a process and of those that it has started and that are running."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for each in (pid, *children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, found) for each in (child, *children(child))]


def peak_megabytes(pid: int) -> float:
    peaks = []
    for each in (pid, *children(pid)):
        status = Path(f"/proc/{each}/status").read_text()
        peaks.append(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
    return max(peaks)


def measure(data: str, period: int, processes: int, sample: int | None) -> dict[str, Any]:
    train, _ = load_dataset(data).hold_out(10, rng=0)
    weights = PrivacySpec.paper().draw(train, 0)
    parts = deal(train, weights, train.n_users, 0)[:sample]
    table = catalogue_table(train.items, train.scale, train.item_table)
    context = multiprocessing.get_context("spawn")
    pipes = []
    for begin, end in pairwise([len(parts) * part // processes for part in range(processes + 1)]):
        ours, theirs = context.Pipe()
        context.Process(target=devices, args=(theirs,), daemon=True).start()
        ours.send(list(parts[begin:end]))
        pipes.append(ours)
    names = [name for pipe in pipes for name in pipe.recv()]
    settings = RunSettings(method="hdp-sum", view="two-servers", minimum=2, rounds=1, period=period, precision=1)
    with tempfile.TemporaryDirectory() as folder, Pair(Path(folder), rules=TaskRules(minimum=2)) as pair:
        pair.start(LEADER, HELPER)
        pids = {role: pair.deployment.child(role).process.pid for role in (LEADER, HELPER)}
        keys = CollectorKeys("shop", pair.collector.party, pair.collector.hpke)
        task = make_task(settings, known_items(table), pair.servers, keys, time.time())
        document = encode(task)
        name = task_id(document)
        with TwoServers(pair.servers, keys.party) as door:
            door.add_task(document, [(device, 1) for device in names])
            catalogue = encode(table)
            digest = sha256(catalogue).hexdigest()
            files = {
                f"catalogue-{digest}.msgpack": catalogue,
                f"task-{name.hex()}.msgpack": document,
                "index.json": msgspec.json.encode({"catalogue": {"sha256": digest}, "task": {"id": name.hex()}}),
            }
            tell(pipes, (pair.servers, files))
            before = {role: processor_seconds(pid) for role, pid in pids.items()}
            begin = time.perf_counter()
            done = tell(pipes, "go")
            reporting = time.perf_counter() - begin
            if time.time() >= task.end:
                raise SystemExit(f"devices needed {reporting:.0f} s, longer than the period; give a longer --period")
            time.sleep(max(0.0, task.end - time.time()))
            begin, job = time.perf_counter(), secrets.token_bytes(16)
            door.begin_collection(name, job, collection_request(task))
            while (found := door.collection(name, job)) is None:
                time.sleep(0.1)
            collecting = time.perf_counter() - begin
        used = {role: processor_seconds(pid) - before[role] for role, pid in pids.items()}
        memory = {role: peak_megabytes(pid) for role, pid in pids.items()}
        _, reports = open_collection(document, found, keys)
    return {
        "devices": len(names),
        "items": train.n_items,
        "reports": reports,
        "reported": sum(part[1] for part in done),
        "seconds_reporting": reporting,
        "seconds_collecting": collecting,
        "device_ms": 1e3 * sum(part[0] for part in done) / len(names),
        "leader_ms": 1e3 * used[LEADER] / len(names),
        "helper_ms": 1e3 * used[HELPER] / len(names),
        "leader_mb": memory[LEADER],
        "helper_mb": memory[HELPER],
    }


def tell(pipes: list[Connection], word: Any) -> list[Any]:
    for pipe in pipes:
        pipe.send(word)
    return [pipe.recv() for pipe in pipes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--period", type=int, default=400, help="seconds; longer than all devices take")
    parser.add_argument("--processes", type=int, default=2, help="with devices in them")
    parser.add_argument("--sample", type=int, help="only so many users")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.data, given.period, given.processes, given.sample)
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['devices']:,} devices, {found['items']:,} items: {found['reports']:,} reports are in the sum")
    print(
        f"all have reported after {found['seconds_reporting']:.1f} s, the sum took {found['seconds_collecting']:.1f} s"
    )
    for side in ("device", LEADER, HELPER):
        print(f"{side}: {found[f'{side}_ms']:.2f} ms of processor time per report")
    print(f"most memory: leader {found['leader_mb']:.0f} MB, helper {found['helper_mb']:.0f} MB")


if __name__ == "__main__":
    main()
