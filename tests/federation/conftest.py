"""One deployment for all tests here: a SuperLink with TLS and node authentication, and two
device processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deployed import HEARTBEAT, NAMES, ON_PATH, Live
from transport_contract import MAX_BYTES, Network

from hdpmf.common.net.flower.recommender import FlowerRecommender
from hdpmf.common.net.keys import NodeKey
from hdpmf.lab.simulate.deploy import Deployment


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("deployment")
    keys = {name: NodeKey.generate() for name in NAMES}
    roster = {name: key.public for name, key in keys.items()}
    with (
        Deployment(folder / "logs", {"PYTHONPATH": ON_PATH}) as deployment,
        FlowerRecommender(
            folder / "service", roster=roster, heartbeat=HEARTBEAT, max_bytes=MAX_BYTES
        ) as recommender,
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
