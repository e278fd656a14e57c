"""What the pages show and do: everything is a function of the device."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from types import SimpleNamespace
from typing import get_args

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.methods.method import View
from hdpmf.common.protocol import Terms
from hdpmf.common.protocol.federation import Reason
from hdpmf.private.device import recommendations
from hdpmf.private.device.choices.privacy_level import item_weights, privacy_weight
from hdpmf.private.device.consent import ask_owner, consents
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.receipts import read_receipt
from hdpmf.private.device.disclosures.refusals import MOST_KEPT, RefusalBook
from hdpmf.private.device.recommendations import hidden_items
from hdpmf.private.device.store.schema import Question
from hdpmf.private.page.request import item_fields

from .conftest import ORIGIN, PASSPHRASE, SECRET, Person, complaints, small_table


def rated(person: Person, item: str, value: str) -> dict[str, object]:
    """The answer to stars that are given or taken away, without the time they had before."""
    answer = person.ask("/rate/set", {"item": item, "value": value}).json()
    assert (answer.pop("before_at") == "") == (answer["before"] is None)
    return answer


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
    assert "must match" in outside.client.post("/welcome", data=fields, headers=headers).text
    assert not outside.path.exists()
    answer = outside.client.post("/welcome", data=fields | {"again": PASSPHRASE}, headers=headers)
    assert answer.headers["location"] == "/start"
    with outside.owner.store() as store:
        assert store.encrypted
        assert store.policy.ask  # nothing leaves without a question
        assert privacy_weight(store) == 0.5  # and this is not the least private level
    catalogue = b"item,title,genres,year\n1,Alpha,Drama,1990\n2,Beta,War|Drama,1991\n"
    assert outside.upload(
        "/rate/catalogue", catalogue, '{"kind": "csv", "low": 1, "high": 5, "step": 1}'
    ).json() == {"next": "/rate"}
    assert "Loaded a catalogue with 2 items." in outside.get("/rate").text
    assert [
        found["title"] for found in outside.ask("/rate/find", {"words": "bet"}).json()["items"]
    ] == ["Beta"]
    assert rated(outside, "2", "0.5") == {"before": None, "rated": 1, "history": ""}
    assert rated(outside, "2", "4.5") == {"before": 0.5, "rated": 1, "history": ""}


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
    assert rated(person, "2", "") == {"before": 2.0, "rated": 1, "history": ""}
    assert rated(person, "2", "2.0") == {"before": None, "rated": 2, "history": ""}


def test_ratings_are_counted_also_while_there_is_no_catalogue(outside: Person):
    with new_device(outside.path, scale=RatingScale(1.0, 5.0, 0.5)) as store:
        for item in ("1", "2", "3"):
            store.rate(item, 4.0)
    outside.owner.open(None)
    assert outside.enter().status_code == 200
    assert rated(outside, "2", "") == {"before": 4.0, "rated": 2, "history": ""}


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


def test_an_export_of_a_service_says_how_its_ratings_are_converted(person: Person):
    person.upload("/rate/file", b"Const,Your Rating,Title,Year\ntt1,9,Quiet Days,1999\n")
    assert "IMDb: 1 to 10 there, 1 to 5 here" in person.get("/rate").text
    person.post("/rate/take", {"answer": "yes"})
    with person.owner.store() as store:
        assert {record.item: record.value for record in store.records()}["2"] == 4.5


def test_a_year_is_shown_once_and_not_where_there_is_none():
    shown = item_fields(small_table(), range(4), {}, {})
    assert [one["year"] for one in shown] == ["1988", "", "2001", ""]  # "Quiet Days (1999)"


def test_an_inverted_title_is_shown_upright():
    inverted = msgspec.structs.replace(
        small_table(), titles=("Godfather, The (1972)", "A", "B", "C"), years=(1972,) * 4
    )
    (first, *_) = item_fields(inverted, range(4), {}, {})
    assert (first["title"], first["year"]) == ("The Godfather (1972)", "")


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
    person.ask("/recommendations/hide", {"item": "3", "hidden": "yes"})
    with person.owner.store() as store:
        assert hidden_items(store) == ("3",)
        assert store.ledger.entries() == []
    assert "Am\u00e9lie" in person.get("/recommendations").text
    person.ask("/recommendations/hide", {"item": "3", "hidden": "no"})
    with person.owner.store() as store:
        assert hidden_items(store) == ()


def test_the_dial_says_what_it_means(person: Person):
    told = person.ask("/privacy/preview", {"weight": "0.5"}).json()
    assert "63 %" in told["sentences"][0]  # 62.2
    assert told["group"] == "Moderate"
    with person.owner.store() as store:
        assert privacy_weight(store) == 1.0
    person.post("/privacy/level", {"weight": "0.1"})
    assert "52.5 %" in person.get("/privacy").text
    with person.owner.store() as store:
        assert privacy_weight(store) == pytest.approx(0.1)
    for wrong in ("0", "1.5", "-1", "x"):
        person.post("/privacy/level", {"weight": wrong})
        assert len(complaints(person.get("/privacy").text)) == 1
    with person.owner.store() as store:
        assert privacy_weight(store) == pytest.approx(0.1)


def test_the_owner_is_asked_before_each_run_or_not(person: Person):
    def asks() -> bool:
        with person.owner.store() as store:
            return store.policy.ask

    person.post("/privacy/ask", {"ask": "no", "sure": "yes"})
    assert complaints(person.get("/privacy").text)  # nobody was asked whether that is so
    person.post("/privacy/ask", {"ask": "yes"})
    assert asks()
    person.post("/privacy/ask", {"ask": "no"})
    assert asks()
    assert "Answer runs without asking you?" in person.get("/privacy").text
    person.post("/privacy/ask", {"ask": "no", "sure": "no"})
    assert asks()
    assert "without asking you?" not in person.get("/privacy").text
    person.post("/privacy/ask", {"ask": "no"})
    person.post("/privacy/ask", {"ask": "no", "sure": "yes"})
    assert not asks()
    assert 'name="ask" value="yes"' in person.get("/privacy").text


def test_sensitive_items_one_by_one_and_by_genre(person: Person):
    person.ask("/rate/private", {"item": "1", "private": "yes"})
    person.post("/privacy/genre", {"genre": "Drama", "marked": "yes"})
    with person.owner.store() as store:
        assert item_weights(store) == dict.fromkeys("1234", 0.1)  # the last has no genre, and asks
    page = person.get("/privacy").text
    assert "1 items have no genre here, so they might belong to one you marked" in page
    person.post("/privacy/genre", {"genre": "", "marked": "no"})
    page = person.get("/privacy").text
    assert "No genre" in page
    assert "might belong to one you marked" not in page
    with person.owner.store() as store:
        assert item_weights(store) == dict.fromkeys("123", 0.1)
    held = person.ask("/rate/private", {"item": "2", "private": "no"}).json()
    assert held["private"]
    assert "the genre drama is marked as sensitive" in held["told"]
    person.ask("/rate/private", {"item": "3", "private": "yes"})
    person.post("/privacy/genre", {"genre": "Drama", "marked": "no"})
    assert "1 item is still sensitive" in person.get("/privacy").text
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
    person.ask("/recommendations/hide", {"item": "3", "hidden": "yes"})
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
    assert "encrypted with the new passphrase" in person.get("/settings").text
    person.post("/settings/passphrase", {"old": "wrong", "new": "other", "again": "other"})
    assert len(complaints(person.get("/settings").text)) == 1
    person.post("/settings/passphrase", {"old": PASSPHRASE, "new": "other", "again": "other"})
    person.owner.close()
    person.owner.open("other")
    with person.owner.store() as store:
        assert store.n_ratings == 2


@pytest.mark.parametrize(("length", "taken"), [(1000, True), (1001, False)])
def test_a_passphrase_may_be_a_long_one(outside: Person, length: int, taken: bool):
    assert outside.enter().status_code == 200
    csrf = re.search(r'data-csrf="([^"]+)"', outside.get("/welcome").text)[1]  # type: ignore[index]
    secret = "x" * length
    fields = {"csrf": csrf, "scale": "stars", "passphrase": secret, "again": secret}
    outside.client.post("/welcome", data=fields, headers={"origin": ORIGIN})
    assert outside.path.exists() == taken


def test_an_answer_to_what_nobody_asked_changes_nothing(person: Person):
    for said in ("once", "always", "never", "maybe"):
        person.post("/disclosures/answer", {"key": "nobody", "answer": said})
        assert len(complaints(person.get("/disclosures").text)) == 1
    with person.owner.store() as store:
        assert consents(store) == []


def test_what_was_refused_is_shown_also_when_the_page_was_closed_then(person: Person):
    assert "Nothing has been refused." in person.get("/disclosures").text
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
    assert "epsilon 7.5" not in page  # the last ones only
    assert "And 5 more, which are not listed." in page
    with person.owner.store() as store:
        book.note("policy", "<b>too much</b>", terms, b"\xab" * 16)
    page = person.get("/disclosures").text
    assert "hdp-sum with epsilon 7.5. It would see sums over many devices." in page
    assert "&lt;b&gt;too much" in page
    assert "Run abababab." in page
    assert "4 times since today at " in page
    assert "Nothing has been refused." not in page
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


def test_a_refusal_by_the_policy_is_not_said_to_be_the_owners(person: Person):
    with person.owner.store() as store:
        book = RefusalBook(store, "https://films.example")
        book.note("policy", "the policy does not allow hdp-bit (methods = hdp-sum)")
        book.note("policy", "this device's owner does not take part under these terms")
    page = " ".join(re.sub(r"<[^>]*>", " ", person.get("/disclosures").text).split())
    assert "Your policy does not allow it. The policy does not allow hdp-bit" in page
    assert "You do not want it. This device&#39;s owner does not take part" in page
    assert "not agreed" not in page


def test_a_run_is_one_line_and_one_that_brought_nothing_says_that_it_is_spent(person: Person):
    run = {
        "recommender": "https://films.example:9443", "run": "ab" * 16, "number": 0,
        "method": "hdp-sum", "view": "two-servers", "epsilon": 0.5, "status": "proved",
    }  # fmt: skip

    def line() -> str:
        found = re.search(r"<summary>(films.example.*?)</summary>", person.get("/disclosures").text)
        return "" if found is None else found[1]

    with person.owner.store() as store:
        pays = np.full(2, 0.5)
        agreed = Entry(**run, action="agreed", words="agreed")
        store.ledger.charge(agreed, store.ratings(), np.arange(2), pays)
    assert line().startswith("films.example:9443, today at ")
    assert line().endswith(": no ratings have been sent yet")
    for action, words, ending in (
        ("sent", "a report", "in a sum. No model so far; the budget stays used."),
        ("received", "a model", "2 ratings in a sum. You got a model."),
        (
            "refused",
            "the leader refused a report (its answer was 400)",
            "The run failed; the budget stays used.",
        ),
    ):
        with person.owner.store() as store:
            entry = Entry(**run, action=action, words=words)
            store.ledger.note(entry, first=action == "sent")
        assert line().endswith(ending)
    assert (
        "It failed: the leader refused a report (its answer was 400). What was sent is spent"
        in (person.get("/disclosures").text)
    )


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


def test_the_wall_has_what_is_popular_and_neither_rated_nor_hidden(person: Person):
    def wall(offset: int = 0) -> list[str]:
        told = person.ask("/rate/popular", {"offset": str(offset)}).json()
        return [entry["item"] for entry in told["items"]]

    assert wall() == ["3", "4"]  # no model yet: the order of the catalogue, without what is rated
    person.ask("/recommendations/hide", {"item": "3", "hidden": "yes"})
    assert wall() == ["4"]
    assert wall(1) == []
    assert person.ask("/rate/popular", {"offset": "-1"}).json()["items"]
    text = person.get("/rate").text
    assert "Which of these do you know?" in text
    assert "Well-known titles" not in text  # nobody has said so
    person.ask("/rate/set", {"item": "4", "value": "3"})
    assert wall() == []
    assert "Which of these do you know?" not in person.get("/rate").text


def test_popularity_is_the_last_models(person: Person, monkeypatch: pytest.MonkeyPatch):
    facts = SimpleNamespace(popularity=np.array([9.0, 8.0, 1.0, 7.0]), raters=None)
    monkeypatch.setattr(recommendations, "local_model", lambda store: SimpleNamespace(numbers=b""))
    monkeypatch.setattr(recommendations, "decode", lambda data: facts)
    monkeypatch.setattr(recommendations, "ItemFacts", SimpleNamespace)
    told = person.ask("/rate/popular", {}).json()
    assert [entry["item"] for entry in told["items"]] == ["4", "3"]


def test_every_page_says_that_somebody_asks_and_what_was_given_away(person: Person):
    for path in ("/rate", "/recommendations", "/privacy", "/disclosures", "/settings"):
        text = person.get(path).text
        assert "guess: at most 50 %" in text
        assert re.search(r'id="banner" hidden', text)
        assert "<title>(" not in text
    state = {"headers": {"origin": ORIGIN}}
    assert person.client.post("/state", **state).json()["asked"] == 0
    with person.owner.store() as store:
        terms = Terms("hdp-sum", "sums", 0.5, 1, "ab" * 32, 100, 16, 16)
        ask_owner(store, Question(recommender="https://films.example:1", terms=terms))
    assert person.client.post("/state", **state).json()["asked"] == 1
    text = person.get("/rate").text
    assert "<title>(1) Rate" in text
    assert re.search(r'id="banner">', text)
    person.sessions.lock(next(iter(person.sessions._sessions.values())))
    assert person.client.post("/state", **state).json() == {
        "seconds": 0,
        "asked": 0,
        "looked": "",
    }


def test_undo_brings_back_the_time_of_a_rating_too(person: Person):
    """Recent ratings count more in lists: after an undo the list has to be as it was."""
    with person.owner.store() as store:
        store.rate("1", 2.0, at=1_000_000_000)
        store.rate("2", 3.0, at=None)

    def times() -> list[int | None]:
        with person.owner.store() as store:
            return [record.at for record in sorted(store.records(), key=lambda each: each.item)]

    for item, value, at in (("1", "2", "1000000000"), ("2", "3", "")):
        told = person.ask("/rate/set", {"item": item, "value": "5"}).json()
        assert (told["before"], told["before_at"]) == (float(value), at)
        assert times() != [1_000_000_000, None]
        person.ask("/rate/set", {"item": item, "value": value, "undo": "yes", "at": at})
        assert times() == [1_000_000_000, None]


def test_all_scripts_together_are_light():
    folders = (files("hdpmf.private.page") / "static", files("hdpmf.common.web") / "static")
    weight = sum(
        len(file.read_bytes())
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".js")
    )
    assert 10_000 < weight < 25_000
