"""The page of what left the device: numbers, pictures and lists that do not grow without end."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from hdpmf.private.device.disclosures.bounds import Bound, Budget
from hdpmf.private.device.store.schema import RefusalRecord, Refusals
from hdpmf.private.page import consent, pictures

from .conftest import Person, complaints


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0.0, "0"), (3.0, "3"), (0.126, "0.13"), (9.4, "9.4"), (-9.4, "-9.4"), (10.4, "10"),
        (-12.7, "-13"), (1234.5, "1,234"), (10.0, "10"),
    ],
)  # fmt: skip
def test_numbers_are_as_long_as_they_mean_something(number: float, words: str) -> None:
    assert consent._round(number) == words


def shown_strips(monkeypatch: pytest.MonkeyPatch, spent: list[float]) -> dict[str, Any]:
    """The strips of ratings with a budget of 2 each, of which so much is spent."""
    found = [
        Budget("me", f"{number:04d}", 2.0, each, used_up=each >= 2.0)
        for number, each in enumerate(spent)
    ]
    monkeypatch.setattr(pictures, "budgets", lambda store: found)
    store: Any = None
    return pictures.strips(store, {f"{number:04d}": f"Film {number}" for number in range(3)})


def test_a_strip_has_its_title_and_the_used_up_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_strips(monkeypatch, [])["strips"] == []
    found = shown_strips(monkeypatch, [0.0, 1.0, 2.5])
    assert [(each["title"], each["used_up"]) for each in found["strips"]] == [
        ("Film 2", True),
        ("Film 1", False),
    ]
    assert [(each["left"], each["width"]) for each in found["strips"]] == [
        ("0 %", "0.0"),
        ("50 %", "50.0"),
    ]
    assert (found["n_used_up"], found["n_whole"], found["n_strips"]) == (1, 1, 2)


@pytest.mark.parametrize(("ratings", "shown"), [(1, 1), (250, 250), (251, 250), (5000, 250)])
def test_many_budgets_are_shown_by_the_emptiest(
    monkeypatch: pytest.MonkeyPatch, ratings: int, shown: int
) -> None:
    found = shown_strips(monkeypatch, [2 - number / 5000 for number in range(ratings)])
    assert (len(found["strips"]), found["n_strips"]) == (shown, ratings)
    widths = [float(each["width"]) for each in found["strips"]]
    assert widths == sorted(widths)
    assert widths[0] == 0.0


@pytest.mark.parametrize("guess", [0.5, 0.5025, 0.63, 0.9, 0.999, 1.0])
def test_two_views_overlap_as_much_as_the_bound_says(guess: float) -> None:
    """The area under both curves, from the very path that is drawn."""
    drawn = pictures.two_views(Bound(0.0, guess))

    def area(path: str) -> float:
        points = [tuple(map(float, each.split())) for each in path[1:-1].split("L")]
        return sum(
            (right - left) * (120 - low - high) / 2
            for (left, low), (right, high) in itertools.pairwise(points)
        )

    both, yours, others = (area(drawn[name]) for name in ("both", "yours", "others"))
    assert yours == pytest.approx(others, rel=0.02)
    assert both / yours == pytest.approx(2 * (1 - guess), abs=0.03)


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
