"""A run of hdp-share as its operators start it: two servers and a recommender as processes, and
twenty devices of mixed levels that reach them by TLS.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.servers import Servers, read_collector
from hdpmf.lab.simulate.deploy import RECOMMENDER, free_port
from hdpmf.private.device.connection import serve_recommender
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.memberships import remember, store_for
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.pinned_servers import pin_servers
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import HELPER, LEADER, Pair
from tests.aggregator.test_whole_federation import hdpmf, task_of, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

LEVELS = ["hidden"] * 9 + ["seen"] * 7 + ["open"] * 4
N_ITEMS = 12
RATED = 5  # of each person, one of which is kept hidden


def made(path: Path, number: int, level: str) -> DeviceCard:
    """The card of a new device whose owner shows so much."""
    policy = Policy(min_participants=3, min_period=10, methods=("hdp-share",))
    with DeviceStore.create(path, policy=policy) as store:
        for place in range(RATED):
            item = str((number + 2 * place) % N_ITEMS)
            store.rate(item, float(1 + (number + place) % 5))
        store.sharing.put("item", str(number % N_ITEMS), "hidden")
        store.set_sharing_level(level)  # type: ignore[arg-type]
        return DeviceCard(name=f"device {number}", identity=store.identity.public.hex())


class Person(threading.Thread):
    """A device that joins, reports, shows what its owner shows, and gets the model."""

    def __init__(self, path: Path, address: str, authority: bytes, servers: Servers) -> None:
        super().__init__(daemon=True)
        self.path, self.address = path, address
        self.authority, self.servers = authority, servers
        self.lines: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with DeviceStore.open(self.path, serving=True) as store:
            with store.transaction():
                here = store_for(store, self.address)
                here.change_recommender(authority=self.authority)
                pin_servers(here, self.servers, same_host=True)
                remember(here, self.address)

            def after(participant: Participant) -> None:
                if participant.finished_task and participant.complete:
                    self.ending.set()

            serve_recommender(
                here, self.address, self.ending, self.lines.append, every=2.0, after=after
            )


def test_twenty_devices_of_mixed_levels(tmp_path: Path) -> None:
    items, shop = tmp_path / "items.csv", tmp_path / "shop"
    items.write_text("item,title\n" + "".join(f"{n},Film {n}\n" for n in range(N_ITEMS)))
    port = free_port()
    hdpmf("recommender", "init", shop, "--items", items, "--name", "shop", "--port", port)
    paths = [tmp_path / f"device{number}.sqlite" for number in range(len(LEVELS))]
    place = ServiceFolder(shop)
    place.enroll(made(paths[number], number, level) for number, level in enumerate(LEVELS))
    with Pair(tmp_path, rules=Rules(minimum=3, lease=2.0)) as pair:
        servers = tmp_path / "servers.json"
        servers.write_bytes(pair.servers.to_json())
        hdpmf("recommender", "servers", shop, servers, "--same-host")
        for folder in pair.folders.values():
            folder.admit(read_collector((shop / "collector-card.json").read_bytes()))
        pair.start(LEADER, HELPER)
        pair.deployment.recommender(shop)
        wait_for(pair, place.is_serving)
        options = (
            "--method",
            "hdp-share",
            "--epsilon",
            0.5,
            "--period",
            "60s",
            "--precision",
            "5s",
        )
        hdpmf("recommender", "run", shop, *options, "--minimum", 3)
        wait_for(
            pair, lambda: (shop / "public" / "index.json").exists() and task_of(shop) is not None
        )
        authority = (shop / "tls" / "authority.pem").read_bytes()
        address = f"https://localhost:{port}"
        people = [Person(path, address, authority, pair.servers) for path in paths]
        for person in people:
            person.start()
        # Whoever was confirmed is counted, also if the recommender dies meanwhile.
        shared = next((shop / "runs").iterdir()) / "shared"
        wait_for(pair, lambda: shared.is_dir() and len(list(shared.iterdir())) >= 2, 90.0)
        pair.deployment.kill(RECOMMENDER)
        pair.deployment.recommender(shop)
        for person in people:
            person.join(240)
            assert not person.is_alive(), person.lines[-3:]
        (run,) = place.runs()
        summary = json.loads(place.summary_path(run).read_bytes())
        pair.deployment.stop(RECOMMENDER)
    assert summary["users"] == len(LEVELS)
    assert summary["privacy"]["status"] == "proved"
    assert summary["levels"] == {
        "seen": {"people": 7, "ratings": 7 * (RATED - 1)},
        "open": {"people": 4, "ratings": 4 * (RATED - 1)},
    }
    for path, level in zip(paths, LEVELS, strict=True):
        with DeviceStore.open(path) as store:
            here = store.at(store.recommender_ids[0])
            sent = [run for run in past_runs(store) if run.count("sent")]
            assert len(sent) == (1 if level == "hidden" else 2)
            costs = {"hidden": RATED, "seen": RATED, "open": 1}[level]
            assert store.ledger.spent_total() == pytest.approx(0.5 * costs)
            assert len(recommend(here, 3)) == 3
