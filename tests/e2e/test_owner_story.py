"""A whole story in a real browser: a new person, a real recommender with two servers, and twenty other people.

With ``HDPMF_PICTURES=FOLDER`` it also takes the pictures of ``docs/page.md``: desktop and phone, light and dark.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pyhpke")
pytest.importorskip("uvicorn")

from browser import Browser, find_chromium
from owner_page import choose_file, enter, owner_page, pictures, submit, until
from server_processes import HELPER, LEADER, Pair

from hdpmf.aggregator.config import TaskRules
from hdpmf.cli import main
from hdpmf.device.card import card_of, new_device
from hdpmf.device.joined import join
from hdpmf.device.reporting import Reporter
from hdpmf.device.store import DeviceStore
from hdpmf.federation.deploy import free_port
from hdpmf.protocol.federation import DeviceCard
from hdpmf.protocol.invitation import Invitation
from hdpmf.protocol.servers import read_collector
from hdpmf.ratings import RatingScale
from hdpmf.service.folder import ServiceFolder
from hdpmf.transport.web import WebDoor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OTHERS = 20
PERIOD = "60s"
FIRST = ("Quiet", "Golden", "Hidden", "Northern", "Paper", "Last", "Silver", "Distant")
SECOND = ("Harbour", "Garden", "Signal", "Winter", "Orchestra", "Mountain", "Letter")
GENRES = ("Drama", "Comedy", "Thriller", "Documentary", "Romance", "War")
TITLES = [f"{first} {second}" for first in FIRST for second in SECOND]


def films() -> str:
    rows = [
        f"{number},The {title},{GENRES[number % 6]}|{GENRES[(number + 1 + number // 6 % 5) % 6]},{1950 + number}"
        for number, title in enumerate(TITLES, start=1)
    ]
    return "item,title,genres,year\n" + "\n".join(rows) + "\n"


def hdpmf(*arguments: object) -> None:
    """A command, in this process."""
    with pytest.raises(SystemExit) as end:
        main.run([str(argument) for argument in arguments])
    assert end.value.code in (0, None)


def wait_for(pair: Pair, reached: Callable[[], bool], seconds: float) -> None:
    waiting = threading.Event()
    for _ in range(int(seconds * 5)):
        if reached():
            return
        pair.deployment.check()
        waiting.wait(0.2)
    raise AssertionError("it never came true")


def make_others(folder: Path) -> list[DeviceStore]:
    """Twenty people who like one half of the films or the other."""
    chance = random.Random(5)
    stores = []
    for number in range(OTHERS):
        store = new_device(folder / f"other{number}.sqlite", scale=RatingScale(1.0, 5.0, 1.0))
        for film in chance.sample(range(1, len(TITLES) + 1), 20):
            store.rate(str(film), float(chance.choice((4, 5)) if film % 2 == number % 2 else chance.choice((1, 2, 3))))
        stores.append(store)
    return stores


@contextmanager
def living(stores: list[DeviceStore], invitation: Invitation) -> Iterator[None]:
    """The others' devices, each looking and reporting as it does in ``hdpmf device join``, one after the other."""
    stop = threading.Event()
    reporters = []
    for store in stores:
        join(store, invitation)
        door = WebDoor(invitation.address, invitation.authority.encode())
        reporters.append(Reporter(store, door, recommender=invitation.address, every=2, uniform=lambda: 0.3))

    def work() -> None:
        while not stop.wait(0.3):
            for reporter in reporters:
                if not stop.is_set():
                    reporter.step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def fetched(browser: Browser, path: str) -> dict[str, Any]:
    """What a button of the page would save as a file."""
    headers = "{'content-type': 'application/json', 'x-csrf': document.body.dataset.csrf}"
    script = f"fetch('{path}', {{method: 'POST', headers: {headers}, body: '{{}}'}}).then(told => told.json())"
    found: dict[str, Any] = browser.run(script)
    return found


def text_of(browser: Browser) -> str:
    text: str = browser.run("document.querySelector('main').innerText")
    return text


