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

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, StorageState, expect

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.private.device.consent import ask_owner
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.memberships import join, pause
from hdpmf.private.device.own_items import load_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from tests.e2e.browsing import PHONE, SCREENS, Heard, accessible, find_chromium, leading_to, settle
from tests.e2e.served_pages import ServedPage, enter, history, owner_page
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
        asked = terms("hdp-sum", "two-servers", table, epsilon=0.5, rounds=1)
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


def test_a_page_that_keeps_people_out_would_be_noticed(page: Page, served: ServedPage):
    page.goto(f"{served.origin}/settings")
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert "label" in [name for _, name, _ in accessible(page)]


def search(page: Page, words: str) -> Locator:
    """Type into the field, and wait for the one item that is found."""
    page.get_by_role("searchbox").focus()
    page.keyboard.type(words)
    item = page.locator("#found .item")
    expect(item).to_have_count(1)
    return item


def test_stars_by_mouse_and_undo(page: Page, heard: Heard, served: ServedPage, folder: Path):
    page.goto(f"{served.origin}/rate")
    found, mine = search(page, "golden film 22"), page.locator("#mine [data-item='22']")
    undo = page.get_by_role("button", name="Undo")
    found.locator(".stars label").nth(6).click()
    expect(mine).to_have_attribute("data-value", "3.5")
    assert value_of(folder, "22") == 3.5
    found.locator(".stars label").nth(7).click()
    expect(mine).to_have_attribute("data-value", "4")
    assert value_of(folder, "22") == 4.0
    undo.click()
    expect(mine).to_have_attribute("data-value", "3.5")
    assert value_of(folder, "22") == 3.5
    mine.locator(".remove").click()
    expect(mine).to_have_attribute("data-value", "")
    assert value_of(folder, "22") is None
    undo.click()
    expect(mine).to_have_attribute("data-value", "3.5")
    assert value_of(folder, "22") == 3.5
    assert heard.complaints == []


def test_stars_by_touch(new_context, inside, served: ServedPage, folder: Path):
    context = new_context(**PHONE, storage_state=inside)
    page, heard = context.new_page(), Heard(context)
    page.goto(f"{served.origin}/rate")
    page.get_by_role("searchbox").tap()
    page.keyboard.insert_text("golden film 26")  # a phone's keyboard sends text, not keys
    found, mine = page.locator("#found .item"), page.locator("#mine [data-item='26']")
    expect(found).to_have_count(1)
    stars = found.locator(".stars label")
    assert value_of(folder, "26") is None
    # Anywhere on the fourth star is four; once more is half a star less, and four again. The last
    # star is at the edge of the screen.
    for place, off, value in ((7, 0, "4"), (7, 0, "3.5"), (7, -30, "4"), (9, 0, "5")):
        box = stars.nth(place).bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2 + off, box["y"] + box["height"] / 2)
        expect(mine).to_have_attribute("data-value", value)
        assert value_of(folder, "26") == float(value)
    page.get_by_role("button", name="Undo").tap()
    expect(mine).to_have_attribute("data-value", "4")
    assert value_of(folder, "26") == 4.0
    assert heard.complaints == []


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


def test_two_tabs_are_one_person(
    context: BrowserContext, page: Page, heard: Heard, served: ServedPage, folder: Path
):
    other = context.new_page()
    item = "#mine [data-item='4']"
    for tab in (page, other):
        tab.goto(f"{served.origin}/rate")
        expect(tab.locator(item)).to_have_attribute("data-value", "2.5")
    page.locator(f"{item} .stars label").nth(9).click()
    expect(page.locator(item)).to_have_attribute("data-value", "5")
    other.locator(f"{item} .stars label").nth(1).click()  # it does not know of the five stars yet
    expect(other.locator(item)).to_have_attribute("data-value", "1")
    assert value_of(folder, "4") == 1.0
    other.get_by_role(
        "button", name="Undo"
    ).click()  # what was there before, whichever tab it came from
    expect(other.locator("#toast")).to_contain_text("Undone")
    assert value_of(folder, "4") == 5.0
    # Forms, too: a tab that was loaded before the other one changed something still works.
    for tab in (page, other):
        tab.goto(f"{served.origin}/privacy")
    for tab, weight in ((other, "1.0"), (page, "0.5")):
        tab.locator(f"button.group[data-weight='{weight}']").click()
        with leading_to(tab, "/privacy"):
            tab.locator("#privacy-level-form button.main").click()
    other.reload()
    expect(other.locator("#privacy-level")).to_have_value("0.5")
    settle(page)
    assert heard.complaints == []


def test_a_file_with_a_preview(page: Page, served: ServedPage, folder: Path):
    (folder / "mine.csv").write_text("title,rating\nHidden Film 27,4.5\nNobody knows it,3\n")
    page.goto(f"{served.origin}/rate")
    form = page.locator("form[data-action='/rate/file']")
    form.locator("input").set_input_files(folder / "mine.csv")
    with leading_to(page, "/rate"):
        form.locator("button").click()
    expect(page.locator("main")).to_contain_text("no item like this")
    assert value_of(folder, "27") is None
    with leading_to(page, "/rate"):
        page.locator("button[value=yes]").click()
    assert value_of(folder, "27") == 4.5


def test_the_dial_tells_what_it_means_while_it_is_turned(page: Page, served: ServedPage):
    page.goto(f"{served.origin}/privacy")
    meaning, dial = page.locator("#meaning"), page.locator("#privacy-level")
    page.locator("button.group[data-weight='0.5']").click()
    expect(meaning).to_contain_text("63 %")
    dial.focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    expect(meaning).to_contain_text("52.5 %")
    expect(page.locator("#group")).to_have_text("Conservative")
    with leading_to(page, "/privacy"):
        page.locator("#privacy-level-form button.main").click()
    expect(dial).to_have_value("0.1")


