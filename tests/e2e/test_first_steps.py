"""From an invitation to a list: a newcomer, on a desktop and on a phone, before anything has left.

Clicks are counted: no key, 20 stars, and at most 12 other clicks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import BrowserContext, Locator, Page, expect

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.identity import Invitation
from hdpmf.lab.simulate.deploy import Deployment, free_port
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.memberships import join
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.e2e.browsing import SCREENS, Heard, accessible
from tests.e2e.clubs import TITLES, answering, entries_of, films, hdpmf, wait_for
from tests.e2e.served_pages import enter, owner_page, pictures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OTHERS = 4
STARS = 20
MOST_CLICKS = 12
PLACE = "tile => tile.getBoundingClientRect().y + scrollY"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a recommender that serves, after a run with four others."""
    folder = tmp_path_factory.mktemp("first")
    place = folder / "shop"
    (folder / "films.csv").write_text(films())
    hdpmf(
        "recommender", "init", place, "--items", folder / "films.csv", "--port", free_port(),
        "--name", "Film club",
    )  # fmt: skip
    config = (place / "config.toml").read_text()
    for name, seconds in (("gather", "1.0"), ("pause", "0.5")):
        config = re.sub(rf"^{name} = .*$", f"{name} = {seconds}", config, flags=re.MULTILINE)
    (place / "config.toml").write_text(config)
    hdpmf("recommender", "invite", place)
    invitation = Invitation.read((place / "invitation.json").read_bytes())
    service = ServiceFolder(place)
    chance = random.Random(7)
    others = []
    for number in range(OTHERS):
        store = new_device(
            folder / f"other{number}.sqlite",
            policy=Policy(methods=("hdp-bit",), require_sums=False),
            scale=RatingScale(1.0, 5.0, 1.0),
        )
        for film in chance.sample(range(1, len(TITLES) + 1), 20):
            store.rate(str(film), float(chance.randint(1, 5)))
        others.append(store)
    service.enroll([card_of(store) for store in others])
    with Deployment(folder / "logs") as deployment:
        deployment.recommender(place)
        wait_for(deployment, service.is_serving)
        for store in others:
            join(store, invitation)
        with answering(others, invitation.address, invitation.authority.encode()):
            hdpmf("recommender", "run", place, "--method", "hdp-bit", "--minimum", OTHERS)
            wait_for(
                deployment,
                lambda: bool(service.runs()) and service.summary_path(service.runs()[0]).exists(),
            )
        yield place
    for store in others:
        store.close()


class Hand:
    """Clicks, and counts them."""

    def __init__(self) -> None:
        self.clicks = 0

    def click(self, target: Locator) -> None:
        self.clicks += 1
        target.click()


@pytest.mark.parametrize("screen", SCREENS)
def test_a_newcomer_gets_a_list_in_three_steps_before_anything_has_left(
    new_context: Callable[..., BrowserContext], shop: Path, tmp_path: Path, screen: str
) -> None:
    mine = tmp_path / "mine.sqlite"
    options: dict[str, Any] = SCREENS[screen]
    context = new_context(**options)
    page, heard, hand = context.new_page(), Heard(context), Hand()
    with owner_page(mine, "--every", "1") as served:
        enter(page, served)
        hand.click(page.get_by_role("button", name="Create my store"))
        expect(page).to_have_url(f"{served.origin}/start")
        assert accessible(page) == []
        form = page.locator("form[data-action='/recommenders/preview']")
        hand.clicks += 1  # the browser's own dialogue
        form.locator("input").set_input_files(shop / "invitation.json")
        hand.click(form.locator("button"))
        hand.click(page.get_by_role("button", name="The digests match: join"))
        hand.click(page.get_by_role("button", name="Conservative"))
        expect(page.locator("main")).to_contain_text("You have joined Film club.")
        expect(page.get_by_role("button", name="Conservative")).to_have_attribute(
            "aria-pressed", "true"
        )
        assert accessible(page) == []
        pictures(page, served, "start")
        hand.click(page.get_by_role("link", name="Rate titles"))
        expect(page.locator("#wall .item")).to_have_count(24)
        expect(page.get_by_text("Well-known titles")).to_be_visible()
        before = hand.clicks
        rate(page, hand)
        assert hand.clicks == before + STARS
        hand.click(page.get_by_role("link", name="See it now"))
        expect(page.locator(".list .item")).to_have_count(20)
        expect(page.locator("#nothing-left")).to_contain_text("have left this device")
        assert page.locator(".list .rank").all_inner_texts() == [str(n) for n in range(1, 21)]
        assert accessible(page) == []
        assert hand.clicks - STARS <= MOST_CLICKS
        assert page.evaluate("document.documentElement.scrollWidth") == options["viewport"]["width"]
        rate_from_the_list(page)
        assert [url for url in heard.requests if not url.startswith(served.origin)] == []
        assert heard.complaints == []
    assert entries_of(mine) == []
    with DeviceStore.open(mine) as store:
        assert store.n_ratings == STARS + 1


def rate(page: Page, hand: Hand) -> None:
    """Give stars to twenty titles; none of them moves by it."""
    tiles = page.locator("#wall .item")
    for number in range(STARS):
        tile = tiles.nth(number)
        place = tile.evaluate(PLACE)
        hand.click(tile.locator(".stars label").nth(number % 5))
        expect(tile).to_have_attribute("data-value", str(number % 5 + 1))
        expect(page.locator("#toast")).to_contain_text("Saved on this device")
        assert tile.evaluate(PLACE) == place
    expect(page.locator("#rated")).to_have_text(str(STARS))


def rate_from_the_list(page: Page) -> None:
    first = page.locator(".list .item").first
    title = first.locator("strong").inner_text()
    first.locator(".stars label").nth(4).click()
    expect(page.locator("#toast")).to_contain_text("Saved on this device")
    page.get_by_role("button", name="refresh the list").click()
    expect(page.locator(".list strong").first).not_to_have_text(title)
    page.get_by_label("Include what I have rated").check()
    expect(page.locator(".list").get_by_text(title, exact=True).first).to_be_attached()