def test_a_person_rates_joins_looks_agrees_gets_a_list_and_forgets(tmp_path: Path) -> None:
    find_chromium()
    shop, films_file, mine = tmp_path / "shop", tmp_path / "films.csv", tmp_path / "mine.sqlite"
    films_file.write_text(films())
    port = free_port()
    hdpmf("recommender", "init", shop, "--items", films_file, "--name", "Film club", "--port", port)
    others = make_others(tmp_path)
    with (
        Pair(tmp_path, rules=TaskRules(minimum=16, lease=2.0)) as pair,
        owner_page(mine, "--every", "1") as page,
        Browser(tmp_path / "chromium") as browser,
    ):
        # A store, a catalogue, ten films, the dial.
        enter(browser, page)
        submit(browser, "document.querySelector('main form').requestSubmit()", "/rate")
        choose_file(browser, "form[data-action='/rate/catalogue'] input", films_file)
        submit(browser, "document.querySelector('form[data-action$=catalogue]').requestSubmit()", "/rate")
        for place, title in enumerate(TITLES[:10]):
            browser.run("document.getElementById('search').value = ''; document.getElementById('search').focus()")
            browser.call("Input.insertText", text=title.lower())
            until(browser, f"document.querySelector('#found strong')?.textContent === 'The {title}'")
            browser.click(f"#found .item .stars label:nth-of-type({1 + place % 5})")
            until(browser, f"document.getElementById('rated').textContent === '{place + 1}'")
        pictures(browser, page, "rate")
        browser.open(f"{page.origin}/privacy")
        browser.click("button.group[data-weight='0.5']")
        until(browser, "document.getElementById('meaning').innerText.includes('62 %')")
        submit(browser, "document.querySelector('#dial-form button.main').click()", "/privacy")

        # The recommender's operator: enrols the cards, pins the servers, invites.
        browser.open(f"{page.origin}/recommenders")
        card = DeviceCard(**fetched(browser, "/recommenders/card"))
        place = ServiceFolder(shop)
        place.enroll([card, *(card_of(store) for store in others)])
        servers = tmp_path / "servers.json"
        servers.write_bytes(pair.servers.to_json())
        hdpmf("recommender", "servers", shop, servers)
        hdpmf("recommender", "invite", shop, "--address", f"https://localhost:{port}")
        invitation = Invitation.read((shop / "invitation.json").read_bytes())
        for folder in pair.folders.values():
            folder.admit(read_collector((shop / "collector-card.json").read_bytes()))
        pair.start(LEADER, HELPER)
        pair.deployment.recommender(shop)
        wait_for(pair, place.served, 60)

        # Joining: nothing before the digests were compared.
        choose_file(browser, "form[data-action='/recommenders/look'] input", shop / "invitation.json")
        submit(
            browser,
            "document.querySelector(\"form[data-action='/recommenders/look']\").requestSubmit()",
            "/recommenders",
        )
        assert invitation.servers.digest in text_of(browser)
        with DeviceStore.open(mine) as store:
            assert store.policy.servers == ()
        submit(browser, "document.querySelector('button[value=yes]').click()", "/recommenders")

        # A run: it asks, and waits for the answer.
        with living(others, invitation):
            hdpmf("recommender", "run", shop, "--period", PERIOD, "--precision", "5s", "--minimum", 18)
            browser.open(f"{page.origin}/leaves")
            for _ in range(60):
                if "Somebody asks" in text_of(browser):
                    break
                until(browser, "true")
                threading.Event().wait(0.5)
                browser.open(f"{page.origin}/leaves")
            told = text_of(browser)
            assert "The Quiet Harbour" in told
            assert "10 of your ratings would take part" in told
            assert "Sums are over 18 people at least." in told
            assert "cannot be taken back" in told
            assert "Nothing was ever sent" in told
            with DeviceStore.open(mine) as store:
                assert store.ledger.entries() == []
            pictures(browser, page, "leaves")
            submit(browser, "document.querySelector('button[value=once]').click()", "/leaves")
            wait_for(pair, lambda: any(entry.action == "sent" for entry in entries_of(mine)), 100)
            wait_for(pair, lambda: any(entry.action == "received" for entry in entries_of(mine)), 150)

        # The list, made here; what was sent; what is left.
        browser.open(f"{page.origin}/for-you")
        assert browser.run("document.querySelectorAll('.list li').length") == 20
        first = browser.run("document.querySelector('.list h2').firstChild.textContent.trim()")
        pictures(browser, page, "for-you")
        submit(browser, "document.querySelector('.list button').click()", "/for-you")
        assert browser.run("document.querySelector('.list h2').firstChild.textContent.trim()") != first
        browser.open(f"{page.origin}/leaves")
        told = text_of(browser)
        assert "a report for each user, in shares for" in told
        assert "Nothing was ever sent" not in told
        assert browser.run("document.querySelectorAll('.budget rect.bar').length") == 10
        saved = fetched(browser, "/leaves/export")["entries"]
        assert [entry["action"] for entry in saved] == ["agreed", "sent", "received"]
        for name in ("privacy", "recommenders", "settings"):
            pictures(browser, page, name)

        # Leaving and forgetting: what was sent stays in the ledger.
        browser.open(f"{page.origin}/recommenders")
        submit(browser, "document.querySelector('button[value=leave]').click()", "/recommenders")
        assert "cannot be recalled" in text_of(browser)
        browser.open(f"{page.origin}/settings")
        for choice in ("value=ratings", "name=sure"):
            browser.run(f"document.querySelector('input[{choice}]').click()")
        submit(browser, "document.querySelector('button.danger').click()", "/settings")
        with DeviceStore.open(mine) as store:
            assert store.n_ratings == 0
            assert [entry.action for entry in store.ledger.entries()] == ["agreed", "sent", "received"]
            assert store.ledger.spent_total() == pytest.approx(10 * 0.5, rel=0.01)
        browser.open(f"{page.origin}/leaves")
        assert "Nothing was ever sent" not in text_of(browser)
        assert browser.complaints() == []
        log = "".join(page.log)
        assert not any(title in log for title in TITLES)
        summary = json.loads(place.summary_path(place.runs()[0]).read_bytes())
        assert summary["users"] == OTHERS + 1
    for store in others:
        store.close()


def entries_of(path: Path) -> list:
    with DeviceStore.open(path) as store:
        return store.ledger.entries()
