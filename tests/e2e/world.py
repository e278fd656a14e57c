"""A recommender, two servers and other people, as real processes on this machine, for participants
in browsers and in Node: ``python -m tests.e2e.world FOLDER APP`` shows one to people.

The leader is ``localhost`` and the helper ``127.0.0.1``: a web participant takes no two servers of
one host.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from hdpmf.common.data import load_dataset
from hdpmf.common.net.https import client_context
from hdpmf.common.privacy import PrivacySpec
from hdpmf.lab.simulate.demo import PROGRAM, Parties
from hdpmf.lab.simulate.deploy import Deployment
from hdpmf.lab.simulate.simulate import only_users
from hdpmf.untrusted.service.daemon import ask_for_run
from hdpmf.untrusted.service.participants import KEY, Invitations
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.settings import RunSettings

PEOPLE = 4
SECONDS = 30
"""That each of the two tasks of a run takes reports."""


class World:
    """Use as a context; its processes end with it."""

    def __init__(self, folder: Path, *, people: int = PEOPLE, **settings: Any) -> None:
        ratings = load_dataset("synthetic", n_users=200, n_items=200, n_ratings=12_000)
        others = only_users(ratings, np.arange(ratings.n_users) < people)
        self.parties = Parties.set_up(folder, ratings, 2, **settings)
        self._task = ""
        self._others = folder / "devices"
        self.parties.enrol(self._others, others, PrivacySpec().draw(others, rng=0))
        self.service = self.parties.service
        self.deployment = Deployment(folder / "logs")
        self.authorities = folder / "authorities.pem"
        pair = self.parties.servers
        parts = (self.service.config.authority(self.service.path), pair.leader.authority)
        self.authorities.write_text("\n".join((*parts, pair.helper.authority)))
        self._servers = {"leader": self.parties.leader, "helper": self.parties.helper}
        self._client = httpx.Client(verify=client_context(pair.leader.authority))

    def __enter__(self) -> World:
        self.parties.start(self.deployment, time.monotonic() + 60)
        self.wait(lambda: (self.service.path / "public" / "index.json").exists())
        # It has compared its clock with the helper's: until then it takes no reports.
        self.wait(self._leader_is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self.deployment.stop_all()
        self._client.close()

    def link(self) -> str:
        """An invitation for one person."""
        made = PublicFiles(self.service).invite()
        return made.link(Invitations(self.service.path / KEY).make())

    def begin_run(self, seconds: int = SECONDS) -> None:
        """Begin a run, in which all others take part."""
        ask_for_run(self.service, RunSettings(minimum=2, epsilon=1.0, period=seconds, precision=1))
        self.deployment.start("participants", PROGRAM, str(self._others))

    def wait_for_task(self) -> None:
        """Wait until another task than at the last call is published, and has begun."""
        public = self.service.path / "public"

        def begun() -> bool:
            task = json.loads((public / "index.json").read_bytes())["task"]
            if task in ("", self._task):
                return False
            begin = json.loads((public / f"task-{task}.json").read_bytes())["begin"]
            if time.time() < begin + 1:
                return False  # a device looks again only after minutes
            self._task = task
            return True

        self.wait(begun)

    def summary(self, number: int = 1) -> dict[str, Any] | None:
        """What came of a run; None if it has not ended."""
        runs = self.service.runs()
        return self.service.summary(runs[number - 1]) if len(runs) >= number else None

    def counted(self) -> dict[str, list[int]]:
        """How many reports are in the sums of each task, in each server's own database."""
        found = {}
        for role, folder in self._servers.items():
            with closing(
                sqlite3.connect(f"file:{folder.path}/data.sqlite?mode=ro", uri=True)
            ) as db:
                rows = db.execute("SELECT amount FROM batches ORDER BY task").fetchall()
            found[role] = [amount for (amount,) in rows]
        return found

    def _leader_is_ready(self) -> bool:
        leader = self.parties.leader
        headers = {"authorization": f"Bearer {leader.metrics_token}"}
        told = self._client.get(leader.card.endpoint("/metrics"), headers=headers).text
        return "hdpmf_aggregator_partner_reachable 1.0" in told

    def wait(self, reached: Callable[[], object], seconds: float = 120.0) -> None:
        """Wait until something is so, while every process is well."""
        end = time.monotonic() + seconds
        while not reached():
            self.deployment.check()
            assert time.monotonic() < end, self.service.state()
            time.sleep(0.1)


def main(folder: Path, app: str) -> None:
    """Show a world until Ctrl-C; a run begins whenever a line comes in."""
    with World(folder, app=app) if app else World(folder) as world:
        while True:
            print(world.link(), flush=True)
            if not sys.stdin.readline():
                return
            world.begin_run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
