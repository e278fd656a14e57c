"""The page of what left the device: numbers, pictures and lists that do not grow without end."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from hdpmf.private.device.store.schema import RefusalRecord, Refusals
from hdpmf.private.page import disclosures

from .conftest import Person, complaints


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0.0, "0"), (3.0, "3"), (0.126, "0.13"), (9.4, "9.4"), (-9.4, "-9.4"), (10.4, "10"),
        (-12.7, "-13"), (1234.5, "1,234"), (10.0, "10"),
    ],
)  # fmt: skip
def test_numbers_are_as_long_as_they_mean_something(number: float, words: str) -> None:
    assert disclosures._round(number) == words


def bars(monkeypatch: pytest.MonkeyPatch, parts: list[float]) -> list[dict[str, float]]:
    """The picture of ratings with a budget of 2 each, one with 4, and these parts of it left."""
    found = [
        SimpleNamespace(part=part, allowed=4.0 if part == 1.0 else 2.0, left=2.0 * part)
        for part in parts
    ]
    monkeypatch.setattr(disclosures, "budgets", lambda store: found)
    store: Any = None
    return disclosures._picture(store)


def test_every_rating_has_a_bar_the_emptiest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bars(monkeypatch, []) == []
    assert bars(monkeypatch, [1.0, 0.0, 0.5]) == [
        {"x": 0.0, "width": 28.6667, "allowed": 20.0, "left": 0.0},
        {"x": 33.3333, "width": 28.6667, "allowed": 20.0, "left": 10.0},
        {"x": 66.6667, "width": 28.6667, "allowed": 40.0, "left": 20.0},
    ]


@pytest.mark.parametrize(("ratings", "shown"), [(1, 1), (250, 250), (251, 250), (5000, 250)])
def test_many_ratings_are_shown_by_some_of_them(
    monkeypatch: pytest.MonkeyPatch, ratings: int, shown: int
) -> None:
    found = bars(monkeypatch, [number / 10_000 for number in range(ratings)])
    assert len(found) == shown
    assert found[0]["left"] == 0.0
    assert found[-1]["left"] == round(40 * (ratings - 1) / 10_000, 3)
    lefts = [bar["left"] for bar in found]
    assert lefts == sorted(lefts)
    assert found[-1]["x"] + 100 / shown == pytest.approx(100.0, abs=1e-3)


@pytest.mark.parametrize(("n", "dropped", "more"), [(50, 0, 0), (52, 0, 5), (52, 3, 8), (1, 1, 1)])
def test_the_last_refusals_are_shown_and_how_many_there_were_before(
    person: Person, n: int, dropped: int, more: int
) -> None:
    kept = tuple(
        RefusalRecord(
            recommender=f"https://n{number}.example", reason="policy", words="no",
            first="2026-01-01", last="2026-01-02", count=number + 2,
        )
        for number in range(n)
    )  # fmt: skip
    with person.owner.store() as store:
        store.tables.refusals.put(
            Refusals(refused=kept, dropped={"https://films.example": dropped} if dropped else {})
        )
    page = person.get("/disclosures").text
    places = [page.find(f"n{number}.example") for number in range(n)]
    assert [place >= 0 for place in places] == [number >= n - 50 for number in range(n)]
    shown = places[-50:]
    assert shown == sorted(shown, reverse=True)  # the newest first
    assert re.findall(r"And (\d+) more, which", page) == ([str(more)] if more else [])
    assert not complaints(page)


@pytest.mark.parametrize("answer", ["maybe", ""])
def test_an_answer_that_is_none_changes_nothing(person: Person, answer: str) -> None:
    sent = person.post("/disclosures/answer", {"key": "x", "answer": answer})
    page = person.get(sent.headers["location"]).text if sent.is_redirect else sent.text
    assert complaints(page)
