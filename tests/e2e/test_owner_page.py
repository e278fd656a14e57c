"""The owner's page in a real browser: what a person does there, both colour schemes, a phone,
what is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import BrowserContext, Locator, Page, Route, StorageState, expect

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.identity import Invitation
from hdpmf.private.device.consent import ask_owner
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.memberships import join, pause
from hdpmf.private.device.own_items import load_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from tests.e2e.browsing import SCREENS, Heard, accessible, find_chromium, settle
from tests.e2e.served_pages import ServedPage, enter, owner_page
from tests.unit.device.reporting_world import SERVERS
from tests.world import terms

pytestmark = pytest.mark.slow

ADDRESS = "https://localhost:9443"

PAGES = ("start", "rate", "recommendations", "privacy", "disclosures", "recommenders", "settings")
SIZES = {
    **SCREENS,
    "200 %": {"viewport": {"width": 640, "height": 400}},
    "400 %": {"viewport": {"width": 320, "height": 256}},
}
"""Screens, and a desktop of 1280 x 800 or 1024 on which everything is twice or four times as large.
"""
FILMS = "item,title,genres,year\n" + "".join(
    f"{number},{word} Film {number},{'Drama|Comedy' if number % 2 else 'War'},{1950 + number}\n"
    for number, word in enumerate(["Quiet", "Zombie", "Golden", "Hidden"] * 8)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    find_chromium()
    made = tmp_path_factory.mktemp("page")
    (made / "films.csv").write_text(FILMS)
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[ServedPage]:
    with new_device(folder / "me.sqlite", scale=RatingScale(0.5, 5.0, 0.5)) as store:
        table = load_catalogue(store, folder / "films.csv").table
        join(store, Invitation(address=ADDRESS, servers=SERVERS, name="Film club"))
        pause(store, ADDRESS)
        store.pin_catalogue(table)
        for number in range(12):
            store.rate(str(number), 0.5 * (1 + number % 10))
        asked = terms(table, epsilon=0.5)
        ask_owner(store, Question(recommender=ADDRESS, terms=asked, servers=SERVERS.digest))
    with owner_page(folder / "me.sqlite") as opened:
        yield opened


@pytest.fixture
def context(new_context: Callable[..., BrowserContext], inside: StorageState) -> BrowserContext:
    return new_context(storage_state=inside)


def value_of(folder: Path, item: str) -> float | None:
    with DeviceStore.open(folder / "me.sqlite") as store:
        return next((record.value for record in store.records() if record.item == item), None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SIZES)
def test_it_renders_without_complaint_for_everybody_and_asks_nobody_else(
    new_context, inside, served: ServedPage, screen, scheme
):
    context = new_context(**SIZES[screen], color_scheme=scheme, storage_state=inside)
    page, heard = context.new_page(), Heard(context)
    for name in PAGES:
        page.goto(f"{served.origin}/{name}")
        settle(page)
        assert heard.complaints == []
        assert [url for url in heard.requests if not url.startswith(served.origin)] == []
        assert (
            page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
        ), name
        assert accessible(page, of_any_severity=True) == [], name


@pytest.mark.parametrize("screen", SCREENS)
def test_all_that_decides_is_on_one_screen(new_context, inside, served: ServedPage, screen: str):
    page = new_context(**SCREENS[screen], storage_state=inside).new_page()
    height = page.viewport_size["height"]
    page.goto(f"{served.origin}/disclosures")
    parts = page.locator(".consent").locator("h2, .claimed, .warning, .gauge, .answers button")
    expect(parts).to_have_count(9)
    answers = page.locator(".answers").bounding_box()
    for part in parts.all():
        box = part.bounding_box()
        end = box["y"] + box["height"]
        assert 0 <= box["y"] < end <= height, (part, box)
        # Nothing is behind the answers, which stay at the lower edge.
        assert end <= answers["y"] + 1 or box["y"] >= answers["y"], (part, box)
    # They stay in reach while the details are read.
    page.get_by_text("Details and exact numbers").click()
    page.evaluate("scrollTo(0, 300)")
    agree = page.get_by_role("button", name="Agree once").bounding_box()
    assert agree["y"] + agree["height"] <= height


def tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Go on by keyboard until something has the focus."""
    for _ in range(30):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError("the keyboard does not get there")


def test_stars_by_keyboard_alone(page: Page, heard: Heard, served: ServedPage, folder: Path):
    page.goto(f"{served.origin}/rate")
    tab_to(page, page.get_by_role("searchbox"))
    page.keyboard.type("golden film 30")
    found, mine = page.locator("#found .item"), page.locator("#mine [data-item='30']")
    expect(found).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(mine).to_have_attribute("data-value", "0.5")
    # A key that is held down: what it chose first is slow to arrive, and still the last counts.
    slow: list[Route] = []
    page.route("**/rate/set", lambda route: route.continue_() if slow else slow.append(route))
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    slow[0].continue_()
    expect(mine).to_have_attribute("data-value", "4.5")
    page.wait_for_load_state("networkidle")
    assert value_of(folder, "30") == 4.5
    tab_to(page, page.get_by_role("button", name="Undo"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(mine).to_have_attribute("data-value", "4")
    assert value_of(folder, "30") == 4.0
    assert heard.complaints == []


def test_the_lock_holds_in_every_tab_until_the_passphrase(
    context: BrowserContext, page: Page, tmp_path: Path
):
    (tmp_path / "films.csv").write_text(FILMS)
    with new_device(
        tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0), passphrase="correct horse"
    ) as store:
        load_catalogue(store, tmp_path / "films.csv")
        store.rate("1", 5)
    with owner_page(tmp_path / "me.sqlite") as served:
        enter(page, served)
        for words in ("wrong horse", "correct horse"):
            assert "Zombie" not in page.content()
            page.get_by_label("Passphrase").fill(words)
            page.get_by_role("button", name="Unlock").click()
            expect(page.locator("main")).to_contain_text(
                "wrong" if words == "wrong horse" else "Zombie Film 1"
            )
        other = context.new_page()
        other.goto(f"{served.origin}/rate")
        expect(other.locator("main")).to_contain_text("Zombie Film 1")
        page.get_by_role("button", name="Lock").click()
        expect(page).to_have_title(re.compile("^Locked"))
        assert "Zombie" not in page.content()
        page.go_back()  # nor does the browser keep what it has shown
        assert "Zombie" not in page.content()
        other.locator("#mine .stars label").first.click()  # the tab beside it
        expect(other).to_have_title(re.compile("^Locked"))
        assert "Zombie" not in other.content()
        other.get_by_label("Passphrase").fill("correct horse")
        other.get_by_role("button", name="Unlock").click()
        expect(other.locator("#mine [data-item='1']")).to_have_attribute(
            "data-value", "5"
        )  # nothing was changed
