"""A real recommender that asks devices directly, with four others: joined, asked and answered on
the owner's page.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import Page, expect

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.common.protocol.federation import DeviceCard
from hdpmf.lab.simulate.deploy import Deployment, free_port
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.memberships import join
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.e2e.browsing import Heard, accessible, leading_to, read_until, settle
from tests.e2e.clubs import answering, entries_of, hdpmf, wait_for
from tests.e2e.served_pages import enter, owner_page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OTHERS, FILMS = 4, 12
BITS = 'methods = ["hdp-bit"]\nrequire_sums = false\n'


def make_others(folder: Path) -> list[DeviceStore]:
    chance, stores = random.Random(7), []
    for number in range(OTHERS):
        store = new_device(
            folder / f"other{number}.sqlite",
            policy=Policy(methods=("hdp-bit",), require_sums=False),
            scale=RatingScale(1.0, 5.0, 1.0),
        )
        for film in chance.sample(range(1, FILMS + 1), 6):
            store.rate(str(film), float(chance.randint(1, 5)))
        stores.append(store)
    return stores


def test_a_person_joins_agrees_and_gets_a_list(page: Page, heard: Heard, tmp_path: Path) -> None:
    shop, mine, films = tmp_path / "shop", tmp_path / "mine.sqlite", tmp_path / "films.csv"
    films.write_text(
        "item,title\n"
        + "".join(f"{number},Secret Film {number}\n" for number in range(1, FILMS + 1))
    )
    hdpmf("recommender", "init", shop, "--items", films, "--port", free_port())
    config = (shop / "config.toml").read_text()
    for name, seconds in (("gather", "1.0"), ("pause", "0.5")):
        config = re.sub(rf"^{name} = .*$", f"{name} = {seconds}", config, flags=re.MULTILINE)
    (shop / "config.toml").write_text(config)
    hdpmf("recommender", "invite", shop)
    invitation = Invitation.read((shop / "invitation.json").read_bytes())
    others, place = make_others(tmp_path), ServiceFolder(shop)
    with Deployment(tmp_path / "logs") as deployment, owner_page(mine, "--every", "1") as served:
        main = page.locator("main")
        enter(page, served)
        with leading_to(page, "/start"):
            main.locator("form button.main").click()
        (tmp_path / "policy.toml").write_text(BITS)
        hdpmf("device", "policy", mine, "--set", tmp_path / "policy.toml")
        with DeviceStore.open(mine) as store:
            assert store.policy.ask
            for film in range(1, 6):
                store.rate(str(film), float(film))

        # The invitation, with the digest to compare.
        page.goto(f"{served.origin}/recommenders")
        form = page.locator("form[data-action='/recommenders/preview']")
        form.locator("input").set_input_files(shop / "invitation.json")
        with leading_to(page, "/recommenders"):
            form.locator("button").click()
        expect(main).to_contain_text(invitation.digest)
        expect(main).to_contain_text("sends it noisy numbers directly")
        assert accessible(page) == []
        with leading_to(page, "/recommenders"):
            page.locator("button[value=yes]").click()
        assert accessible(page) == []
        read_until(page, "trying again")  # nobody listens there yet

        # The operator enrols the card.
        with page.expect_download() as download:
            page.locator("form[action='/recommenders/card'] button").click()
        card = DeviceCard(**json.loads(download.value.path().read_bytes()))
        place.enroll([card, *(card_of(store) for store in others)])

        # A run that needs everybody: it asks, shows, and waits for the owner.
        deployment.recommender(shop)
        wait_for(deployment, place.is_serving)
        read_until(page, "connected to")
        for store in others:
            join(store, invitation)
        with answering(others, invitation.address, invitation.authority.encode()):
            hdpmf("recommender", "run", shop, "--method", "hdp-bit", "--minimum", OTHERS + 1)
            page.goto(f"{served.origin}/disclosures")
            told = read_until(page, "New request")
            assert "5 of your ratings would take part" in told
            page.get_by_text("Details and exact numbers").click()
            told = main.inner_text()
            assert "Secret Film 3" in told
            assert "does not wait for you once enough others have agreed" in told
            assert entries_of(mine) == []
            with leading_to(page, "/disclosures"):
                page.locator("button[value=once]").click()
            wait_for(
                deployment,
                lambda: any(entry.action == "received" for entry in entries_of(mine)),
                100,
            )
            wait_for(deployment, place.summary_path(place.runs()[0]).exists)
        assert [entry.action for entry in entries_of(mine)][-2:] == ["sent", "received"]
        page.goto(f"{served.origin}/recommendations")
        expect(page.locator(".list strong")).to_have_count(FILMS - 5)
        page.goto(f"{served.origin}/disclosures")
        assert "None of your ratings have ever been sent" not in main.inner_text()
        settle(page)
        assert heard.complaints == []
        assert "Secret Film" not in "".join(served.log)
    summary = json.loads(place.summary_path(place.runs()[0]).read_bytes())
    assert summary["users"] == OTHERS + 1
    for store in others:
        store.close()
