"""The operator's page in a real browser: both colour schemes, a phone, the keyboard, people who do
not see it.

With ``HDPMF_PICTURES=FOLDER`` it also takes the pictures of ``docs/operator-page.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import Browser, BrowserContext, Page, StorageState, expect

from hdpmf.common.data import ItemTable, Ratings, synthetic_world
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.untrusted.service.run_files import Trouble
from tests.e2e.browsing import SCREENS, Heard, accessible, find_chromium, leading_to, settle
from tests.e2e.served_pages import ServedPage, enter, history, operator_page, pictures
from tests.world import SUMS, Federation, growing_federation

pytestmark = pytest.mark.slow

PAGES = ("overview", "runs", "devices", "model", "knowledge")
FIRST, SECOND = (
    ("Quiet", "Golden", "Hidden", "Northern", "Paper"),
    ("Harbour", "Garden", "Signal", "Winter", "Letter"),
)


def world() -> Ratings:
    """Twenty-four people and twenty-five films."""
    made = synthetic_world(24, 25, 340, rng=3)
    names = [f"The {first} {second}" for first in FIRST for second in SECOND][: made.n_items]
    n = made.n_items
    table = ItemTable.build(made.items.ids, names, [("Drama",)] * n, [None] * n)
    return Ratings.from_arrays(
        made.user_ids,
        made.item_ids,
        made.values,
        scale=made.scale,
        item_table=table,
        items_index=made.items,
    )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    find_chromium()
    made = growing_federation(tmp_path_factory.mktemp("operator"), world())
    ensure_certificates(made.folder.tls_folder, ("localhost",))
    settings = msgspec.structs.replace(SUMS, minimum=16, epsilon=0.5)
    made.run(settings)
    made.add_later_ones()
    made.run(settings)
    made.service.begin(settings)
    return made


@pytest.fixture(scope="module")
def served(town: Federation) -> Iterator[ServedPage]:
    with operator_page(town.folder.path) as opened:
        yield opened


@pytest.fixture
def context(new_context: Callable[..., BrowserContext], inside: StorageState) -> BrowserContext:
    return new_context(storage_state=inside)


@contextmanager
def stuck(town: Federation) -> Iterator[None]:
    """While a process serves the last run, which waits for more devices."""
    files = town.folder.run_files(town.folder.runs()[-1])
    now = time.time()
    trouble = Trouble(
        cause="9 users agreed to take part (9 devices; 3 refused, 12 were silent or busy), and the "
        "run needs 16",
        remedy="Have more devices take part",
        at=now,
        retry=now + 840,
    )
    with town.folder.serving():
        files.keep_trouble(trouble)
        try:
            yield
        finally:
            files.keep_trouble(None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", ["desktop", "phone"])
def test_it_renders_without_complaint_for_everybody_and_asks_nobody_else(
    new_context, inside, served: ServedPage, town: Federation, screen, scheme
):
    context = new_context(**SCREENS[screen], color_scheme=scheme, storage_state=inside)
    page, heard = context.new_page(), Heard(context)
    with stuck(town):
        for name in PAGES:
            page.goto(f"{served.origin}/{name}")
            settle(page)
            assert heard.complaints == []
            assert [url for url in heard.requests if not url.startswith(served.origin)] == []
            assert (
                page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
            ), name
            assert accessible(page, of_any_severity=True) == [], name
            assert not any(card.identity[:12] in page.content() for card in town.cards)
            if (screen, scheme) == ("desktop", "light"):
                pictures(page, served, name)
        page.goto(f"{served.origin}/overview")
        assert page.locator("main figure svg").count() == 4


def test_it_refreshes_itself_and_says_why_a_run_cannot_go_on(
    page: Page, heard: Heard, served: ServedPage, town: Federation
):
    page.clock.install()
    page.goto(f"{served.origin}/runs")
    page.locator("nav a").first.focus()
    assert page.locator(".warning").count() == 0
    with stuck(town):
        page.clock.run_for(11_000)
        expect(page.locator(".warning")).to_contain_text("It cannot continue: 9 users agreed")
        expect(page.locator(".warning")).to_contain_text("To do: Have more devices take part.")
        expect(page.locator(".warning")).to_contain_text("Next attempt")
        assert page.evaluate("document.activeElement === document.querySelector('nav a')")
        assert accessible(page, of_any_severity=True) == []
    page.clock.run_for(11_000)
    expect(page.locator(".warning")).to_have_count(0)
    assert heard.complaints == []


def test_a_page_that_is_left_alone_locks_although_it_refreshes_itself(
    new_context, town: Federation
):
    with operator_page(town.folder.path, "--idle", "0.1") as served:
        page = new_context().new_page()
        enter(page, served)
        page.clock.install()
        page.goto(f"{served.origin}/overview")
        expect(page.locator("#refreshed")).to_have_text("This page refreshes every 10 seconds.")
        time.sleep(6.5)
        page.clock.run_for(11_000)
        expect(page.locator("main")).to_contain_text("Locked")
        assert "town" not in page.locator("body").inner_text()


def test_the_link_leaves_no_trace_in_the_history(chromium: Browser, town: Federation):
    with operator_page(town.folder.path) as served, chromium.new_context() as context:
        page = context.new_page()
        enter(page, served)
        page.goto(f"{served.origin}/runs")
        assert len(history(page)) > 1
        assert served.link.partition("#")[2] not in str(history(page))


def test_an_item_is_found_by_keyboard(page: Page, heard: Heard, served: ServedPage):
    page.goto(f"{served.origin}/model")
    page.get_by_role("searchbox").focus()
    page.keyboard.type("golden win")
    with leading_to(page, "/model"):
        page.keyboard.press("Enter")
    rows = page.locator("section table tbody").first.inner_text()
    assert rows.startswith("The Golden Winter")
    assert rows.count("±") == 2
    assert heard.complaints == []


def test_the_start_leads_on_and_another_browser_gets_nothing(
    page: Page, new_context, served: ServedPage
):
    page.goto(f"{served.origin}/")
    page.wait_for_url(f"{served.origin}/overview")
    other = new_context().new_page()
    other.goto(served.link)
    other.goto(f"{served.origin}/runs")
    assert other.locator("section").count() == 0
    assert "for the operator" in other.locator("body").inner_text()
