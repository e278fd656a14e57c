"""Thousands of real devices on one recommender: who is answered, how fast, and what each process
needs for it.

::

    python benchmarks/load.py --devices 50,100,200,500,1000,2000

The recommender is a process as its operator starts it (``hdpmf recommender``), and so are the two
servers. Devices are users of ML-1M, each with its own store, keys and agent and its own TLS
connections; they are dealt to a few processes, and are on the same cores as everything else.

Devices look at the recommender's public files and upload a report at a random moment of the period
(``--period``), each request over a connection of its own. Counted is also when there is a sum, and
when everybody has the model.

A device that has no model at the end was never answered.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.base.progress import PlainLines, clock
from hdpmf.common.data import Ratings, load_dataset
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.identity import Invitation
from hdpmf.lab.simulate.deploy import RECOMMENDER, Deployment, free_port
from hdpmf.lab.simulate.simulate import deal
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.participants import Admission

sys.path.insert(0, str(Path(__file__).parents[1]))
from hdpmf.untrusted.aggregator.tasks import Rules
from tests.aggregator.server_processes import HELPER, LEADER, Pair

THREADS = 16
"""Of a process with devices that report to two servers: so many of them have a connection at
once.
"""

POLL_EVERY = 15.0
"""Seconds between a device's looks at the public files, here; 300 where nobody waits for the
result.
"""

_SAMPLE = 0.5


@dataclass
class Told:
    """What a process with devices has seen.

    Attributes:
        answered: Devices that have a model at the end.
        requests: Seconds of every request, by its kind.
        model_at: When the last device had its model.
        failures: Requests that failed, by what was said.
    """

    answered: int = 0
    requests: dict[str, list[float]] = field(default_factory=dict)
    model_at: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)


# A process with devices


def crowd(pipe: Connection) -> None:
    """Devices, until the pipe is closed: first their keys, then what they have seen."""
    from hdpmf.common.base.files import allow_open_files
    from hdpmf.lab.simulate.demo import state_of
    from hdpmf.private.device.ledger import LEVELS
    from hdpmf.private.device.state import changed, new_state
    from hdpmf.private.device.state_file import StateFile

    allow_open_files(16_384)
    threading.stack_size(512 << 10)
    parts: list[tuple[Ratings, PrivacyWeights]] = pipe.recv()
    new = [new_state(LEVELS["middle"]) for _ in parts]
    pipe.send([state.signer.public for state in new])
    invitation: Invitation = pipe.recv()
    states = [
        changed(state_of(bare.name, *part, invitation), identity=bare.identity)
        for bare, part in zip(new, parts, strict=True)
    ]
    told = Told()
    with tempfile.TemporaryDirectory(prefix="hdpmf-crowd-") as folder, ExitStack() as stack:
        files = [
            stack.enter_context(StateFile.create(Path(folder, str(place)), state))
            for place, state in enumerate(states)
        ]
        _take_part(files, told, pipe, invitation)
    pipe.send(told)


class _TimedCarrier:
    """The web, with a watch."""

    def __init__(self, invitation: Invitation, told: Told) -> None:
        from hdpmf.private.device.carrier import WebCarrier

        self._web, self._told, self._guard = WebCarrier([invitation]), told, threading.Lock()

    def read(self, url: str, most: int) -> bytes:
        return self._timed("fetch", lambda: self._web.read(url, most))

    def send(self, sealed: Any) -> Any:
        kind = "upload" if sealed.url.endswith("/reports") else "token"
        return self._timed(kind, lambda: self._web.send(sealed))

    def _timed(self, kind: str, call: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        try:
            found = call()
        except Exception as error:
            with self._guard:
                self._told.failures[f"{kind}: {error}"] = (
                    self._told.failures.get(f"{kind}: {error}", 0) + 1
                )
            raise
        with self._guard:
            self._told.requests.setdefault(kind, []).append(time.monotonic() - begin)
        return found


def _take_part(files: Sequence[Any], told: Told, pipe: Connection, invitation: Invitation) -> None:
    from hdpmf.common.aggregation.two_servers.prio import prio3_bounded_vector
    from hdpmf.private.device.participant import Participant

    carrier = _TimedCarrier(invitation, told)
    # What Numba has compiled is loaded once when a device starts.
    warm = prio3_bounded_vector(4, 40, 25_600, True, b"")
    warm.shard(warm.circuit.encode(np.zeros(4, np.int64)), bytes(16))
    devices = [Participant(file, carrier, every=POLL_EVERY) for file in files]
    pipe.send("ready")
    pipe.recv()
    now = time.monotonic()
    # Devices look at any time; here their first looks are spread over the time between two.
    due = [(now + POLL_EVERY * place / len(devices), place) for place in range(len(devices))]
    waiting, guard, some = set(range(len(devices))), threading.Lock(), threading.Event()

    def step(place: int) -> None:
        wait = devices[place].step()
        with guard:
            if files[place].load().state.only().model:
                waiting.discard(place)
                told.model_at = time.monotonic()
            else:
                heapq.heappush(due, (time.monotonic() + wait, place))
        some.set()

    with ThreadPoolExecutor(THREADS) as pool:
        while waiting and not pipe.poll():
            with guard:
                ready = []
                while due and due[0][0] <= time.monotonic():
                    ready.append(heapq.heappop(due)[1])
                left = due[0][0] - time.monotonic() if due else 1.0
            for place in ready:
                pool.submit(step, place)
            some.wait(max(0.01, min(left, 1.0)))
            some.clear()
    told.answered = len(devices) - len(waiting)


# Processes, watched


class Watched:
    """Processor time and peak memory of processes and of those that they start, looked at twice
    a second.
    """

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.megabytes: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        self._stop.set()
        self._thread.join()

    def add(self, name: str, pid: int) -> None:
        """Watch a process from now on."""
        self._begun[name] = _processor_seconds(pid)
        self._pids[name] = pid

    def look(self) -> None:
        """How they are now; of one that has ended, what was seen last stays."""
        for name, pid in list(self._pids.items()):
            try:
                self.seconds[name] = _processor_seconds(pid) - self._begun[name]
                self.megabytes[name] = max(self.megabytes.get(name, 0.0), _peak_megabytes(pid))
            except (OSError, ValueError, IndexError):
                continue

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE):
            self.look()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


# One row of the table


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        devices: How many.
        processes: With devices in them.
        period: Seconds.
        timeout: Seconds that a run may take.
    """

    devices: int
    processes: int = 4
    period: int | None = None
    timeout: float = 1200.0

    @property
    def seconds(self) -> int:
        """Of the period: long enough that these cores, which are also the devices', are not
        always busy.
        """
        return 60 + self.devices // 6 if self.period is None else self.period


