"""The operator's page beside a recommender that really serves: before, during and after a run,
and once it ended.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import Page, expect

from hdpmf.common.data import synthetic_world
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.lab.simulate.deploy import RECOMMENDER, Deployment, free_port
from hdpmf.lab.simulate.virtual_device import deal
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.policy import Policy
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.settings import Pace
from tests.e2e.browsing import Heard, settle
from tests.e2e.clubs import answering, hdpmf
from tests.e2e.served_pages import enter, operator_page

PAGES = ("overview", "runs", "devices", "model", "knowledge")
DEVICES = 5
POLICY = Policy(min_participants=2, min_devices=3, epsilon=2.0)
PACE = Pace(gather=60.0, deadline=60.0, attempts=3, pause=0.2)


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file of a folder, when it was written and what is in it.

    Without the temporary file that becomes state.json: it may be gone before it is read.
    """
    found = {}
    for file in (folder, *folder.rglob("*")):
        if not file.name.startswith(".state.json."):
            digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
            found[str(file.relative_to(folder))] = (file.stat().st_mtime_ns, digest)
    return found


def test_it_follows_a_recommender_that_serves_and_changes_nothing(
    page: Page, heard: Heard, tmp_path: Path
):
    world = synthetic_world(DEVICES, 30, 100, rng=4)
    folder = ServiceFolder.create(
        tmp_path / "rec",
        Config(name="beside", port=free_port(), pace=PACE),
        catalogue_table(world.items, world.scale, world.item_table),
        lambda made: ensure_certificates(made.tls_folder, made.config.names),
    )
    stores = []
    for number, home in enumerate(deal(world, PrivacyWeights.uniform(world), DEVICES, 0)):
        stores.append(new_device(tmp_path / f"{number}.sqlite", policy=POLICY))
        stores[-1].add(home.ratings)
    cards = [card_of(store) for store in stores]
    folder.enroll(cards)
    for store in stores:
        store.pin_roster([bytes.fromhex(card.identity) for card in cards], [1] * DEVICES)
    with Deployment(tmp_path / "logs") as deployment, operator_page(folder.path) as served:
        enter(page, served)
        show = Shown(page, served.origin)
        assert "No process is serving this folder" in show("overview")
        deployment.recommender(folder.path)
        show.until("overview", "A process is serving this folder")
        show.until("overview", "waiting for a first run")  # it has published its items by then
        assert "No runs yet" in show("runs")

        # While every page is looked at, nothing changes but what the serving process itself writes.
        before = contents(folder.path)
        for name in PAGES:
            show(name)
        now = contents(folder.path)
        changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        assert changed <= {".", "state.json"}

        # During a run, which waits for devices: they are not there yet.
        hdpmf("recommender", "run", folder.path, "--method", "hdp-sum", "--minimum", DEVICES)
        show.until("overview", "waiting for devices")
        assert fields(page, served.origin) == {
            "stage": "gather",
            "method": "hdp-sum",
            "view": "sums",
            "rounds": "0/1",
            "devices": "0",
            "users": "0",
            "minimum": str(DEVICES),
            "epsilon": "0.5, proved",
            "refusals": "0",
        }
        assert "There is no model yet" in show("model")

        # After it: the very numbers of the run's summary.
        authority = (folder.tls_folder / "authority.pem").read_bytes()
        with answering(stores, folder.config.address, authority):
            show.until("runs", "done", seconds=120)
        (number,) = folder.runs()
        summary = folder.summary(number)
        assert summary is not None
        row = fields(page, served.origin)
        expect(page.locator("main section h2")).to_contain_text(number.hex()[:12])
        assert [row[name] for name in ("stage", "rounds", "devices", "users")] == [
            "done",
            "1/1",
            str(DEVICES),
            str(summary["users"]),
        ]
        assert row["epsilon"].startswith(f"{summary['privacy']['epsilon']:.4g}, ")
        show("model")
        assert page.locator("table tbody tr").count() >= 10
        deployment.stop(RECOMMENDER)
        show.until("overview", "No process is serving this folder")
        before = contents(folder.path)
        for name in PAGES:
            show(name)
        assert contents(folder.path) == before
        settle(page)
        assert heard.complaints == []
    for store in stores:
        store.close()


class Shown:
    """What the operator's page says now."""

    def __init__(self, page: Page, origin: str) -> None:
        self._page, self._origin = page, origin

    def __call__(self, name: str) -> str:
        self._page.goto(f"{self._origin}/{name}")
        return self._page.locator("main").inner_text()

    def until(self, name: str, words: str, seconds: float = 60) -> None:
        """Look again until it says so."""
        end = time.monotonic() + seconds
        while words not in self(name):
            assert time.monotonic() < end, self(name)
            self._page.wait_for_timeout(200)


def fields(page: Page, origin: str) -> dict[str, str]:
    """The card of the only run."""
    page.goto(f"{origin}/runs")
    expect(page.locator("main section.run")).to_have_count(1)
    found = page.locator("main section.run [data-field]").all()
    stage = page.locator("main section.run .badge").inner_text()
    return {"stage": stage} | {
        each.get_attribute("data-field") or "": each.inner_text() for each in found
    }
