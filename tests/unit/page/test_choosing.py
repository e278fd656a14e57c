"""Several recommenders on the page: whose items are shown, rated and recommended."""

from __future__ import annotations

import re

import msgspec
import pytest

from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.common.protocol.federation import CatalogueTable
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.private.device.choices.privacy_level import item_weights
from hdpmf.private.device.consent import (
    consents,
    give_answer,
    refused_recommenders,
    require_consent,
)
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.memberships import join
from hdpmf.private.device.recommendations import keep_model
from hdpmf.private.device.store.catalogues import name_in
from hdpmf.private.device.store.schema import LocalModel, Question
from hdpmf.private.page import items
from tests.unit.device.reporting_world import SERVERS, make_facts
from tests.world import table
from tests.world import terms as make_terms

from .conftest import Person, complaints, small_table

FILMS, BOOKS = "https://films.example:9443", "https://books.example:9443"


def books() -> CatalogueTable:
    """Other things under the same ids, on another scale."""
    titles = ("Walden", "Emma", "Dracula", "Ulysses")
    return msgspec.structs.replace(
        small_table(), titles=titles, genres=(("Essay",),) * 4, scale_high=10.0, scale_step=1.0
    )


@pytest.fixture
def reader(person: Person) -> Person:
    """Somebody with films at one recommender and books at another, each with a model."""
    with person.owner.store() as store:
        for address in (FILMS, BOOKS):
            join(store, Invitation(address=address, servers=SERVERS))
        store.at(2).pin_catalogue(books())
        for place, items, address in ((1, small_table(), FILMS), (2, books(), BOOKS)):
            n = len(items.ids)
            facts = make_facts(3.0, catalogue=known_items(items).fingerprint, **_of_size(n))
            model = LocalModel(
                recommender=address,
                run=f"{place}{place}" * 16,
                method="hdp-sum",
                view="nothing",
                plan=None,
                numbers=facts,
            )
            keep_model(store.at(place), model)
    return person


def _of_size(n: int) -> dict[str, object]:
    import numpy as np

    zeros = np.zeros(n, np.float32)
    return {
        "bias": zeros,
        "variance": zeros + 1,
        "popularity": zeros + 1,
        "patterns": np.zeros((n, 0), np.float32),
    }


def choose(person: Person, recommender_id: int, back: str = "/rate") -> None:
    answer = person.post("/recommenders/choose", {"recommender_id": recommender_id, "back": back})
    assert answer.headers["location"] == back


def test_with_one_recommender_nobody_is_asked_to_choose(person: Person):
    assert "/recommenders/choose" not in person.get("/rate").text


def test_each_recommenders_items_are_searched_rated_and_listed(reader: Person):
    page = reader.get("/rate").text
    assert 'data-recommender-id="1"' in page
    assert "books.example:9443" in page
    assert [
        found["title"] for found in reader.ask("/rate/find", {"words": "walden"}).json()["items"]
    ] == []
    choose(reader, 2)
    page = reader.get("/rate").text
    assert 'data-recommender-id="2"' in page
    assert "Quiet Days" not in page  # the ratings of films are on the other side
    found = reader.ask("/rate/find", {"words": "walden"}).json()["items"]
    assert [entry["title"] for entry in found] == ["Walden"]
    assert found[0]["value"] is None  # film 1 is rated, book 1 is not
    assert reader.ask("/rate/set", {"item": found[0]["item"], "value": "9"}).status_code == 200
    assert (
        "from 1 to 10"
        in reader.ask("/rate/set", {"item": found[0]["item"], "value": "11"}).json()["error"]
    )
    listed = reader.get("/recommendations").text
    assert "Dracula" in listed
    assert "Amélie" not in listed
    choose(reader, 1, "/recommendations")
    listed = reader.get("/recommendations").text
    assert "Amélie" in listed
    assert "Dracula" not in listed
    with reader.owner.store() as store:
        values = {record.item: record.value for record in store.records()}
    assert values == {"1": 4.5, "2": 2.0, name_in("2", "1"): 9.0}


