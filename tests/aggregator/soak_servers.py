"""Kill a server at random moments, again and again: python -m tests.aggregator.soak_servers --kills
50.

A leader and a helper run as processes over TLS. In every period devices upload to a new task, the
servers check the reports together, and the collector collects. All the while one of the two is
killed with ``kill -9`` at a random moment and started again, and now and then the clock of one is
an hour off for some seconds (libfaketime; without it no clock jumps). Every report that was
confirmed must be in the sum once, and no other. Who asks for the sum again must get the same bytes,
so that noise was drawn once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import sqlalchemy as sa

from hdpmf.untrusted.aggregator.datastore import batches, tasks
from tests.aggregator.server_processes import (
    HELPER,
    LEADER,
    Asked,
    Pair,
    faketime_library,
    make_task,
    near,
    taken,
)

REPORTS = 40
SECONDS = 8  # of a task
JUMPS = 0.3  # of what happens to servers is a jump of a clock
HOUR = 3600


@dataclass
class Ended:
    """How a period with kills in it ended."""

    seed: int
    kills: list[tuple[str, float]] = field(default_factory=list)
    jumps: list[tuple[str, int]] = field(default_factory=list)
    seconds: float = 0.0
    reports: int = 0
    faults: list[str] = field(default_factory=list)


class Killer:
    """Kills one of the two every now and then, and starts it again, until it is stopped."""

    def __init__(self, pair: Pair, rng: random.Random, most: int, ended: Ended) -> None:
        self._pair, self._rng, self._most, self._ended = pair, rng, most, ended
        self._over = threading.Event()
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while len(self._ended.kills) < self._most and not self._over.wait(
            self._rng.uniform(0.0, 6.0)
        ):
            victim = self._rng.choice((LEADER, HELPER))
            if self._pair.has_clocks and self._rng.random() < JUMPS:
                self._jump(victim, self._rng.choice((-HOUR, HOUR)))
                continue
            self._pair.kill(victim)
            self._ended.kills.append((victim, round(time.monotonic() - self._begin, 2)))
            time.sleep(self._rng.uniform(0.0, 0.5))
            self._pair.serve(victim)

    def _jump(self, role: str, ahead: int) -> None:
        self._ended.jumps.append((role, ahead))
        self._pair.set_clock(role, ahead)
        time.sleep(self._rng.uniform(1.0, 8.0))
        self._pair.set_clock(role, 0)


def one_period(pair: Pair, seed: int, kills: int, timeout: float = 240.0) -> Ended:
    """A task from its first report to its sum."""
    rng, ended, begin = random.Random(seed), Ended(seed), time.monotonic()
    asked = make_task(pair.servers, pair.collector.card, seconds=SECONDS)
    pair.give(asked)
    # Large numbers: a report too many or too few changes every entry by more than the noise does.
    vectors = [[rng.randrange(150, 256) for _ in range(4)] for _ in range(REPORTS)]
    end = begin + timeout
    with Killer(pair, rng, kills, ended):
        for vector in vectors:
            if not confirmed(pair, asked, asked.report(vector), end):
                ended.faults.append("a report was not taken")
            time.sleep(rng.uniform(0.0, 0.2))
        first = pair.collection(asked, end - time.monotonic())
        # Kills that are left come while the sum is asked for again and again.
        while len(ended.kills) < kills and time.monotonic() < end:
            if pair.collection(asked, 60) != first:
                ended.faults.append("another sum for the same job: noise was drawn again")
            time.sleep(0.2)
    found, count = pair.collector.open(asked, first)
    if count != REPORTS or not near(found, [sum(column) for column in zip(*vectors, strict=True)]):
        ended.faults.append(f"the sum is wrong, over {count} of {REPORTS} reports")
    if pair.collection(asked, 60) != first:
        ended.faults.append("another sum for the same batch: noise was drawn again")
    for role, folder in pair.folders.items():
        with closing(folder.open_database()) as database, database.read() as connection:
            closed = sa.select(sa.func.count()).select_from(batches)
            number = sa.select(tasks.c.number).where(tasks.c.id == asked.id).scalar_subquery()
            found = connection.execute(closed.where(batches.c.task == number)).scalar()
        if found != 1:
            ended.faults.append(f"the {role} has not closed the batch once")
    ended.seconds, ended.reports = round(time.monotonic() - begin, 1), count
    return ended


def confirmed(pair: Pair, asked: Asked, report: bytes, end: float) -> bool:
    """As a device does: the same bytes again until they are taken."""
    while time.monotonic() < end:
        try:
            if taken(pair.upload(asked, report)):
                return True
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="seed of the first period")
    given = parser.parse_args()
    killed, jumps, bad, seed = 0, 0, 0, given.first
    with (
        tempfile.TemporaryDirectory(prefix="hdpmf-soak-") as folder,
        Pair(Path(folder), clocks=bool(faketime_library())) as pair,
    ):
        pair.start(HELPER, LEADER)
        while killed < given.kills:
            ended = one_period(pair, seed, min(5, given.kills - killed))
            print(json.dumps(ended.__dict__), flush=True)
            bad += bool(ended.faults)
            if ended.faults:
                for role in (LEADER, HELPER):
                    print(f"--- {role}", *pair.log(role).splitlines()[-12:], sep="\n", flush=True)
            killed, seed = killed + len(ended.kills), seed + 1
            jumps += len(ended.jumps)
            pair.wait_for(LEADER)
            pair.wait_for(HELPER)
    print(json.dumps({"kills": killed, "jumps": jumps, "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
