"""What the pages show and do: everything is a function of the device."""

from __future__ import annotations

import json
import re
from typing import get_args

import numpy as np
import pytest

from hdpmf.common.methods.method import View
from hdpmf.common.protocol import Terms
from hdpmf.common.protocol.federation import Reason
from hdpmf.private.device.choices.privacy_level import item_weights, privacy_weight
from hdpmf.private.device.consent import consents
from hdpmf.private.device.disclosures.ledger import Entry
from hdpmf.private.device.disclosures.receipts import read_receipt
from hdpmf.private.device.disclosures.refusals import MOST_KEPT, RefusalBook
from hdpmf.private.device.recommendations import hidden_items
from hdpmf.private.page import disclosures
from hdpmf.private.page.request import item_fields

from .conftest import ORIGIN, PASSPHRASE, SECRET, Person, complaints, small_table


def test_a_new_person_makes_a_store_loads_a_catalogue_and_rates(outside: Person):
    outside.enter()
    assert outside.get("/").headers["location"] == "/welcome"
    page = outside.get("/welcome")
    csrf = re.search(r'data-csrf="([^"]+)"', page.text)[1]  # type: ignore[index]
    fields = {
        "csrf": csrf,
        "name": "mine",
        "scale": "half-stars",
        "passphrase": PASSPHRASE,
        "again": "other",
    }
    headers = {"origin": ORIGIN}
    assert "must be the same" in outside.client.post("/welcome", data=fields, headers=headers).text
    assert not outside.path.exists()
    answer = outside.client.post("/welcome", data=fields | {"again": PASSPHRASE}, headers=headers)
    assert answer.headers["location"] == "/rate"
    with outside.owner.store() as store:
        assert store.encrypted
        assert store.policy.ask  # nothing leaves without a question
    catalogue = b"item,title,genres,year\n1,Alpha,Drama,1990\n2,Beta,War|Drama,1991\n"
    assert outside.upload(
        "/rate/catalogue", catalogue, '{"kind": "csv", "low": 1, "high": 5, "step": 1}'
    ).json() == {"next": "/rate"}
    assert "Loaded a catalogue of 2 items." in outside.get("/rate").text
    assert [
        found["title"] for found in outside.ask("/rate/find", {"words": "bet"}).json()["items"]
    ] == ["Beta"]
    assert outside.ask("/rate/set", {"item": "2", "value": "0.5"}).json() == {
        "before": None,
        "rated": 1,
        "history": "",
    }
    assert outside.ask("/rate/set", {"item": "2", "value": "4.5"}).json() == {
        "before": 0.5,
        "rated": 1,
        "history": "",
    }


def test_unknown_items_and_values_off_the_scale_are_refused_with_a_word(person: Person):
    wrong = (
        ("9", "3", "no such item"),
        ("1", "5.5", "from 1 to 5"),
        ("1", "0", "from 1 to 5"),
        ("1", "4.2", "steps of 0.5"),
        ("1", "good", "must be a number"),
        ("1", "nan", "from 1 to 5"),
    )
    for item, value, word in wrong:
        answer = person.ask("/rate/set", {"item": item, "value": value})
        assert answer.status_code == 400
        assert word in answer.json()["error"]
    with person.owner.store() as store:
        assert {record.item: record.value for record in store.records()} == {"1": 4.5, "2": 2.0}


def test_a_rating_is_removed_and_comes_back_by_undoing(person: Person):
    assert person.ask("/rate/set", {"item": "2", "value": ""}).json() == {
        "before": 2.0,
        "rated": 1,
        "history": "",
    }
    assert person.ask("/rate/set", {"item": "2", "value": "2.0"}).json() == {
        "before": None,
        "rated": 2,
        "history": "",
    }


def test_a_file_is_looked_at_before_it_is_taken_in(person: Person):
    file = (
        "Title,Year,Rating\nAmelie,2001,4\nQuiet Days,1999,5\nUnknown,1950,3\nQuiet "
        'Nights,,9\nQuiet Nights,,"3,5"\n'
    )
    person.upload("/rate/file", file.encode())
    text = person.get("/rate").text
    assert "Row 4: the catalogue has no item like this." in text
    assert "Row 5: its rating is not on the scale" in text
    with person.owner.store() as store:
        assert store.n_ratings == 2
    person.post("/rate/take", {"answer": "yes"})
    with person.owner.store() as store:
        assert {record.item: record.value for record in store.records()} == {
            "1": 4.5,
            "2": 5.0,
            "3": 4.0,
            "4": 3.5,
        }
    person.upload("/rate/file", b"Title,Rating\nAmelie,1\n")
    person.post("/rate/take", {"answer": "no"})
    with person.owner.store() as store:
        assert store.n_ratings == 4
    person.upload("/rate/file", b"\xff\xfe\x00")
    assert "not text in UTF-8" in person.get("/rate").text


def test_a_year_is_shown_once_and_not_where_there_is_none():
    shown = item_fields(small_table(), range(4), {}, {})
    assert [one["year"] for one in shown] == ["1988", "", "2001", ""]  # "Quiet Days (1999)"