def test_two_tabs_show_two_recommenders(reader: Person):
    """A page says itself whose items it shows, whatever another tab has chosen since."""
    choose(reader, 2)
    answer = reader.ask("/rate/find", {"words": "quiet", "recommender_id": "1"}).json()["items"]
    assert [entry["title"] for entry in answer] == ["Quiet Days (1999)", "Quiet Nights"]
    assert (
        reader.ask("/rate/set", {"item": "4", "value": "3", "recommender_id": "1"}).status_code
        == 200
    )
    assert (
        reader.ask("/rate/set", {"item": "4", "value": "3"}).status_code == 400
    )  # no book is called that


def test_what_is_hidden_or_sensitive_is_so_for_its_recommender(reader: Person):
    choose(reader, 2, "/recommendations")
    reader.ask(
        "/recommendations/hide", {"item": name_in("2", "3"), "hidden": "yes", "recommender_id": "2"}
    )
    assert "Dracula" not in re.split("hidden-title", reader.get("/recommendations").text)[0]
    assert "Essay" in reader.get("/privacy").text
    reader.post("/privacy/genre", {"genre": "Essay", "marked": "yes", "recommender_id": "2"})
    with reader.owner.store() as store:
        # And the one film that has no genre, until its owner says otherwise.
        assert set(item_weights(store)) == {"4"} | {name_in("2", item) for item in "1234"}
    choose(reader, 1)
    assert "Amélie" in reader.get("/recommendations").text
    page = reader.get("/privacy").text
    assert "Essay" not in page
    assert "No genre" in page


def test_keys_that_never_change_are_said_before_and_after_joining(reader: Person):
    rotating = Servers(
        **{
            role: Server(
                organisation=role, url=f"https://{role}.example", identity=key, signing=key[::-1]
            )
            for role, key in (("leader", "a1" * 32), ("helper", "b2" * 32))
        }
    )
    for servers, expected in ((SERVERS, True), (rotating, False)):
        made = Invitation(address="https://more.example:9443", servers=servers)
        reader.post("/recommenders/preview", {"link": made.to_link()})
        page = reader.get("/recommenders").text
        assert ("Their keys" in page) == expected
        assert complaints(page) == []
    assert "a single key that never changes" in reader.get("/recommenders").text  # of those joined


def test_the_page_says_who_has_the_same_items(reader: Person):
    page = reader.get("/recommenders").text
    assert "4 items, model of run 11111111" in page
    assert "the same items as" not in page
    with reader.owner.store() as store:
        join(store, Invitation(address="https://more.example:9443", servers=SERVERS))
        store.at(3).pin_catalogue(small_table())
    page = reader.get("/recommenders").text
    assert "the same items as more.example:9443" in page
    assert "max_total" in page


@pytest.mark.parametrize(
    "fields",
    [
        {"recommender_id": "9" * 30, "back": "/rate"},
        {"recommender_id": "1", "back": "https://evil.example"},
        {"recommender_id": "x", "back": "/rate"},
    ],
)
def test_no_other_place_is_chosen(reader: Person, fields: dict[str, str]):
    answer = reader.post("/recommenders/choose", fields)
    assert answer.headers["location"] == "/recommenders"
    assert 'data-recommender-id="1"' in reader.get("/rate").text


def test_a_place_that_is_not_there_is_the_first(reader: Person):
    choose(reader, 77)
    assert 'data-recommender-id="1"' in reader.get("/rate").text


def test_leaving_keeps_the_list_and_forgetting_takes_it(reader: Person):
    reader.post("/recommenders/change", {"address": BOOKS, "change": "leave"})
    page = reader.get("/recommenders").text
    assert "You have left https://books.example:9443" in page
    choose(reader, 2, "/recommendations")
    assert "Dracula" in reader.get("/recommendations").text
    reader.post("/recommenders/change", {"address": BOOKS, "change": "forget"})
    page = reader.get("/recommenders").text
    assert "What was sent cannot be recalled" in page
    assert "You have left" not in page
    assert "Dracula" not in reader.get("/recommendations").text
    assert "Amélie" in reader.get("/recommendations").text


def test_a_tab_about_a_recommender_that_was_forgotten_changes_nothing_of_another(reader: Person):
    reader.post("/recommenders/change", {"address": BOOKS, "change": "forget"})
    reader.post("/privacy/genre", {"genre": "Drama", "marked": "yes", "recommender_id": "2"})
    assert "no longer on this device" in reader.get("/privacy").text
    assert (
        "no longer on this device"
        in reader.ask("/rate/set", {"item": "1", "value": "1", "recommender_id": "2"}).json()[
            "error"
        ]
    )
    with reader.owner.store() as store:
        assert item_weights(store) == {}
        assert {record.item: record.value for record in store.records()}["1"] == 4.5