def test_nothing_private_is_in_the_history(chromium: Browser, folder: Path, tmp_path: Path):
    with new_device(tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0)) as store:
        load_catalogue(store, folder / "films.csv")
    with owner_page(tmp_path / "me.sqlite") as served, chromium.new_context() as context:
        page = context.new_page()
        enter(page, served)
        page.goto(f"{served.origin}/rate")
        item = search(page, "zombie film 21")
        item.locator(".stars label").nth(2).click()
        expect(page.locator("#rated")).to_have_text("1")
        for name in PAGES:
            page.goto(f"{served.origin}/{name}")
        entries, token = history(page), served.link.partition("#")[2]
    assert len(entries) > len(PAGES)
    for entry in entries:
        assert token not in entry["url"]
        assert entry["url"].count("?") == 0
        assert not any(
            word in entry["url"] + entry["title"]
            for word in ("Quiet", "Zombie", "Golden", "Hidden")
        )


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


def test_it_locks_by_itself_and_a_new_link_is_the_key(page: Page, folder: Path, tmp_path: Path):
    with new_device(tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0)) as store:
        load_catalogue(store, folder / "films.csv")
        store.rate("1", 5)
    with owner_page(tmp_path / "me.sqlite", "--idle", "0.1") as served:
        enter(page, served)
        expect(page.locator("body")).to_contain_text("Zombie Film 1")
        expect(page).to_have_title(re.compile("^Locked"), timeout=60_000)
        assert "Zombie" not in page.content()
        page.goto(f"{served.origin}/rate")
        assert "Zombie" not in page.content()
        enter(page, served, served.new_link())
        expect(page.locator("body")).to_contain_text("Zombie Film 1")


def test_focus_stays_where_it_was_and_a_question_gets_it(page: Page, served: ServedPage):
    page.goto(f"{served.origin}/privacy")
    genre = page.locator("form[action='/privacy/genre'] button").nth(1)
    for pressed in ("true", "false"):
        genre.focus()
        with leading_to(page, "/privacy"):
            page.keyboard.press("Enter")
        expect(genre).to_have_attribute("aria-pressed", pressed)
        expect(genre).to_be_focused()
    ask = page.locator("form[action='/privacy/ask'] button[name=ask]")
    for answer in ("no", "yes"):
        if "Ask me every time" in ask.inner_text():
            with leading_to(page, "/privacy"):
                ask.click()
        with leading_to(page, "/privacy"):
            ask.click()
        expect(page.get_by_role("heading", name="without asking you?")).to_be_visible()
        expect(page.locator("button[name=sure][value=no]")).to_be_focused()
        assert accessible(page) == []
        with leading_to(page, "/privacy"):
            page.locator(f"button[name=sure][value={answer}]").click()
    expect(page.locator("main")).to_contain_text("answered without asking")
    assert page.evaluate("sessionStorage.length") == 0


def test_targets_are_as_large_as_a_thumb(new_context, inside, served: ServedPage):
    page = new_context(**SCREENS["phone"], storage_state=inside).new_page()
    small = """() => [...document.querySelectorAll("nav a, button, summary, select, input:not([type=radio], [type=checkbox], [type=hidden])")]
      .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height < 44)
      .map((each) => each.outerHTML.slice(0, 100))"""  # noqa: E501
    # What is under the middle of each star is as large as a thumb in both directions.
    stars = """() => [...document.querySelectorAll(".stars label.right")].map((star) => {
        star.scrollIntoView({block: "center"});
        const at = star.getBoundingClientRect();
        const hit = document.elementFromPoint(at.x + 1, at.y + at.height / 2);
        const size = hit.getBoundingClientRect();
        return hit.matches(".stars input") ? Math.min(size.width, size.height) : 0;
      })"""
    for name in PAGES:
        page.goto(f"{served.origin}/{name}")
        assert page.evaluate(small) == [], name
        sizes = page.evaluate(stars)
        assert bool(sizes) == (name == "rate")
        assert min(sizes, default=44) >= 44


def test_the_slider_says_its_level(page: Page, served: ServedPage):
    page.goto(f"{served.origin}/privacy")
    dial = page.locator("#privacy-level")
    for weight, words in (("0.5", "Moderate, 50 %"), ("0.1", "Conservative, 10 %")):
        page.locator(f"button.group[data-weight='{weight}']").click()
        expect(dial).to_have_attribute("aria-valuetext", words)


def test_a_device_that_stopped_is_said_to_have(new_context, tmp_path: Path, folder: Path):
    with new_device(tmp_path / "me.sqlite", scale=RatingScale(0.5, 5.0, 0.5)) as store:
        load_catalogue(store, folder / "films.csv")
        store.rate("3", 4.0)
    page = new_context().new_page()
    with owner_page(tmp_path / "me.sqlite", "--idle", "0.5") as served:
        enter(page, served)
        # It stops before the page has asked for the first time how long it may show itself.
        page.route("**/state", lambda route: route.abort())
        page.clock.install()
        page.goto(f"{served.origin}/privacy")
    page.locator("button.group[data-weight='0.5']").click()
    expect(page.locator("#toast .note")).to_have_count(1)
    expect(page.locator("#toast")).to_contain_text("Start it again")
    # When its time is over nothing private stays on the screen.
    assert page.locator("main > *").count() > 1
    page.clock.run_for(31_000)
    expect(page.locator("main > *")).to_have_count(1, timeout=60_000)
    expect(page.locator("#toast")).to_contain_text("hdpmf has stopped on this device")
