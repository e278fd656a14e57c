"""Everything as its users start it: two servers, devices, and a recommender that is killed
meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

from hdpmf.cli import main
from hdpmf.common.protocol.servers import read_collector
from hdpmf.lab.simulate.deploy import RECOMMENDER, free_port
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import HELPER, LEADER, Pair
from tests.deploy.page import ROOT
from tests.deploy.prometheus import Prometheus, example_for, missing
from tools import dashboard

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

USERS = 3
QUIET = {
    "Alerts of the recommender",
    "Troubles in an hour",
    "Reports rejected in an hour, by reason",
}
"""Panels that are flat, or empty, while nothing is wrong."""


def hdpmf(*arguments: object) -> None:
    """A command, in this process."""
    with pytest.raises(SystemExit) as end:
        main.run([str(argument) for argument in arguments])
    assert end.value.code in (0, None)


def test_people_join_by_links_and_the_model_comes_back(tmp_path: Path) -> None:
    items, shop, links = tmp_path / "items.csv", tmp_path / "shop", tmp_path / "links"
    items.write_text("item,title\n" + "".join(f"{number},Film {number}\n" for number in range(8)))
    hdpmf("recommender", "init", shop, "--items", items, "--name", "shop", "--listen", free_port())
    rules = Rules(minimum=2, lease=2.0)
    with Pair(tmp_path, rules=rules) as pair, ExitStack() as stack:
        servers = tmp_path / "servers.json"
        servers.write_bytes(pair.servers.to_json())
        hdpmf("recommender", "servers", shop, servers, "--same-host")
        for folder in pair.folders.values():
            folder.admit(read_collector((shop / "collector-card.json").read_bytes()))
        pair.start(LEADER, HELPER)
        watched = str(free_port())
        pair.deployment.recommender(shop, "--metrics", watched)
        begin = time.time()
        prometheus = stack.enter_context(watching(tmp_path, watched, pair))
        place = ServiceFolder(shop)
        wait_for(pair, lambda: (shop / "public" / "index.json").exists())
        hdpmf("recommender", "invite", shop, "--number", USERS, "--out", links)
        trial = ("--authority", shop / "tls" / "authority.pem", "--same-host", "--yes")
        stores = [tmp_path / f"device{number}.sqlite" for number in range(USERS)]
        for number, (store, link) in enumerate(zip(stores, links.read_text().split(), strict=True)):
            hdpmf("device", "init", store)
            hdpmf("device", "join", store, link, *trial, "--look")
            hdpmf("device", "rate", store, number, 5)
            assert place.people == number + 1
        thief = tmp_path / "thief.sqlite"
        hdpmf("device", "init", thief)
        hdpmf("device", "join", thief, links.read_text().split()[0], *trial, "--look")
        assert place.people == USERS
        hdpmf("recommender", "run", shop, "--period", "30s", "--precision", "5s", "--minimum", 2)
        for store in stores:
            pair.deployment.device(store.stem, store, "--once", "--every", "1")
        wait_for(pair, lambda: place.unfinished() is not None)
        pair.deployment.kill(RECOMMENDER)
        pair.deployment.recommender(shop, "--metrics", watched)
        for store in stores:
            pair.deployment.wait(store.stem, 240)
        (run,) = place.runs()
        summary = json.loads(place.summary_path(run).read_bytes())
        assert summary["users"] == USERS
        assert summary["privacy"]["status"] == "proved"
        if prometheus is not None:
            check_dashboard(prometheus, begin)
        pair.deployment.stop(RECOMMENDER)
    for store in stores:
        hdpmf("device", "recommend", store)


def watching(
    folder: Path, recommender: str, pair: Pair
) -> AbstractContextManager[Prometheus | None]:
    """A Prometheus, which CI always has."""
    if missing() and "CI" not in os.environ:
        return nullcontext()
    config = example_for([f"127.0.0.1:{recommender}"], pair.folders.values())
    return Prometheus(folder / "prometheus", config)


def check_dashboard(prometheus: Prometheus, begin: float) -> None:
    """Every panel for two servers has data of this run, and the picture of all is drawn."""
    last_run = "hdpmf_recommender_last_run_timestamp_seconds > 0"
    prometheus.wait("the run is shown", lambda: bool(prometheus.query(last_run)))
    url = f"http://{prometheus.address}"
    drawn = dashboard.draw(url, ROOT / "out" / "dashboard.png", begin, time.time(), "10s")
    flat = {
        title
        for title, series in drawn.items()
        if not any(value > 0 for *_, values in series for value in values)
    }
    assert flat <= QUIET


def task_of(shop: Path) -> str | None:
    """The task that is published."""
    task = json.loads((shop / "public" / "index.json").read_bytes())["task"]
    return None if task is None else task["id"]


def wait_for(pair: Pair, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        pair.deployment.check()
        assert time.monotonic() < end
        time.sleep(0.1)
