"""A question on the page: who asks, the four answers, what waits, and when it was looked."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.private.device.consent import (
    LATER,
    ask_owner,
    consents,
    pending,
    refused_recommenders,
    require_consent,
)
from hdpmf.private.device.errors import DeclinedError, UnansweredError
from hdpmf.private.device.memberships import join
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommender_state import RecommenderStates, TaskState
from hdpmf.private.device.store.schema import Question
from tests.unit.device.reporting_world import SERVERS, make_task
from tests.world import terms

from .conftest import ORIGIN, Person, complaints, small_table

FILMS, BOOKS = "https://films.example:9443", "https://books.example:9443"
ANSWER = "/disclosures/answer"


def question(epsilon: float = 0.5, recommender: str = FILMS) -> Question:
    asked = terms("hdp-sum", "two-servers", small_table(), epsilon=epsilon, rounds=1)
    return Question(recommender=recommender, terms=asked, servers=SERVERS.digest)


@pytest.fixture
def asked(person: Person, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Somebody whom the film club asks. Nobody looks at its files: tasks here are made up."""
    monkeypatch.setattr(person.owner.background, "refresh", lambda: None)
    with person.owner.store() as store:
        store.set_policy(Policy(ask=True))
        join(store, Invitation(address=FILMS, servers=SERVERS, name="Film <club>"))
        ask_owner(store, question())
    return person


def say(person: Person, word: str, key: str | None = None) -> str:
    """Give an answer, and return the page that follows."""
    fields = {"key": question().key if key is None else key, "answer": word}
    page = person.get(person.post(ANSWER, fields).headers["location"]).text
    assert complaints(page) == []
    return page


def permitted(person: Person, what: Question | None = None) -> bool | None:
    """True if a run may go on, False if it is refused, None if it has to wait."""
    with person.owner.store() as store:
        try:
            require_consent(store, what or question(), b"run")
        except UnansweredError:
            return None
        except DeclinedError:
            return False
        return True


def test_who_asks_is_shown_by_name_and_the_address_beside_it(asked: Person):
    page = asked.get("/disclosures").text
    assert '<h2 id="asked-1"><bdi>Film &lt;club&gt;</bdi></h2>' in page
    assert "<bdi>films.example:9443</bdi>. Name not verified." in page
    for path in ("/recommenders", "/start"):
        assert "Film &lt;club&gt;" in asked.get(path).text
    with asked.owner.store() as store:
        store.change_recommender(name="")
    page = asked.get("/disclosures").text
    assert '<h2 id="asked-1"><bdi>films.example:9443</bdi></h2>' in page
    assert "It gave no name" in page


def test_a_name_that_is_anothers_is_told_before_joining(asked: Person):
    other = Invitation(address=BOOKS, servers=SERVERS, name="FiIm-<club>")
    asked.post("/recommenders/preview", {"link": other.to_link()})
    for path in ("/recommenders", "/start"):
        page = asked.get(path).text
        # The start page shows an invitation only to somebody who has not joined any.
        assert ("with a similar name" in page) == (path == "/recommenders")
    asked.post("/recommenders/answer", {"digest": other.digest, "answer": "yes"})
    assert "<bdi>books.example:9443</bdi>" in asked.get("/recommenders").text


def test_agree_once_is_for_one_run(asked: Person):
    page = say(asked, "once")
    assert "New request" not in page
    assert permitted(asked) is True
    with asked.owner.store() as store, pytest.raises(UnansweredError):
        require_consent(store, question(), b"another run")


def test_always_is_for_every_run_under_these_terms_and_no_others(asked: Person):
    say(asked, "always")
    assert permitted(asked) is True
    assert permitted(asked) is True
    assert permitted(asked, question(0.25)) is None


def test_not_now_sends_nothing_and_is_asked_again(asked: Person, monkeypatch: pytest.MonkeyPatch):
    page = say(asked, "later")
    assert "New request" not in page
    assert "you answered not now. Nothing is sent. You will be asked again tomorrow at" in page
    assert permitted(asked) is None
    assert asked.client.post("/state", headers={"origin": ORIGIN}).json()["asked"] == (0)
    assert "New request" in say(asked, "now")
    say(asked, "later")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LATER + 1)
    assert "New request" in asked.get("/disclosures").text


