"""``hdpmf device share``: levels are chosen, confirmed and printed; what was sent is told."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from msgspec.structs import replace

from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.private.device.choices.privacy_level import mark
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.memberships import join, leave
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from tests.unit.device.reporting_world import SERVERS
from tests.world import terms

from .conftest import Call
from .device_world import TABLE

FILMS = "https://films.example:9443"
NO_RATINGS_ANSWERED = {"hidden": 0, "seen": 0, "open": 0, "answered": 0}


@pytest.fixture
def joined(path: Path) -> Path:
    """A store with three ratings, at a recommender that was joined."""
    with DeviceStore.open(path) as store:
        join(store, Invitation(address=FILMS, servers=SERVERS))
        store.pin_catalogue(TABLE)
        for item, value in zip(TABLE.ids[:3], (1.0, 5.0, 3.0), strict=True):
            store.rate(item, value)
    return path


def test_a_level_is_printed_raised_and_lowered(joined: Path, call: Call) -> None:
    told = call("device", "share", joined, "--json").json
    assert told["recommender"] == FILMS
    assert told["level"] == "hidden"
    assert told["ratings"] == NO_RATINGS_ANSWERED | {"hidden": 3}
    assert told["shown"] == {"seen": 0, "open": 0}
    told = call("device", "share", joined, "seen", "--yes", "--json").json
    assert (told["level"], told["ratings"]["seen"]) == ("seen", 3)
    assert told["policy_allows"]
    assert "seen" in call("device", "status", joined).out
    assert call("device", "status", joined, "--json").json["sharing"]["level"] == "seen"
    assert call("device", "share", joined, "hidden", "--json").json["level"] == "hidden"
    assert call("device", "everything", joined).json["sharing"] == []


def test_showing_more_needs_a_yes_and_says_what_becomes_visible(joined: Path, call: Call) -> None:
    asked = call("device", "share", joined, "open")
    assert asked.code != 0
    said = " ".join(asked.err.split())
    assert (
        "rated 0 items, but not how you rated them, and would get 3 ratings as they are. 0 stay"
        in said
    )
    assert "Nothing that was sent can be taken back" in said
    assert "similar items can give them away" in said
    assert "confirm with --yes" in said
    assert call("device", "share", joined, "--json").json["level"] == "hidden"


def test_who_could_spend_more_than_the_total_is_told_so(joined: Path, call: Call) -> None:
    """What is shown has half of it, whatever hidden ratings have spent."""
    assert "more than max_total" not in call("device", "share", joined, "seen").err
    with DeviceStore.open(joined) as store:
        store.set_policy(replace(store.policy, max_total=1.0))
        entry = Entry(
            recommender="https://other.example",
            run="ab" * 16,
            number=0,
            method="hdp-sum",
            view="two-servers",
            epsilon=0.5,
            status="proved",
            action="sent",
            words="numbers",
        )
        store.ledger.charge(entry, store.ratings(), np.arange(2), np.full(2, 0.45))
    said = " ".join(call("device", "share", joined, "seen").err.split())
    assert "the total may exceed max_total (1) by 0.4" in said
    assert "and all ratings together 1." in call("device", "ledger", joined).out.replace("\n", " ")
    call("device", "share", joined, "seen", "--yes")
    said = " ".join(call("device", "ledger", joined).out.split())
    assert "and all ratings together 1.4." in said


@pytest.mark.parametrize("answer", [False, True])
def test_on_a_terminal_the_owner_is_asked(
    joined: Path, call: Call, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    questions: list[str] = []

    def confirm(question: str, **options: object) -> bool:
        questions.append(question)
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    call("device", "share", joined, "seen")
    assert questions == [f"Show so much to {FILMS}?"]
    with DeviceStore.open(joined) as store:
        assert store.sharing_level() == ("seen" if answer else "hidden")


def test_items_and_genres_have_levels_below_it(joined: Path, call: Call) -> None:
    first, second = TABLE.ids[:2]
    call("device", "share", joined, "open", "--yes")
    told = call("device", "share", joined, "hidden", "--item", first, "--json").json
    assert told["ratings"] == NO_RATINGS_ANSWERED | {"hidden": 1, "open": 2}
    assert [(row["item"], row["level"]) for row in told["items"]] == [(first, "hidden")]
    raised = call("device", "share", joined, "seen", "--item", first)
    assert "confirm with --yes" in raised.err  # more than before, although less than the owner's
    assert TABLE.genres is not None
    genre = TABLE.genres[1][0]
    told = call("device", "share", joined, "seen", "--genre", genre.upper(), "--json").json
    assert told["genres"] == [{"genre": genre.casefold(), "level": "seen"}]
    with DeviceStore.open(joined) as store:
        assert store.levels()[store.pinned_catalogue.positions[second]] == 1  # type: ignore[union-attr]
    assert f"Genre {genre.casefold()}: seen at most" in call("device", "share", joined).out
    told = call("device", "share", joined, "open", "--genre", genre, "--yes", "--json").json
    assert told["genres"] == []


def test_marked_items_stay_hidden(joined: Path, call: Call) -> None:
    with DeviceStore.open(joined) as store:
        mark(store, [TABLE.ids[0]])
    told = call("device", "share", joined, "open", "--yes", "--json").json
    assert told["ratings"] == NO_RATINGS_ANSWERED | {"hidden": 1, "open": 2}
    # A level of its own does not take the mark away, so that there is nothing to confirm.
    told = call("device", "share", joined, "open", "--item", TABLE.ids[0], "--json").json
    assert told["ratings"]["hidden"] == 1


def test_what_was_shown_is_told_from_the_ledger_and_stays(joined: Path, call: Call) -> None:
    with DeviceStore.open(joined) as store:
        store.set_sharing_level("open")
        ratings = store.ratings()
        common = {
            "recommender": FILMS, "run": "5e" * 16, "number": 0, "method": "hdp-share",
            "view": "messages", "epsilon": 0.5, "status": "proved",
        }  # fmt: skip
        entry = Entry(**common, action="sent", words="what is shown", seen=1, opened=1)
        opened = np.array([False, True])
        store.ledger.charge(entry, ratings, np.arange(2), np.array([0.5, 0.0]), opened)
    told = call("device", "share", joined, "hidden", "--json").json
    assert told["shown"] == {"seen": 1, "open": 1}
    assert told["ratings"] == NO_RATINGS_ANSWERED | {"hidden": 1, "answered": 2}
    said = " ".join(call("device", "share", joined).out.split())
    assert "So far, it has seen that 1 ratings exist and has received 1 ratings as they are" in said
    said = " ".join(call("device", "ledger", joined).out.split())
    assert "you showed that 1 ratings exist, and published 1 as they are" in said
    assert call("device", "ledger", joined, "--json").json["shown"] == {"seen": 1, "open": 1}
    said = " ".join(call("device", "rate", joined, "--weight", "0.5").out.split())
    assert "None of this applies to the 1 ratings you have published" in said


def test_a_question_says_what_is_shown_beside_the_sums(joined: Path, call: Call) -> None:
    with DeviceStore.open(joined) as store:
        asked = terms("hdp-share", "two-servers", TABLE, rounds=1)
        store.tables.questions.put(Question(recommender=FILMS, terms=asked))
        store.set_policy(Policy(ask=True))
    assert "Beside sums" not in call("device", "consent", joined).out
    call("device", "share", joined, "open", "--yes")
    call("device", "share", joined, "seen", "--item", TABLE.ids[0])
    (told,) = call("device", "consent", joined, "--json").json["questions"]
    assert (told["ratings"], told["shown"]) == (3, {"seen": 1, "open": 2})
    levels = {number["item"]: number["level"] for number in told["numbers"]}
    assert levels == dict(zip(TABLE.ids[:3], ("seen", "open", "open"), strict=True))
    assert {number["plain"] for number in told["numbers"] if number["level"] == "open"} == {
        5.0,
        3.0,
    }
    said = " ".join(call("device", "consent", joined).out.split())
    assert "that 1 items are rated, each with a bit drawn at random, and 2 ratings" in said


def test_what_cannot_be_is_refused_and_changes_nothing(joined: Path, call: Call) -> None:
    for arguments, words in (
        (("visible",), "hidden, seen, open"),
        (("--item", TABLE.ids[0]), "LEVEL is missing"),
        (("seen", "--item", "1", "--genre", "x"), "not both"),
        (("seen", "--item", "no such item", "--yes"), "no such item"),
        (("seen", "--genre", "Opera Buffa", "--yes"), "no such genre"),
        (("seen", "--recommender", "https://other.example:1", "--yes"), "not joined"),
    ):
        refused = call("device", "share", joined, *arguments)
        assert refused.code != 0
        assert words in " ".join(refused.err.split())
    with DeviceStore.open(joined) as store:
        assert store.sharing.rows() == []
        leave(store, FILMS)
    assert "not joined" in call("device", "share", joined, "seen", "--yes").err