def test_search_finds_parts_of_words_without_accents(person: Person):
    def found(words: str) -> list[str]:
        return [
            entry["item"] for entry in person.ask("/rate/find", {"words": words}).json()["items"]
        ]

    assert found("amelie") == ["3"]
    assert found("NIGHTS quiet") == ["4"]
    assert found("quiet") == ["2", "4"]
    assert found("uie") == ["2", "4"]
    assert found("  ") == []
    assert found("nothing of it") == []


def test_without_a_model_the_list_says_so_and_hiding_stays_here(person: Person):
    assert "no model yet" in person.get("/recommendations").text
    person.post("/recommendations/hide", {"item": "3", "hidden": "yes"})
    with person.owner.store() as store:
        assert hidden_items(store) == ("3",)
        assert store.ledger.entries() == []
    assert "Am\u00e9lie" in person.get("/recommendations").text
    person.post("/recommendations/hide", {"item": "3", "hidden": "no"})
    with person.owner.store() as store:
        assert hidden_items(store) == ()


def test_the_dial_says_what_it_means(person: Person):
    told = person.ask("/privacy/preview", {"weight": "0.5"}).json()
    assert "62 %" in told["sentences"][0]
    assert told["group"] == "Moderate"
    with person.owner.store() as store:
        assert privacy_weight(store) == 1.0
    person.post("/privacy/level", {"weight": "0.1"})
    assert "52 %" in person.get("/privacy").text
    with person.owner.store() as store:
        assert privacy_weight(store) == pytest.approx(0.1)
    for wrong in ("0", "1.5", "-1", "x"):
        person.post("/privacy/level", {"weight": wrong})
        assert len(complaints(person.get("/privacy").text)) == 1
    with person.owner.store() as store:
        assert privacy_weight(store) == pytest.approx(0.1)


def test_the_owner_is_asked_before_each_run_or_not(person: Person):
    for word, asked, button in (("yes", True, "no"), ("no", False, "yes")):
        person.post("/privacy/ask", {"ask": word})
        with person.owner.store() as store:
            assert store.policy.ask is asked
        assert f'name="ask" value="{button}"' in person.get("/privacy").text


def test_sensitive_items_one_by_one_and_by_genre(person: Person):
    person.ask("/rate/private", {"item": "1", "private": "yes"})
    person.post("/privacy/genre", {"genre": "Drama", "marked": "yes"})
    with person.owner.store() as store:
        assert item_weights(store) == dict.fromkeys("1234", 0.1)  # the last has no genre, and asks
    page = person.get("/privacy").text
    assert "Items that have no genre here (1) could be of one that you marked" in page
    person.post("/privacy/genre", {"genre": "", "marked": "no"})
    page = person.get("/privacy").text
    assert "Without a genre" in page
    assert "could be of one that you marked" not in page
    with person.owner.store() as store:
        assert item_weights(store) == dict.fromkeys("123", 0.1)
    held = person.ask("/rate/private", {"item": "2", "private": "no"}).json()
    assert held["private"]
    assert "the genre drama is marked as sensitive" in held["told"]
    person.ask("/rate/private", {"item": "3", "private": "yes"})
    person.post("/privacy/genre", {"genre": "Drama", "marked": "no"})
    assert "1 item stays sensitive" in person.get("/privacy").text
    person.ask("/rate/private", {"item": "3", "private": "no"})
    assert person.ask("/rate/private", {"item": "1", "private": "no"}).json() == {
        "private": False,
        "told": "",
    }
    with person.owner.store() as store:
        assert item_weights(store) == {}
    person.post("/privacy/genre", {"genre": "Western", "marked": "yes"})
    assert "no such genre" in person.get("/privacy").text


def test_everything_can_be_taken_along_and_forgotten(person: Person):
    person.post("/recommendations/hide", {"item": "3", "hidden": "yes"})
    answer = person.post("/settings/export", {})
    assert "attachment" in answer.headers["content-disposition"]
    told = json.loads(answer.text)
    assert [entry["value"] for entry in told["ratings"]] == [4.5, 2.0]
    assert told["not_interested"] == [{"item": "3", "item_namespace": ""}]
    assert json.loads(person.post("/disclosures/export", {}).text)["entries"] == []
    person.post("/settings/forget", {"what": "ratings"})
    with person.owner.store() as store:
        assert store.n_ratings == 2  # not without being sure
    person.post("/settings/forget", {"what": "ratings", "sure": "yes"})
    with person.owner.store() as store:
        assert store.n_ratings == 0
    assert (
        person.post("/settings/forget", {"what": "everything", "sure": "yes"}).headers["location"]
        == "/welcome"
    )
    assert not person.path.exists()