def measure(
    plan: Plan, train: Ratings, folder: Path, shown: PlainLines | None = None
) -> dict[str, Any]:
    """One run with so many devices."""
    weights = PrivacySpec.paper().draw(train, 0)
    parts = deal(train, weights)[: plan.devices]
    if len(parts) < plan.devices:
        raise SystemExit(
            f"the data set has {len(parts)} users, and {plan.devices} devices were asked for"
        )
    with _crowds(parts, plan.processes) as (pipes, pids), Watched() as watched:
        people = [Admission(key) for pipe in pipes for key in pipe.recv()]
        service = ServiceFolder.create(
            folder / "recommender",
            Config(name="load", port=free_port(), names=("localhost", "127.0.0.1")),
            catalogue_table(train.items, train.scale, train.item_table),
            lambda made: ensure_certificates(made.tls_folder, made.config.names),
        )
        with service.participants() as participants:
            participants.add(people)
        for place, pid in enumerate(pids):
            watched.add(f"devices {place}", pid)
        row = _by_two_servers(plan, service, pipes, watched, shown)
    devices = [name for name in watched.seconds if name.startswith("devices")]
    return {
        "devices": plan.devices,
        "items": train.n_items,
        "load": round(os.getloadavg()[0], 1),
        **row,
        "cpu_seconds": {
            name: round(value, 1) for name, value in watched.seconds.items() if name not in devices
        }
        | {"devices": round(sum(watched.seconds[name] for name in devices), 1)},
        "peak_megabytes": {
            name: round(value) for name, value in watched.megabytes.items() if name not in devices
        }
        | {"devices": round(sum(watched.megabytes[name] for name in devices))},
    }


