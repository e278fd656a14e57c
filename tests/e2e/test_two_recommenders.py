"""Two real recommenders with other items under the same ids, on one person's page: two lists,
one ledger.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

from playwright.sync_api import Page, expect

from hdpmf.common.data import RatingScale
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import HELPER, LEADER, Pair
from tests.e2e.browsing import Heard, leading_to, settle
from tests.e2e.clubs import (
    SHORT_PERIODS,
    TITLES,
    entries_of,
    films,
    hdpmf,
    invite,
    living,
    make_others,
    wait_for,
)
from tests.e2e.served_pages import enter, owner_page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLUBS = {"films": "The", "books": "A"}
PERIOD = "40s"


def test_two_recommenders_with_other_items_and_one_ledger(
    page: Page, heard: Heard, tmp_path: Path
) -> None:
    mine, ports = tmp_path / "mine.sqlite", {name: free_port() for name in CLUBS}
    others = {name: make_others(tmp_path / f"people-{name}") for name in CLUBS}
    with new_device(
        mine, scale=RatingScale(1.0, 5.0, 1.0), policy=SHORT_PERIODS
    ) as store:  # its owner is not asked before each run
        card = card_of(store)
    with (
        ExitStack() as alive,
        Pair(tmp_path, rules=Rules(minimum=16, lease=2.0)) as pair,
        owner_page(mine, "--every", "1", "--same-host") as served,
    ):
        invitations = {}
        for name, article in CLUBS.items():
            shop, items = tmp_path / name, tmp_path / f"{name}.csv"
            items.write_text(films(article))
            hdpmf(
                "recommender",
                "init",
                shop,
                "--items",
                items,
                "--name",
                f"Club of {name}",
                "--port",
                ports[name],
            )
            cards = [card, *(card_of(store) for store in others[name])]
            invitations[name] = invite(shop, ports[name], cards, pair)
        pair.start(LEADER, HELPER)
        for name in CLUBS:
            pair.deployment.start(name, "hdpmf", "recommender", "serve", str(tmp_path / name))
        for name in CLUBS:
            wait_for(pair.deployment, ServiceFolder(tmp_path / name).is_serving, 60)

        # Both are joined; each brings its items, and item 1 is rated with each.
        enter(page, served)
        for name in CLUBS:
            page.goto(f"{served.origin}/recommenders")
            form = page.locator("form[data-action='/recommenders/preview']")
            form.locator("input").set_input_files(tmp_path / name / "invitation.json")
            with leading_to(page, "/recommenders"):
                form.locator("button").click()
            with leading_to(page, "/recommenders"):
                page.locator("button[value=yes]").click()
        wait_for(pair.deployment, lambda: all(_items_at(mine, place) for place in (1, 2)), 60)
        for place, (name, article) in enumerate(CLUBS.items()):
            page.goto(f"{served.origin}/rate")
            with leading_to(page, "/rate"):
                page.get_by_role("button", name=f"Club of {name}").click()
            for number, title in enumerate(TITLES[:5]):
                page.get_by_role("searchbox").fill(title.lower())
                found = page.locator("#found .item")
                expect(found.locator("strong")).to_have_text([f"{article} {title}"])
                expect(found.locator("input:checked")).to_have_count(
                    0
                )  # what is rated there is not rated here
                found.locator(".stars label").nth(4 if number % 2 == place else 0).click()
                expect(page.locator("#rated")).to_have_text(str(number + 1))

        # A run of each at the same time; then two lists, and one ledger.
        for name, invitation in invitations.items():
            alive.enter_context(living(others[name], invitation))
            hdpmf(
                "recommender",
                "run",
                tmp_path / name,
                "--period",
                PERIOD,
                "--precision",
                "5s",
                "--minimum",
                18,
            )

        def received() -> set[str]:
            return {entry.recommender for entry in entries_of(mine) if entry.action == "received"}

        wait_for(pair.deployment, lambda: len(received()) == 2, 200)
        for name, article in CLUBS.items():
            page.goto(f"{served.origin}/recommendations")
            with leading_to(page, "/recommendations"):
                page.get_by_role("button", name=f"Club of {name}").click()
            titles = page.locator(".list strong")
            expect(titles).to_have_count(20)
            assert all(title.startswith(f"{article} ") for title in titles.all_inner_texts())
        page.goto(f"{served.origin}/disclosures")
        expect(page.locator(".strips li")).to_have_count(10)
        with DeviceStore.open(mine) as store:
            paid = {
                entry.recommender: entry.ratings
                for entry in store.ledger.entries()
                if entry.action == "agreed"
            }
        assert paid == {invitation.address: 5 for invitation in invitations.values()}
        settle(page)
        assert heard.complaints == []
        assert [url for url in heard.requests if not url.startswith(served.origin)] == []
        alive.close()
    for stores in others.values():
        for store in stores:
            store.close()


def _items_at(path: Path, place: int) -> bool:
    with DeviceStore.open(path) as store:
        return place in store.recommender_ids and store.at(place).pinned_catalogue is not None
