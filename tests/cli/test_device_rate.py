"""``hdpmf device rate``: ratings and weights come, change and go, and what was released is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Call
from .device_world import TABLE, pay

pytestmark = pytest.mark.slow


def test_rating_listing_and_removing(rated: Path, call: Call) -> None:
    items = TABLE.ids[:3]
    assert call("device", "rate", rated, items[0], "2", "--json").json["ratings"] == 3
    assert call("device", "rate", rated, items[1], "--remove").code == 0
    assert call("device", "rate", rated, items[1], "--remove").code == 3
    assert call("device", "rate", rated, items[2], "--weight", "0.5").code == 0
    assert call("device", "rate", rated, "--weight", "0.5").code == 0
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert [(one["item"], one["value"], one["weight"]) for one in listed] == [
        (items[0], 2.0, 0.5),
        (items[2], 3.0, 0.25),
    ]
    assert listed[0]["title"] == TABLE.titles[0]
    table = call("device", "rate", rated, "--list").out
    assert TABLE.titles[0] in table


def test_a_weight_is_told_in_numbers_that_people_understand(rated: Path, call: Call) -> None:
    told = call("device", "rate", rated, "--weight", "0.5", "--json").json["means"]
    assert (told["group"], round(told["guess"], 3)) == ("moderate", 0.622)
    assert told["all_epsilon_at_delta"] == pytest.approx(
        1.5, rel=0.01
    )  # three ratings of half a budget each
    said = " ".join(call("device", "rate", rated, "--weight", "0.1").out.split())
    assert "That is conservative." in said
    assert "at most 52.5 % of the time" in said
    assert "no guarantee" not in said


def test_a_file_of_ones_own_is_looked_into_before_it_is_taken_in(
    rated: Path, tmp_path: Path, call: Call
) -> None:
    file = tmp_path / "mine.csv"
    titles = [TABLE.titles[place] for place in (0, 5)]
    file.write_text(
        f'title,rating\n"{titles[0]}",5\n"{titles[1]}",4\nNo Such Film,3\n"{titles[1]}",99\n'
    )
    own = ("device", "rate", rated, "--own", file)
    counts = {"new": 1, "changed": 1, "unknown": 1, "off_scale": 1, "repeated": 0}
    looked = call(*own, "--json").json
    assert {name: looked[name] for name in counts} == counts
    assert (looked["taken"], looked["ratings"]) == (0, 3)
    assert "Nothing was changed" in call(*own).out
    assert "Taken in: 2" in call(*own, "--take").out
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert {entry["title"]: entry["value"] for entry in listed}.items() >= dict(
        zip(titles, (5.0, 4.0), strict=True)
    ).items()
    assert call("device", "rate", rated, "--list", "--take").code == 2
    assert call("device", "rate", rated, "--own", tmp_path / "none.csv").code != 0


def test_changing_or_removing_what_was_released_is_told_honestly(rated: Path, call: Call) -> None:
    fresh = call("device", "rate", rated, TABLE.ids[0], "2", "--json").json
    assert fresh["released"] == []
    pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "afterwards" not in said
    changed = call("device", "rate", rated, TABLE.ids[0], "4")
    words = " ".join(changed.out.split())
    assert "released on 20" in words
    assert "to films.example:9443 (hdp-sum, run abababab)" in words
    assert (
        "cannot be recalled. The new value is not sent to this recommender: a rating "
        "answers it once." in words
    )
    removed = call("device", "rate", rated, TABLE.ids[1], "--remove", "--json").json
    (release,) = removed["released"]
    assert (release["run"], release["method"], release["recommender"]) == (
        "ab" * 16,
        "hdp-sum",
        "films.example:9443",
    )
    assert "stays sent and cannot be recalled." in release["words"]
    assert "new value" not in release["words"]
    said = " ".join(call("device", "ledger", rated).out.split())
    assert (
        "Of these ratings you changed 1 and removed 1 on this device afterwards. What "
        "was sent stays sent" in said
    )
    (run,) = call("device", "ledger", rated, "--json").json["runs"]
    assert (run["ratings"], run["changed_afterwards"], run["removed_afterwards"]) == (3, 1, 1)
    listed = {
        rating["item"]: rating["released"]
        for rating in call("device", "rate", rated, "--list", "--json").json["ratings"]
    }
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[0]]] == [True]
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[2]]] == [False]
    table = call("device", "rate", rated, "--list").out
    assert table.count("changed since") == 1
