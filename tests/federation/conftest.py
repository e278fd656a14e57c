"""One deployment for all tests here: a web server with a mailbox, and two device processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.lab.simulate.deploy import Deployment
from tests.federation.deployed import ON_PATH, Live, recommender
from tests.federation.transport_contract import Network


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("deployment")
    identities = [DeviceIdentity.generate() for _ in range(2)]
    with (
        recommender(folder / "tls", identities) as made,
        Deployment(folder / "logs", {"PYTHONPATH": ON_PATH}) as deployment,
    ):
        live = Live(
            made, deployment, folder, {identity.public.hex(): identity for identity in identities}
        )
        for name in live.keys:
            live.start_device(name)
        live.wait_for(*live.names)
        yield live


@pytest.fixture
def network(live: Live) -> Network:
    """Both devices connected, whatever a test before did."""
    live.wait_for(*live.names)
    return live.network()