def test_never_is_a_no_to_whatever_it_asks_until_it_is_taken_back(asked: Person):
    page = say(asked, "never")
    assert "New request" not in page
    for epsilon in (0.5, 0.25, 0.01):  # much cheaper ones, too
        assert permitted(asked, question(epsilon)) is False
    with asked.owner.store() as store:
        assert refused_recommenders(store) == [FILMS]
        assert pending(store) == []
        (given,) = consents(store)
    assert "Film &lt;club&gt;" in page
    assert "New request" in say(asked, "again", given.key)
    assert permitted(asked) is None
    with asked.owner.store() as store:
        assert (refused_recommenders(store), consents(store)) == ([], [])


def test_what_waits_can_be_withdrawn_until_it_has_left(asked: Person):
    page = say(asked, "once")
    assert "has your agreement for one run" in page
    assert permitted(asked) is True
    with asked.owner.store() as store:
        book = RecommenderStates(store, FILMS)
        state = TaskState(moment=time.time() + 3600, run=b"run")
        book.begin(b"run", state, make_task(), int(time.time()) + 7200, time.time())
        book.change(task=b"run")
        book.save(b"run", msgspec.structs.replace(state, left=True))
    page = asked.get("/disclosures").text
    assert "has been sent your report, which cannot be taken back." in page
    assert ">Withdraw<" not in page
    with asked.owner.store() as store:
        book.save(b"run", state)
    page = asked.get("/disclosures").text
    assert ">Withdraw<" in page
    assert re.search(r"gets your report (today|tomorrow) at \d\d:\d\d or shortly after", page)
    withdrawn = asked.post("/disclosures/withdraw", {"address": FILMS})
    page = asked.get(withdrawn.headers["location"]).text
    assert "Withdrawn. None of your ratings have been sent." in page
    assert "gets your report" not in page
    assert "you answered not now" in page
    assert permitted(asked) is None
    asked.post("/disclosures/withdraw", {"address": FILMS})
    assert "Nothing is waiting to be sent there" in asked.get("/disclosures").text


def test_what_was_agreed_without_asking_can_be_withdrawn_too(asked: Person):
    now = time.time()
    with asked.owner.store() as store:
        store.set_policy(Policy(ask=False))
        book = RecommenderStates(store, FILMS)
        book.begin(
            b"run", TaskState(moment=now + 3600, run=b"run"), make_task(), int(now) + 7200, now
        )
        book.change(task=b"run")
    assert ">Withdraw<" in asked.get("/disclosures").text
    asked.post("/disclosures/withdraw", {"address": FILMS})
    page = asked.get("/disclosures").text
    assert (
        "Withdrawn. None of your ratings have been sent. You will be asked again after a day."
        in page
    )
    assert "gets your report" not in page
    assert "you answered not now" in page


@pytest.mark.parametrize(
    ("seconds", "reached", "words"),
    [
        (5, True, "checked just now."),
        (60, True, "checked 1 minute ago."),
        (150, True, "checked 2 minutes ago."),
        (150, False, "could not be reached 2 minutes ago."),
        (7200, True, "checked "),
    ],
)
def test_it_says_when_it_looked_and_looks_now(
    asked: Person, monkeypatch: pytest.MonkeyPatch, seconds: int, reached: bool, words: str
):
    background = asked.owner.background
    assert 'id="looked" class="help"></span>' in asked.get("/disclosures").text
    monkeypatch.setattr(background, "_looks", {FILMS: (time.time() - seconds, reached)})
    assert f"Film &lt;club&gt;: {words}" in asked.get("/disclosures").text
    told = asked.client.post("/state", headers={"origin": ORIGIN}).json()
    assert told["looked"].startswith(f"Film <club>: {words}")
    looked: list[bool] = []
    monkeypatch.setattr(background, "refresh", lambda: looked.append(True))
    assert asked.post("/disclosures/look", {}).headers["location"] == "/disclosures"
    assert looked == [True]


def test_the_same_is_said_once(asked: Person):
    fields = {"csrf": asked.csrf, "key": "x", "answer": "once"}
    for _ in range(3):  # a double click, and once more, before any page follows
        asked.client.post(ANSWER, data=fields, headers={"origin": ORIGIN})
    assert len(complaints(asked.get("/disclosures").text)) == 1
    assert complaints(asked.get("/disclosures").text) == []