@contextmanager
def _crowds(
    parts: Sequence[tuple[Ratings, PrivacyWeights]], processes: int
) -> Iterator[tuple[list[Connection], list[int]]]:
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for begin, end in pairwise([len(parts) * part // processes for part in range(processes + 1)]):
        ours, theirs = context.Pipe()
        worker = context.Process(target=crowd, args=(theirs,), daemon=True)
        worker.start()
        theirs.close()
        ours.send(list(parts[begin:end]))
        pipes.append(ours)
        workers.append(worker)
    try:
        yield pipes, [worker.pid or 0 for worker in workers]
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join(timeout=10.0)
            if worker.is_alive():
                worker.terminate()
                worker.join()


def _tell(pipes: Sequence[Connection], *word: Any) -> list[Any]:
    for pipe in pipes:
        pipe.send(word if len(word) > 1 else word[0])
    return [pipe.recv() for pipe in pipes]


def _summary(service: ServiceFolder) -> dict[str, Any]:
    runs = service.runs()
    if not runs or not service.summary_path(runs[-1]).exists():
        return {}
    found = json.loads(service.summary_path(runs[-1]).read_bytes())
    return {
        name: found.get(name) for name in ("users", "seconds", "refusals", "bytes_in", "bytes_out")
    }


def _by_two_servers(
    plan: Plan,
    service: ServiceFolder,
    pipes: list[Connection],
    watched: Watched,
    shown: PlainLines | None,
) -> dict[str, Any]:
    from hdpmf.untrusted.service.keys import pin_servers

    folder = service.path.parent
    with Pair(folder, rules=Rules()) as pair:
        keys = pin_servers(service.path, service.config.name, pair.servers, same_host=True)
        for made in pair.folders.values():
            made.admit(keys.card)
        pair.start(LEADER, HELPER)
        for role in (LEADER, HELPER):
            watched.add(role, pair.deployment.child(role).process.pid)
        authority = (service.tls_folder / "authority.pem").read_bytes()
        invitation = Invitation(
            address=f"https://localhost:{service.config.port}",
            servers=pair.servers,
            authority=authority.decode(),
        )
        _tell(pipes, invitation)
        watched.add(RECOMMENDER, pair.deployment.recommender(service.path).process.pid)
        _wait(plan, pair.deployment, time.monotonic(), None, service.is_serving)
        begin = time.monotonic()
        _ask_for_run(service, plan)
        for pipe in pipes:
            pipe.send("go")
        over: list[float] = []  # when there was a sum

        def finished() -> bool:
            if not over and _summary(service):
                over.append(time.monotonic())
            return all(pipe.poll() for pipe in pipes)

        _wait(plan, pair.deployment, begin, shown, finished)
        for pipe in pipes:
            if not pipe.poll():
                pipe.send("stop")
        told: list[Told] = [pipe.recv() for pipe in pipes]
        watched.look()
    requests: dict[str, list[float]] = {}
    failures: dict[str, int] = {}
    for part in told:
        for kind, times in part.requests.items():
            requests.setdefault(kind, []).extend(times)
        for what, count in part.failures.items():
            failures[what] = failures.get(what, 0) + count
    summary = _summary(service)
    return {
        "period": plan.seconds,
        "never_answered": plan.devices - sum(part.answered for part in told),
        "failed": "" if summary else "there is no sum",
        "seconds": round(
            max((part.model_at for part in told if part.model_at), default=time.monotonic())
            - begin,
            1,
        ),
        "seconds_to_sum": round(over[0] - begin, 1) if over else None,
        "requests": {kind: _spread(times) for kind, times in sorted(requests.items())},
        "failures": failures,
        "summary": summary,
    }


def _ask_for_run(service: ServiceFolder, plan: Plan) -> None:
    from hdpmf.untrusted.service.daemon import ask_for_run
    from hdpmf.untrusted.service.settings import RunSettings

    least = max(16, 3 * plan.devices // 4)
    ask_for_run(service, RunSettings(minimum=least, period=plan.seconds, precision=1))


def _spread(times: list[float]) -> dict[str, Any]:
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "median": round(statistics.median(ordered), 3),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 3),
        "longest": round(ordered[-1], 3),
    }


def _wait(
    plan: Plan,
    deployment: Deployment,
    begin: float,
    shown: PlainLines | None,
    reached: Callable[[], bool],
) -> None:
    """Until it is reached, or the time is over; a process that fails ends it, too."""
    while not reached() and time.monotonic() - begin < plan.timeout:
        if any(not deployment.child(name).running for name in deployment.names):
            return
        if shown is not None:
            shown.tick()
        time.sleep(0.2)


# The table


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For docs/scale.md."""
    lines = []
    for row in rows:
        cpu, memory = row["cpu_seconds"], row["peak_megabytes"]
        one = row["requests"].get("upload", {}).get("median")
        lines.append(
            f"| {row['devices']:,} | {row['never_answered']} | {one} | {row['seconds']:,.0f} | "
            + " | ".join(f"{cpu[name]:.0f} s, {memory[name]} MB" for name in cpu)
            + f" | {row['failed']} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--devices", default="50,100,200", help="how many; several after one another, with commas"
    )
    parser.add_argument("--processes", type=int, default=4, help="with devices in them")
    parser.add_argument("--period", type=int, help="seconds (default: 60 and one per 6 devices)")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for one run")
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument(
        "--keep", type=Path, help="a folder for logs and the recommender's files, which are kept"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    numbers = [int(each) for each in given.devices.split(",")]
    train, _ = load_dataset(given.data).hold_out(10, rng=0)
    rows: list[dict[str, Any]] = []
    began = time.monotonic()

    def summary() -> str:
        done = ", ".join(f"{row['devices']}" for row in rows)
        return f"{done or 'none'} done of {given.devices}; {clock(time.monotonic() - began)}"

    shown = PlainLines(summary)
    for number in numbers:
        plan = Plan(number, given.processes, given.period, given.timeout)
        with tempfile.TemporaryDirectory(prefix="hdpmf-load-") as place:
            folder = Path(place) if given.keep is None else given.keep / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            rows.append(measure(plan, train, folder, shown))
        if not given.json:
            shown.say("\n".join(table(rows[-1:])))
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
