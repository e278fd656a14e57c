"""What the owner's page makes of long names, odd titles and other scales, on the narrowest
phone.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import expect

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.private.device.consent import require_consent
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.memberships import at_recommender, join
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.catalogues import name_in
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from tests.e2e.browsing import Heard, accessible, leading_to
from tests.e2e.served_pages import enter, owner_page
from tests.unit.device.reporting_world import SERVERS
from tests.world import table
from tests.world import terms as make_terms

pytestmark = pytest.mark.slow

NARROW = {"viewport": {"width": 320, "height": 700}, "is_mobile": True, "has_touch": True}
LONG = f"https://{'a-very-long-name.' * 6}example:9443/and/a/path/that/goes/on/and/on"
TEN, HUNDRED = "https://ten.example", "https://hundred.example"
TITLES = (
    "Supercalifragilistic" * 25,
    "The very" + " very" * 99 + " long film",
    "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} \N{RIGHT-TO-LEFT OVERRIDE}turned round",
    "\N{CLAPPER BOARD} Emoji",
    "   ",
    "",
    "<img src=x onerror=alert(1)>",
)
# What reaches beyond the screen, but for what can be scrolled by itself.
BEYOND = """() => [...document.querySelectorAll("body *")]
  .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    && !each.closest(".scroll, .tall, .unseen, .skip"))
  .map(each => each.outerHTML.slice(0, 80))"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Somebody with three recommenders that rate on different scales, and ask for something."""
    n, asking = len(TITLES), Policy(ask=True, max_total=10.0)
    titled = CatalogueTable(
        ids=tuple(f"id-{place}" for place in range(n)),
        integer_ids=False,
        scale_low=0.5,
        scale_high=5.0,
        scale_step=0.5,
        titles=TITLES,
        genres=(("Genre" * 12, "Drama"),) * n,
        years=(1999,) * n,
    )
    tens = CatalogueTable(
        ids=titled.ids, integer_ids=False, scale_low=1.0, scale_high=10.0, scale_step=1.0
    )
    hundred = CatalogueTable(
        ids=("1", "2"), integer_ids=True, scale_low=0.0, scale_high=100.0, scale_step=1.0
    )
    terms = make_terms("hdp-sum", "two-servers", table(), users=20, minimum=18, sharing=18)
    with new_device(
        tmp_path / "me.sqlite", scale=RatingScale(0.5, 5.0, 0.5), policy=asking
    ) as store:
        for address, items in ((LONG, titled), (TEN, tens), (HUNDRED, hundred)):
            join(store, Invitation(address=address, servers=SERVERS))
            place = at_recommender(store, address)
            place.pin_catalogue(items)
            for item in items.ids:
                place.rate(name_in(place.item_namespace, item), 4.0)
            asked = Question(
                recommender=address, terms=terms, servers=SERVERS.digest, names=SERVERS.names,
                until=int(time.time()) + 9000,
            )  # fmt: skip
            with pytest.raises(DeclinedError):
                require_consent(store, asked)
            book = RefusalBook(store, address)
            book.note("protocol", f"refused: {'x' * 120}", terms, b"r" * 32)
            book.settle()
    return tmp_path / "me.sqlite"


def test_nothing_reaches_beyond_the_narrowest_screen(new_context, path: Path):
    context = new_context(**NARROW)
    page, heard = context.new_page(), Heard(context)
    with owner_page(path) as served:
        enter(page, served)
        for place in range(3):
            if place:
                page.goto(f"{served.origin}/rate")
                with leading_to(page, "/rate"):
                    page.locator("nav.recommenders button").nth(place).click()
            for name in (
                "rate",
                "recommendations",
                "privacy",
                *(("disclosures", "recommenders", "settings") if place == 0 else ()),
            ):
                page.goto(f"{served.origin}/{name}")
                if name == "rate" and place == 0:
                    page.fill("#search", "e")
                    expect(page.locator("#found .item")).not_to_have_count(0)
                assert page.evaluate(BEYOND) == [], (place, name)
                assert page.evaluate("document.documentElement.scrollWidth") == 320
                assert accessible(page) == []
    assert heard.complaints == []


def test_a_digit_chooses_so_many_stars(page, path: Path):
    with owner_page(path) as served:
        enter(page, served)
        page.locator("nav.recommenders button").nth(1).click()
        page.locator("#mine .item").first.locator("input:checked").focus()
        item = page.locator("#mine .item").first.get_attribute("data-item")
        for key, value in (("7", 7.0), ("0", 10.0)):
            page.keyboard.press(key)
            expect(page.locator("#mine .item").first).to_have_attribute("data-value", f"{value:g}")
            with DeviceStore.open(path) as store:
                assert {record.item: record.value for record in store.records()}[item] == value
