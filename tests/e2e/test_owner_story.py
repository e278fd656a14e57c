"""A whole story in a real browser: a new person, a real recommender with two servers, and twenty
other people.

With ``HDPMF_PICTURES=FOLDER`` it also takes the pictures of ``docs/page.md``: desktop and phone,
light and dark.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

import msgspec
from playwright.sync_api import Locator, Page, expect

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.protocol.identity import DeviceCard
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.private.device.device_identity import card_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import HELPER, LEADER, Pair
from tests.e2e.browsing import Heard, accessible, leading_to, read_until, settle
from tests.e2e.clubs import (
    OTHERS,
    PERIOD,
    SECOND,
    TITLES,
    entries_of,
    films,
    hdpmf,
    invite,
    living,
    make_others,
    wait_for,
)
from tests.e2e.served_pages import ServedPage, enter, owner_page, pictures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def saved(page: Page, button: Locator) -> dict[str, Any]:
    """The file that a button saves."""
    with page.expect_download() as download:
        button.click()
    found: dict[str, Any] = json.loads(download.value.path().read_bytes())
    return found


def test_a_person_rates_joins_agrees_gets_a_list_is_offline_and_forgets(
    page: Page, heard: Heard, tmp_path: Path
) -> None:
    shop, films_file, mine = tmp_path / "shop", tmp_path / "films.csv", tmp_path / "mine.sqlite"
    films_file.write_text(films())
    port = free_port()
    hdpmf("recommender", "init", shop, "--items", films_file, "--name", "Film club", "--port", port)
    others = make_others(tmp_path)
    with (
        Pair(tmp_path, rules=Rules(minimum=16, lease=2.0)) as pair,
        owner_page(mine, "--every", "1", "--same-host") as served,
    ):
        main = page.locator("main")
        # A store, a catalogue, ten films, the dial.
        enter(page, served)
        with leading_to(page, "/start"):
            main.locator("form button.main").click()
        with leading_to(page, "/rate"):
            page.get_by_role("link", name="Load a catalogue").click()
        form = page.locator("form[data-action='/rate/catalogue']")
        form.locator("input").set_input_files(films_file)
        with leading_to(page, "/rate"):
            form.locator("button").click()
        for place, title in enumerate(TITLES[:10]):
            page.get_by_role("searchbox").fill(title.lower())
            found = page.locator("#found .item")
            expect(found.locator("strong")).to_have_text([f"The {title}"])
            found.locator(".stars label").nth(place % 5).click()
            expect(page.locator("#rated")).to_have_text(str(place + 1))
        pictures(page, served, "rate")
        page.goto(f"{served.origin}/privacy")
        page.locator("button.group[data-weight='0.5']").click()
        expect(page.locator("#meaning")).to_contain_text("63 %")
        with leading_to(page, "/privacy"):
            page.locator("#privacy-level-form button.main").click()

        page.goto(f"{served.origin}/recommenders")
        card = DeviceCard(**saved(page, page.locator("form[action='/recommenders/card'] button")))
        place = ServiceFolder(shop)
        invitation = invite(shop, port, [card, *(card_of(store) for store in others)], pair)
        pair.start(LEADER, HELPER)
        pair.deployment.recommender(shop)
        wait_for(pair.deployment, place.is_serving, 60)

        # Joining: nothing before the digests were compared.
        form = page.locator("form[data-action='/recommenders/preview']")
        form.locator("input").set_input_files(shop / "invitation.json")
        with leading_to(page, "/recommenders"):
            form.locator("button").click()
        expect(main).to_contain_text(invitation.servers.digest)
        with DeviceStore.open(mine) as store:
            assert store.policy.servers == ()
            store.set_policy(msgspec.structs.replace(store.policy, min_period=10))
        with leading_to(page, "/recommenders"):
            page.locator("button[value=yes]").click()

        # A run: it asks, and waits for the answer.
        with living(others, invitation):
            hdpmf(
                "recommender", "run", shop, "--period", PERIOD, "--precision", "5s", "--minimum", 18
            )
            page.goto(f"{served.origin}/disclosures")
            told = read_until(page, "New request", 30)
            expect(page.get_by_role("heading", name="Film club")).to_be_visible()
            assert f"localhost:{port}. Name not verified." in told
            assert "10 of your ratings would take part" in told
            assert "The noise protects you, not the number of people." in told
            assert "can be taken back" in told
            # One rating and the person, before and after, and what is left of the budget.
            gauges = " ".join(page.locator(".gauge").all_inner_texts())
            found = re.findall(r"at most 50 % now, (\d+) % after", gauges)
            rating, person = map(int, found)
            assert 57 == rating < person  # epsilon 0.25 each
            assert "100 % left now, 50 % after" in gauges
            page.get_by_text("Details and exact numbers").click()
            told = main.inner_text()
            assert "The Quiet Harbour" in told
            assert "It takes 50 % of the lifetime budget of these ratings." in told
            assert "These numbers contain no noise." in told
            assert "With noise" not in told
            assert "None of your ratings have ever been sent" in told
            with DeviceStore.open(mine) as store:
                assert store.ledger.entries() == []
            pictures(page, served, "disclosures")
            for before, button in (
                ("New request", "later"),
                ("you answered not now", "now"),
                ("New request", "once"),
            ):
                expect(main).to_contain_text(before)
                with leading_to(page, "/disclosures"):
                    page.locator(f"button[value={button}]").click()
            expect(page.get_by_role("button", name="Withdraw")).to_be_visible()
            wait_for(
                pair.deployment,
                lambda: any(entry.action == "sent" for entry in entries_of(mine)),
                100,
            )
            wait_for(
                pair.deployment,
                lambda: any(entry.action == "received" for entry in entries_of(mine)),
                150,
            )

        # The list, made here; what was sent; what is left.
        page.goto(f"{served.origin}/recommendations")
        titles = page.locator(".list strong")
        expect(titles).to_have_count(20)
        first = titles.first.inner_text()
        pictures(page, served, "recommendations")
        page.locator(".list button.hide").first.click()
        expect(titles.first).not_to_have_text(first)
        page.get_by_role("button", name="Undo").click()
        expect(titles.first).to_have_text(first)
        page.locator(".list button.hide").first.click()
        expect(titles.first).not_to_have_text(first)
        page.locator("#list-more").click()
        expect(titles).to_have_count(39)
        page.get_by_label("Genre").select_option("War")
        genres = page.locator(".list .genres")
        expect(genres.filter(has_not_text="War")).to_have_count(0)
        expect(genres.first).to_contain_text("War")
        page.get_by_label("Genre").select_option("")
        expect(titles).to_have_count(20)
        page.goto(f"{served.origin}/recommendations")
        page.goto(f"{served.origin}/disclosures")
        line = page.locator(".timeline summary")
        expect(line).to_contain_text("Film club, today at")
        expect(line).to_contain_text(
            "10 ratings in a sum to which each server adds its whole noise. You got a model."
        )
        line.click()
        told = main.inner_text()
        assert "a report for each user, in shares for" in told
        assert "None of your ratings have ever been sent" not in told
        strips = page.locator(".strips li")
        expect(strips).to_have_count(10)
        assert "The Quiet Harbour" in " ".join(page.locator(".strips .title").all_text_contents())
        expect(strips.first).to_contain_text("50 % left, at most 57 %")
        expect(page.locator(".views path.both")).to_have_count(2)
        assert accessible(page, of_any_severity=True) == []
        expect(page.locator("#looked")).to_contain_text("Film club: checked")
        with leading_to(page, "/disclosures"):
            page.get_by_role("button", name="Check now").click()
        exported = saved(page, page.locator("form[action='/disclosures/export'] button"))["entries"]
        assert [entry["action"] for entry in exported] == ["agreed", "sent", "received"]
        for name in ("privacy", "recommenders", "settings"):
            pictures(page, served, name)
        pictures(page, served, "disclosures#left-title", "budget")

        # The network unplugged: first under the page that is open, then before it is opened.
        shown = seen_alone(page, served)
        for name in pair.deployment.names:
            pair.deployment.kill(name)
        assert seen_alone(page, served) == shown
        settle(page)
        assert heard.complaints == []
        assert [url for url in heard.requests if not url.startswith(served.origin)] == []
        log = "".join(served.log)
    heard.requests.clear()
    with owner_page(mine, "--every", "1", "--same-host") as served:
        enter(page, served)
        assert seen_alone(page, served) == shown
        leave_and_forget(page, served, mine)
        settle(page)
        assert heard.complaints == []
        assert [url for url in heard.requests if not url.startswith(served.origin)] == []
        log += "".join(served.log)
    assert not any(title in log for title in TITLES)
    summary = json.loads(place.summary_path(place.runs()[0]).read_bytes())
    assert summary["users"] == OTHERS + 1
    for store in others:
        store.close()


def seen_alone(page: Page, served: ServedPage) -> list[list[str]]:
    """The list, what a search finds and what the dial means; stars can be changed and changed
    back.
    """
    page.goto(f"{served.origin}/recommendations")
    expect(page.locator(".list li")).to_have_count(20)
    found = [page.locator(".list li").all_inner_texts()]
    page.goto(f"{served.origin}/rate")
    page.get_by_role("searchbox").fill("golden")
    expect(page.locator("#found strong")).to_have_count(len(SECOND))
    found.append(page.locator("#found strong").all_inner_texts())
    mine = page.locator("#mine .item").first
    before = mine.get_attribute("data-value")
    mine.locator(".stars label").nth(4 if before == "1" else 0).click()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#toast")).to_contain_text("Undone")
    expect(mine).to_have_attribute("data-value", str(before))
    page.goto(f"{served.origin}/privacy")
    return [*found, page.locator("#meaning").all_inner_texts()]


def leave_and_forget(page: Page, served: ServedPage, mine: Path) -> None:
    """Also where nobody can be told any more; what was sent stays in the ledger."""
    main = page.locator("main")
    page.goto(f"{served.origin}/recommenders")
    with leading_to(page, "/recommenders"):
        page.locator("button[value=leave]").click()
    expect(main).to_contain_text("cannot be recalled")
    page.goto(f"{served.origin}/settings")
    for choice in ("value=ratings", "name=sure"):
        page.locator(f"input[{choice}]").check()
    with leading_to(page, "/settings"):
        page.locator("button.danger").click()
    with DeviceStore.open(mine) as store:
        assert store.n_ratings == 0
        assert [entry.action for entry in store.ledger.entries()] == ["agreed", "sent", "received"]
        assert store.ledger.spent_total() == pytest.approx(10 * 0.5 * RUN_EPSILON, rel=0.01)
    page.goto(f"{served.origin}/disclosures")
    assert "None of your ratings have ever been sent" not in main.inner_text()
