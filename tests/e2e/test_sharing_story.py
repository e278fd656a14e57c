"""A story in a real browser: somebody lets a recommender see what they rated, but for one genre."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

from playwright.sync_api import Page, expect

from hdpmf.common.data import RatingScale
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.memberships import join
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import HELPER, LEADER, Pair
from tests.e2e.browsing import Heard, accessible, leading_to, read_until
from tests.e2e.clubs import (
    OTHERS,
    PERIOD,
    entries_of,
    films,
    hdpmf,
    invite,
    living,
    make_others,
    wait_for,
)
from tests.e2e.served_pages import ServedPage, enter, owner_page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

RATED = 10
COMEDY = "Comedy"


def test_a_person_shows_what_they_rated_but_for_a_genre_and_finds_it_in_the_history(
    page: Page, heard: Heard, tmp_path: Path
) -> None:
    shop, films_file, mine = tmp_path / "shop", tmp_path / "films.csv", tmp_path / "mine.sqlite"
    films_file.write_text(films())
    port = free_port()
    hdpmf("recommender", "init", shop, "--items", films_file, "--name", "Film club", "--port", port)
    others = make_others(tmp_path)
    policy = Policy(ask=True, min_period=10)
    with new_device(mine, scale=RatingScale(1.0, 5.0, 1.0), policy=policy) as store:
        for film in range(1, RATED + 1):
            store.rate(str(film), float(1 + film % 5))
        card = card_of(store)
    place = ServiceFolder(shop)
    with Pair(tmp_path, rules=Rules(minimum=16, lease=2.0)) as pair:
        invitation = invite(shop, port, [card, *(card_of(other) for other in others)], pair)
        pair.start(LEADER, HELPER)
        pair.deployment.recommender(shop)
        wait_for(pair.deployment, place.is_serving, 60)
        with DeviceStore.open(mine) as store:
            join(store, invitation, same_host=True)
            store.pin_catalogue(place.catalogue)
            titles = dict(zip(place.catalogue.ids, place.catalogue.titles, strict=True))
            genres = dict(zip(place.catalogue.ids, place.catalogue.genres, strict=True))
        rated = [str(film) for film in range(1, RATED + 1)]
        comedies = {titles[item] for item in rated if COMEDY in genres[item]}
        shown = {titles[item] for item in rated} - comedies
        assert comedies
        assert shown
        with owner_page(mine, "--every", "1", "--same-host") as served:
            enter(page, served)
            choose_seen(page, served)
            mark(page, COMEDY)
            with living(others, invitation):
                hdpmf(
                    "recommender", "run", shop, "--method", "hdp-share", "--period", PERIOD,
                    "--precision", "5s", "--minimum", 18,
                )  # fmt: skip
                page.goto(f"{served.origin}/disclosures")
                told = read_until(page, "New request", 30)
                assert f"that you rated {len(shown)} items, each with a random bit" in told
                assert accessible(page) == []
                with leading_to(page, "/disclosures"):
                    page.locator("button[value=once]").click()
                wait_for(
                    pair.deployment,
                    lambda: (
                        {"two-servers", "messages"}
                        <= {entry.view for entry in entries_of(mine) if entry.action == "sent"}
                    ),
                    100,
                )
                wait_for(
                    pair.deployment,
                    lambda: any(entry.action == "received" for entry in entries_of(mine)),
                    150,
                )
            page.goto(f"{served.origin}/disclosures")
            for line in page.locator(".timeline > li > details > summary").all():
                line.click()
            page.get_by_text(f"Seen as rated: {len(shown)} items").click()
            listed = page.locator(".timeline details details li").all_inner_texts()
            assert set(listed) == shown
            assert accessible(page) == []
            page.goto(f"{served.origin}/privacy")
            expect(page.locator("main")).to_contain_text(
                f"has seen that {len(shown)} ratings exist and has received 0 ratings"
            )
            page.locator("input[name=level][value=hidden]").check()
            with leading_to(page, "/privacy"):
                page.locator("form[action='/privacy/sharing'] button").click()
            expect(page.locator("#notes")).to_contain_text("Nothing that was sent can be undone")
            assert heard.complaints == []
    summary = json.loads(place.summary_path(place.runs()[0]).read_bytes())
    assert summary["users"] == OTHERS + 1
    assert summary["levels"] == {
        "seen": {"people": 1, "ratings": len(shown)},
        "open": {"people": 0, "ratings": 0},
    }
    for store in others:
        store.close()


def choose_seen(page: Page, served: ServedPage) -> None:
    """Choose it by the keyboard, and confirm it on the page that follows."""
    page.goto(f"{served.origin}/privacy")
    page.locator("input[name=level][value=hidden]").focus()
    page.keyboard.press("ArrowDown")
    with leading_to(page, "/privacy"):
        page.keyboard.press("Enter")
    expect(page.locator("#confirm-title")).to_contain_text("see what you rated?")
    expect(page.locator("main")).to_contain_text("Nothing that was sent can be taken back")
    assert accessible(page) == []
    with leading_to(page, "/privacy"):
        page.locator("form[action='/privacy/sharing/confirm'] button[value=yes]").click()
    expect(page.locator("input[name=level][value=seen]")).to_be_checked()
    expect(page.locator("#confirm-title")).to_have_count(0)


def mark(page: Page, genre: str) -> None:
    with leading_to(page, "/privacy"):
        page.locator(f"form:has(input[name=genre][value='{genre}']) button").click()
    expect(page.locator("main")).to_contain_text("Sensitive items are always hidden")