def test_a_file_of_ratings_names_items_by_the_ids_of_its_recommender(reader: Person):
    reader.upload("/rate/file", b"item,rating\n2,7\n", '{"kind": "csv", "recommender_id": "2"}')
    reader.post("/rate/take", {"answer": "yes"})
    with reader.owner.store() as store:
        found = {record.item: record.value for record in store.records()}
    assert found == {"1": 4.5, "2": 2.0, name_in("2", "2"): 7.0}


def test_questions_are_shown_without_items_and_are_over_when_their_recommender_is_left(
    reader: Person,
):
    with reader.owner.store() as store:
        store.set_policy(msgspec.structs.replace(store.policy, ask=True))
        terms = make_terms("hdp-sum", "two-servers", table(), users=20, minimum=18, sharing=18)
        cheaper = msgspec.structs.replace(terms, epsilon=terms.epsilon / 4)  # a no covers the rest
        asked = [
            Question(recommender=BOOKS, terms=each, servers=str(number))
            for number, each in enumerate((terms, terms, cheaper))
        ]
        for each in asked:
            with pytest.raises(DeclinedError):
                require_consent(store, each)
        give_answer(store, asked[0].key, "always")
        give_answer(store, asked[1].key, "never")
    assert "The exact numbers" in reader.get("/disclosures").text
    reader.post("/settings/forget", {"what": "model", "sure": "yes"})
    page = reader.get("/disclosures")
    assert page.status_code == 200
    assert "once its items have been downloaded" in page.text
    assert "The exact numbers" not in page.text
    reader.post("/recommenders/change", {"address": BOOKS, "change": "leave"})
    assert "There are no requests" in reader.get("/disclosures").text
    with reader.owner.store() as store:
        assert [consent.answer for consent in consents(store)] == ["never"]
        with pytest.raises(DeclinedError, match="not answered yet"):
            require_consent(store, asked[2])


def test_never_is_said_to_a_recommender_and_taken_back(reader: Person):
    reader.post("/recommenders/change", {"address": BOOKS, "change": "never"})
    assert "Never, whatever it asks for" in reader.get("/recommenders").text
    with reader.owner.store() as store:
        assert refused_recommenders(store) == [BOOKS]
    reader.post("/recommenders/change", {"address": BOOKS, "change": "lift"})
    assert "Never, whatever it asks for" not in reader.get("/recommenders").text
    with reader.owner.store() as store:
        assert refused_recommenders(store) == []


def test_lists_come_in_parts_by_genre_and_by_decade(
    reader: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(**fields: str) -> tuple[list[str], bool]:
        answer = reader.ask("/recommendations/find", fields).json()
        return [each["title"] for each in answer["items"]], answer["more"]

    table = small_table()
    titles, genres, years = (
        dict(zip(table.titles or (), given or (), strict=True))
        for given in (table.ids, table.genres, table.years)
    )
    everything, more = found(rated="yes")
    assert (sorted(everything), more) == (sorted(titles), False)
    unrated, _ = found()
    assert set(unrated) < set(everything)
    for genre in {name for own in genres.values() for name in own}:
        own = [title for title in everything if genre in genres[title]]
        assert found(rated="yes", genre=genre)[0] == own
    for decade in (1970, 1980, 1990, 2000, 2010):
        own = [title for title in everything if decade <= (years[title] or 0) < decade + 10]
        assert found(rated="yes", decade=str(decade))[0] == own, decade
    assert found(rated="yes", decade="a while ago")[0] == everything
    assert found(rated="yes", decade="1" * 6)[0] == everything
    monkeypatch.setattr(items, "_PART", 2)
    assert found(rated="yes") == (everything[:2], True)
    assert found(rated="yes", offset="2") == (everything[2:4], len(everything) > 4)
    assert found(rated="yes", offset=str(len(everything))) == ([], False)
    monkeypatch.setattr(items, "_MOST", 2)
    assert found(rated="yes") == (everything[:2], False)


def test_without_a_model_there_is_no_list(person: Person) -> None:
    answer = person.ask("/recommendations/find", {}).json()
    assert (answer["items"], answer["more"]) == ([], False)
