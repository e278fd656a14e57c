"""The operator's page in a real browser: both colour schemes, a phone, the keyboard, people who do not see it.

With ``HDPMF_PICTURES=FOLDER`` it also takes the pictures of ``docs/operator-page.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from browser import Browser, find_chromium
from growing_town import SUMS, Town
from owner_page import OpenPage, accessible, enter, operator_page, pictures, submit, until

from hdpmf.ratings import ItemTable, Ratings, synthetic_world
from hdpmf.transport.certificates import ensure_certificates

pytestmark = pytest.mark.slow

PAGES = ("overview", "runs", "devices", "model", "knowledge")
FIRST, SECOND = ("Quiet", "Golden", "Hidden", "Northern", "Paper"), ("Harbour", "Garden", "Signal", "Winter", "Letter")


def world() -> Ratings:
    """Twenty-four people and twenty-five films."""
    made = synthetic_world(24, 25, 340, rng=3)
    names = [f"The {first} {second}" for first in FIRST for second in SECOND][: made.n_items]
    n = made.n_items
    table = ItemTable.build(made.items.ids, names, [("Drama",)] * n, [None] * n)
    return Ratings.from_arrays(
        made.user_ids, made.item_ids, made.values, scale=made.scale, item_table=table, items_index=made.items
    )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    find_chromium()
    with ExitStack() as stack:
        made = Town(tmp_path_factory.mktemp("operator"), stack, world())
        ensure_certificates(made.folder.transport_folder / "tls", ("localhost",))
        settings = msgspec.structs.replace(SUMS, minimum=16, epsilon=4.0)
        made.run(settings)
        made.add_later_ones()
        made.run(settings)
        made.service.begin(settings)
        yield made


@pytest.fixture(scope="module")
def page(town: Town) -> Iterator[OpenPage]:
    with operator_page(town.folder.path) as served:
        yield served


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, page: OpenPage) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "chromium") as opened:
        enter(opened, page)
        yield opened


def test_it_renders_without_complaint_for_everybody_and_asks_nobody_else(browser: Browser, page: OpenPage, town: Town):
    for name in PAGES:
        for width, dark in ((1280, False), (390, True)):
            browser.open(f"{page.origin}/{name}", width=width, height=900, dark=dark)
            assert browser.complaints() == []
            assert [url for url in browser.requests() if not url.startswith(page.origin)] == []
            assert browser.run("document.documentElement.scrollWidth") == width, name
            assert accessible(browser) == [], (name, width)
            shown = browser.run("document.documentElement.outerHTML")
            assert not any(card.identity[:12] in shown for card in town.cards)
        pictures(browser, page, name)
    assert page.link.partition("#")[2] not in str(browser.call("Page.getNavigationHistory"))


def test_an_item_is_found_by_keyboard(browser: Browser, page: OpenPage):
    browser.open(f"{page.origin}/model", width=1280, height=900)
    browser.run("document.querySelector('input[type=search]').focus()")
    browser.call("Input.insertText", text="golden win")
    submit(browser, "document.querySelector('form[role=search]').requestSubmit()", "/model")
    rows = browser.run("document.querySelector('section table tbody').innerText")
    assert rows.startswith("The Golden Winter")
    assert rows.count("±") == 2
    assert browser.complaints() == []


def test_the_start_leads_on_and_another_browser_gets_nothing(browser: Browser, page: OpenPage, tmp_path: Path):
    browser.open(f"{page.origin}/")
    until(browser, "location.pathname === '/overview' && document.readyState === 'complete'")
    with Browser(tmp_path / "chromium") as other:
        other.open(page.link)
        other.open(f"{page.origin}/runs")
        assert other.run("document.querySelectorAll('table').length") == 0
        assert "for the operator" in other.run("document.body.innerText")
