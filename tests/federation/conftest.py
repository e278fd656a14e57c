"""One deployment for all tests here: a SuperLink with TLS and node authentication, and two device processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from transport_contract import MAX_BYTES, Network

from hdpmf.federation.deploy import Deployment
from hdpmf.transport.enrolment import Enrolment
from hdpmf.transport.flower_recommender import FlowerRecommender
from hdpmf.transport.keys import NodeKey

HEARTBEAT = 1.0  # so that a device that was killed may come back after two seconds
NAMES = ("aa11", "bb22")
HERE = Path(__file__).parent


def wait_until(reached: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Bounded waiting; what was waited for is in the failure."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        time.sleep(0.05)


@dataclass
class Live:
    """The deployment and what a test may do to it."""

    recommender: FlowerRecommender
    deployment: Deployment
    folder: Path
    keys: dict[str, NodeKey]

    def enrolment(self, name: str) -> Enrolment:
        return Enrolment.make(self.recommender.address, self.recommender.authority, self.keys[name])

    def start_device(self, name: str, process: str = "") -> None:
        path = self.folder / f"{name}.enrolment"
        path.write_bytes(self.enrolment(name).to_bytes())
        self.deployment.start(process or name, "scripted_device", name, str(path), str(HEARTBEAT))

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: self.recommender.present() >= set(names), f"{names} are connected")

    def network(self) -> Network:
        return Network(self.recommender, NAMES)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("deployment")
    keys = {name: NodeKey.generate() for name in NAMES}
    roster = {name: key.public for name, key in keys.items()}
    with (
        Deployment(folder / "logs", {"PYTHONPATH": str(HERE)}) as deployment,
        FlowerRecommender(folder / "service", roster=roster, heartbeat=HEARTBEAT, max_bytes=MAX_BYTES) as recommender,
    ):
        made = Live(recommender, deployment, folder, keys)
        for name in NAMES:
            made.start_device(name)
        made.wait_for(*NAMES)
        yield made


@pytest.fixture
def network(live: Live) -> Network:
    """Both devices connected, whatever a test before did."""
    live.wait_for(*NAMES)
    return live.network()