def test_a_passphrase_is_set_and_changed(person: Person):
    person.post("/settings/passphrase", {"new": "one", "again": "two"})
    assert not person.owner.encrypted
    person.post("/settings/passphrase", {"new": PASSPHRASE, "again": PASSPHRASE})
    assert person.owner.encrypted
    assert "sealed with the new passphrase" in person.get("/settings").text
    person.post("/settings/passphrase", {"old": "wrong", "new": "other", "again": "other"})
    assert len(complaints(person.get("/settings").text)) == 1
    person.post("/settings/passphrase", {"old": PASSPHRASE, "new": "other", "again": "other"})
    person.owner.close()
    person.owner.open("other")
    with person.owner.store() as store:
        assert store.n_ratings == 2


def test_an_answer_to_what_nobody_asked_changes_nothing(person: Person):
    for said in ("once", "always", "never", "maybe"):
        person.post("/disclosures/answer", {"key": "nobody", "answer": said})
        assert len(complaints(person.get("/disclosures").text)) == 1
    with person.owner.store() as store:
        assert consents(store) == []


def test_what_was_refused_is_shown_also_when_the_page_was_closed_then(person: Person):
    assert "Nothing was ever refused." in person.get("/disclosures").text
    terms = Terms(
        method="hdp-sum",
        view="sums",
        epsilon=7.5,
        rounds=1,
        catalogue="x",
        users=20,
        minimum=20,
        sharing=20,
    )
    with person.owner.store() as store:
        book = RefusalBook(store, "https://films.example")
        for _ in range(3):
            book.note("policy", "<b>too much</b>", terms, b"\xab" * 16)
        for number in range(MOST_KEPT + 2):
            RefusalBook(store, "https://loud.example").note("secure-sum", f"number {number}.")
    page = person.get("/disclosures").text
    assert "7.5" not in page  # the last ones only
    assert "And 5 more, which are not kept one by one." in page
    with person.owner.store() as store:
        book.note("policy", "<b>too much</b>", terms, b"\xab" * 16)
    page = person.get("/disclosures").text
    assert "hdp-sum with epsilon 7.5. It would see sums over many devices." in page
    assert "&lt;b&gt;too much" in page
    assert "Run abababab." in page
    assert "4 times since 20" in page
    assert "Nothing was ever refused." not in page
    told = json.loads(person.post("/disclosures/export", {}).text)["refusals"]
    assert told["refused"][-1]["count"] == 4
    assert told["dropped"] == {"https://loud.example": 2}


@pytest.mark.parametrize(
    ("method", "view"), [("hdp-bit", "messages"), ("hdp-sum", "sums"), ("hdp-sum", "two-servers")]
)
def test_every_reason_and_view_has_words(person: Person, method: str, view: View):
    terms = Terms(
        method=method,
        view=view,
        epsilon=1.0,
        rounds=1,
        catalogue="x",
        users=20,
        minimum=20,
        sharing=20,
    )
    with person.owner.store() as store:
        for reason in get_args(Reason):
            RefusalBook(store, "https://films.example").note(reason, f"because of {reason}", terms)
    page = person.get("/disclosures").text
    assert all(f"Because of {reason}" in page for reason in get_args(Reason))


def test_a_receipt_of_each_run_can_be_taken_along(person: Person):
    run, other = "ab" * 16, "cd" * 16
    common = {
        "recommender": "https://films.example",
        "number": 0,
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": 0.5,
        "status": "proved",
        "labels": False,
    }
    with person.owner.store() as store:
        ratings = store.ratings()
        store.ledger.charge(
            Entry(run=run, action="sent", words="a sum", **common),
            ratings,
            np.arange(2),
            np.full(2, 0.5),
        )
        store.ledger.note(Entry(run=other, action="refused", words="no", **common))
    page = person.get("/disclosures").text
    assert page.count('action="/disclosures/receipt"') == 1  # of the other one nothing has left
    answer = person.post("/disclosures/receipt", {"run": run})
    assert answer.headers["content-disposition"] == 'attachment; filename="receipt.json"'
    found = read_receipt(answer.content)
    assert (found.run, found.complete) == (run, False)
    assert SECRET not in answer.text
    (exported,) = json.loads(person.post("/disclosures/export", {}).text)["receipts"]
    assert exported["run"] == run
    for wrong in (other, "77", "", "x" * 400):
        assert (
            person.post("/disclosures/receipt", {"run": wrong}).headers["location"]
            == "/disclosures"
        )
        assert len(complaints(person.get("/disclosures").text)) == 1
    assert (
        person.client.post(
            "/disclosures/receipt", data={"run": run}, headers={"origin": ORIGIN}
        ).status_code
        == 403
    )


def test_many_budgets_are_shown_by_some_of_them(person: Person, monkeypatch: pytest.MonkeyPatch):
    with person.owner.store() as store:
        store.rate("3", 3.0)
        store.rate("4", 1.0)
    assert person.get("/disclosures").text.count('class="bar"') == 4
    monkeypatch.setattr(disclosures, "_BARS_SHOWN", 3)
    page = person.get("/disclosures").text
    assert page.count('class="bar"') == 3
    assert "3 of your 4 ratings" in page
