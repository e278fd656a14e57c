"""The choice of what a recommender may see, on the page: explained, confirmed, and taken back."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hdpmf.common.privacy.levels import LEVELS
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.common.protocol.oneround import ItemFacts
from hdpmf.private.device.choices.privacy_level import mark_genre
from hdpmf.private.device.consent import ask_owner
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.memberships import join, leave
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import keep_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel, Question
from tests.unit.device.reporting_world import SERVERS
from tests.world import terms

from .conftest import SECRET, Person, complaints, small_table

FILMS, BOOKS = "https://films.example:9443", "https://books.example:9443"
CHOOSE, CONFIRM = "/privacy/sharing", "/privacy/sharing/confirm"


@pytest.fixture
def member(person: Person) -> Person:
    """Somebody who has joined a recommender of films."""
    with person.owner.store() as store:
        join(store, Invitation(address=FILMS, servers=SERVERS))
    return person


def level(person: Person, recommender_id: int = 1) -> str:
    with person.owner.store() as store:
        return store.at(recommender_id).sharing_level()


def checked(page: str) -> list[str]:
    """Return the levels that are chosen on a page."""
    return re.findall(r'name="level" value="(\w+)" required checked', page)


def show(store: DeviceStore, *, seen: int, opened: int) -> None:
    """Note that so many ratings were shown to the recommender in a run."""
    ratings = store.ratings()
    common = {
        "recommender": FILMS, "run": "5e" * 16, "number": 0, "method": "hdp-share",
        "view": "messages", "epsilon": 0.5, "status": "proved",
    }  # fmt: skip
    store.ledger.charge(
        Entry(**common, action="sent", words="what you show", seen=seen, opened=opened),
        ratings,
        np.arange(seen + opened),
        np.array([0.5] * seen + [0.0] * opened),
        opened=np.arange(seen + opened) >= seen,
    )


def test_without_a_recommender_there_is_nothing_to_choose(person: Person) -> None:
    page = person.get("/privacy").text
    assert "Nothing, until you join one" in page
    assert 'name="level"' not in page
    assert complaints(post_and_look(person, CHOOSE, level="seen"))


def post_and_look(person: Person, path: str, **fields: str) -> str:
    """Send a form and return the page that follows."""
    answer = person.post(path, fields)
    return person.get(answer.headers["location"]).text if answer.is_redirect else answer.text


def test_the_three_levels_are_explained_and_all_is_hidden_at_first(member: Person) -> None:
    page = member.get("/privacy").text
    assert checked(page) == ["hidden"]
    assert "What may films.example:9443 see?" in page
    for words in (
        "only become part of sums over many people",
        "which items you rated",
        "Nothing protects them",
    ):
        assert words in page
    assert "2 of your ratings of its items are hidden, 0 would be seen and 0 published" in page
    assert "none of your ratings" in page
    assert "0.18 if nobody shares, 0.24 if nine in a hundred other people" in page


def test_showing_more_is_asked_a_second_time_and_says_what_becomes_visible(member: Person) -> None:
    page = post_and_look(member, CHOOSE, level="seen")
    assert level(member) == "hidden"  # not before the second step
    assert checked(page) == ["hidden"]
    assert "Let films.example:9443 see what you rated?" in page
    assert "see that you rated 2 items, but not how you rated them, and would get 0" in page
    assert "Nothing that was sent can be taken back" in page
    assert "similar items can give them away" in page
    assert "Zombie Opera &lt;script&gt;" in page  # which items, and none of it is HTML
    assert SECRET not in page
    page = post_and_look(member, CONFIRM, level="seen", answer="yes")
    assert level(member) == "seen"
    assert checked(page) == ["seen"]
    assert "From the next run on, films.example:9443 sees which items you rated" in page
    assert "0 of your ratings of its items are hidden, 2 would be seen" in page
    with member.owner.store() as store:
        assert "hdp-share" in store.policy.methods


def test_a_no_changes_nothing_and_the_question_is_gone(member: Person) -> None:
    post_and_look(member, CHOOSE, level="open")
    page = post_and_look(member, CONFIRM, level="open", answer="no")
    assert "Nothing was changed." in page
    assert "Publish your ratings" not in page
    assert level(member) == "hidden"
    assert "Please choose again" in post_and_look(member, CONFIRM, level="open", answer="yes")
    assert level(member) == "hidden"


@pytest.mark.parametrize("wrong", ["open", "everything", ""])
def test_only_the_choice_that_was_asked_about_can_be_confirmed(member: Person, wrong: str) -> None:
    post_and_look(member, CHOOSE, level="seen")
    assert complaints(post_and_look(member, CONFIRM, level=wrong, answer="yes"))
    assert level(member) == "hidden"


def test_a_choice_is_for_the_recommender_that_was_on_the_page(member: Person) -> None:
    with member.owner.store() as store:
        join(store, Invitation(address=BOOKS, servers=SERVERS))
        store.at(2).pin_catalogue(store.at(1).pinned_catalogue.items)  # type: ignore[union-attr]
    post_and_look(member, CHOOSE, level="seen", recommender_id="2")
    fields = {"level": "seen", "answer": "yes"}
    assert complaints(post_and_look(member, CONFIRM, recommender_id="1", **fields))
    post_and_look(member, CONFIRM, recommender_id="2", **fields)
    assert (level(member, 1), level(member, 2)) == ("hidden", "seen")


def test_showing_less_counts_at_once_and_what_was_sent_is_told(member: Person) -> None:
    with member.owner.store() as store:
        store.set_sharing_level("open")
        show(store, seen=1, opened=1)
    page = member.get("/privacy").text
    told = "has seen that 1 ratings exist and has received 1 ratings as they are"
    assert told in page
    page = post_and_look(member, CHOOSE, level="hidden")
    assert level(member) == "hidden"
    assert "only gets sums that include your ratings" in page
    assert "Nothing that was sent can be undone" in page
    assert told in page  # it is what was sent that counts, not what is chosen


def test_from_open_to_seen_is_less(member: Person) -> None:
    with member.owner.store() as store:
        store.set_sharing_level("open")
    assert checked(post_and_look(member, CHOOSE, level="seen")) == ["seen"]


def test_sensitive_items_stay_hidden_on_the_page_too(member: Person) -> None:
    with member.owner.store() as store:
        mark_genre(store, "Horror")
        store.set_sharing_level("seen")
    assert (
        "1 of your ratings of its items are hidden, 1 would be seen" in member.get("/privacy").text
    )


def test_who_rates_or_takes_a_mark_away_is_told_who_sees_it(member: Person) -> None:
    assert "will see what you rate of its items" not in member.get("/rate").text
    for marked in ("yes", "no"):
        page = post_and_look(member, "/privacy/genre", genre="Horror", marked=marked)
        assert "may see these items" not in page
    with member.owner.store() as store:
        store.set_sharing_level("seen")
    assert (
        "films.example:9443 will see what you rate of its items from the next run on"
        in member.get("/rate").text
    )
    page = post_and_look(member, "/privacy/genre", genre="Horror", marked="yes")
    assert "may see these items" not in page
    page = post_and_look(member, "/privacy/genre", genre="Horror", marked="no")
    assert "films.example:9443 may see these items from its next run on" in page
    member.ask("/rate/private", {"item": "1", "private": "yes"})
    told = member.ask("/rate/private", {"item": "1", "private": "no"}).json()["told"]
    assert "films.example:9443 may see these items" in told


def test_a_locked_page_forgets_what_it_was_about_to_show(member: Person) -> None:
    post_and_look(member, CHOOSE, level="open")
    member.post("/lock", {})
    member.enter()
    assert "Publish your ratings" not in member.get("/privacy").text
    assert complaints(post_and_look(member, CONFIRM, level="open", answer="yes"))
    assert level(member) == "hidden"


@pytest.mark.parametrize("path", [CHOOSE, CONFIRM])
@pytest.mark.parametrize("way", ["no token", "wrong token", "other origin", "get"])
def test_no_other_site_can_choose(member: Person, path: str, way: str) -> None:
    if path == CONFIRM:
        post_and_look(member, CHOOSE, level="open")
    fields = {"level": "open", "answer": "yes"}
    if way == "get":
        answer = member.client.get(path, params=fields)
    elif way == "other origin":
        answer = member.post(path, fields, origin="https://evil.example")
    else:
        answer = member.post(path, {"csrf": "" if way == "no token" else "0" * 43} | fields)
    assert answer.status_code in (400, 403, 405)
    if path == CHOOSE:
        assert "Publish your ratings" not in member.get("/privacy").text
    assert level(member) == "hidden"


def test_who_was_left_cannot_be_shown_anything(member: Person) -> None:
    with member.owner.store() as store:
        leave(store, FILMS)
    assert "Nothing, until you join one" in member.get("/privacy").text
    assert complaints(post_and_look(member, CHOOSE, level="seen"))
    assert level(member) == "hidden"


def test_every_level_has_its_words(member: Person) -> None:
    for chosen in LEVELS:
        with member.owner.store() as store:
            store.set_sharing_level(chosen)
        assert checked(member.get("/privacy").text) == [chosen]


def test_what_was_shown_is_listed_by_title_in_what_has_left(member: Person) -> None:
    with member.owner.store() as store:
        show(store, seen=1, opened=1)
    page = member.get("/disclosures").text
    assert "Seen as rated: 1 items" in page
    assert "Published as they are: 1 ratings" in page
    assert "Zombie Opera &lt;script&gt;" in page
    assert "Quiet Days (1999)" in page
    assert "you showed that 1 ratings exist, and published 1 as they are" in page
    with member.owner.store() as store:
        store.remove("2")
    assert "1 of them are no longer rated here" in member.get("/disclosures").text


def test_numbers_about_guesses_make_an_exception_of_what_is_published(member: Person) -> None:
    assert "None of this applies" not in member.get("/privacy").text
    with member.owner.store() as store:
        store.set_sharing_level("open")
    page = member.get("/privacy").text
    assert "Nor does it apply to the 2 ratings you have allowed to be published" in page
    with member.owner.store() as store:
        show(store, seen=0, opened=2)
        store.set_sharing_level("hidden")
    page = member.get("/privacy").text  # by what was sent, not by what is chosen now
    assert "None of this applies to the 2 ratings you have published" in page
    assert "Nor does it apply" not in page


def test_before_a_run_it_says_what_leaves_at_which_level(member: Person) -> None:
    with member.owner.store() as store:
        store.set_policy(Policy(methods=("hdp-sum", "hdp-share"), ask=True, epsilon=2.0))
        asked = terms("hdp-share", "two-servers", small_table(), rounds=1)
        store.tables.questions.put(Question(recommender=FILMS, terms=asked))
    page = member.get("/disclosures").text
    assert "What you show" not in page
    with member.owner.store() as store:
        store.set_sharing_level("seen")
        mark_genre(store, "Horror")
        store.marks.answer()
    page = member.get("/disclosures").text
    assert "that you rated 1 items, each with a random bit, and 0 ratings" in page
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page)
    hows = {title[:5]: re.findall("<td>(.*?)</td>", cells)[2] for title, cells in rows}
    assert hows == {"Zombi": "in a sum", "Quiet": "seen, as a bit"}
    assert "a zero for each of the 3 other items" in page
    with member.owner.store() as store:
        store.set_sharing_level("open")
    assert "and 1 ratings as they are" in member.get("/disclosures").text


def test_the_start_page_offers_levels_where_the_recommender_asks_for_them(member: Person) -> None:
    assert 'name="level"' not in member.get("/start").text
    with member.owner.store() as store:
        asked = terms("hdp-share", "two-servers", small_table(), epsilon=0.5, rounds=1)
        ask_owner(store, Question(recommender=FILMS, terms=asked))
    page = member.get("/start").text
    pressed = re.findall(r'name="level" value="(\w+)" aria-pressed="(\w+)"', page)
    assert pressed == [("hidden", "true"), ("seen", "false"), ("open", "false")]
    # Showing more is confirmed, and leads back to where it was chosen.
    fields = {"recommender_id": "1", "back": "/start"}
    chosen = member.post("/privacy/sharing", fields | {"level": "seen"})
    assert (chosen.headers["location"], level(member)) == ("/privacy", "hidden")
    sure = {"recommender_id": "1", "level": "seen", "answer": "yes"}
    confirmed = member.post("/privacy/sharing/confirm", sure)
    assert (confirmed.headers["location"], level(member)) == ("/start", "seen")
    less = member.post("/privacy/sharing", fields | {"level": "hidden"})
    assert (less.headers["location"], level(member)) == ("/start", "hidden")


@pytest.mark.parametrize("way", ["refused", "sent", "model", "other"])
def test_a_recommender_that_asked_for_levels_before_offers_them(member: Person, way: str) -> None:
    with member.owner.store() as store:
        if way == "refused":
            asked = terms("hdp-share", "two-servers", small_table(), epsilon=0.5, rounds=1)
            RefusalBook(store, FILMS).note("policy", "no", asked, b"x" * 16)
        elif way == "sent":
            show(store, seen=1, opened=0)
        elif way == "model":
            zeros = np.zeros(4, np.float32)
            facts = ItemFacts(
                known_items(small_table()).fingerprint, 3.0, zeros, zeros + 1, zeros,
                np.zeros((4, 0), np.float32), raters=zeros + 1,
            )  # fmt: skip
            model = LocalModel(
                recommender=FILMS, run="ab" * 16, method="hdp-sum", view="nothing", plan=None,
                numbers=encode(facts),
            )  # fmt: skip
            keep_model(store, model)
        else:
            RefusalBook(store, "https://other.example").note("policy", "no", None, b"")
    assert ('name="level"' in member.get("/start").text) == (way != "other")
