"""What a device's owner sees and wishes: items of a file, search, a file of ratings, the dial,
recommenders.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.methods.registry import guess_at
from hdpmf.common.protocol.catalogue import plain
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.titles import TitleSearch, upright
from hdpmf.errors import ConfigError, HdpmfError, RatingsError
from hdpmf.private.device.choices.privacy_level import (
    MISS_ALONE,
    MISSES,
    group_of,
    set_privacy_weight,
    set_sensitive,
)
from hdpmf.private.device.disclosures.bounds import privacy_bounds
from hdpmf.private.device.own_items import (
    load_catalogue,
    preview_file,
    take_file,
)
from hdpmf.private.device.store.device_store import DeviceStore

from .reporting_world import SERVERS, TABLE

FILMS = (
    "item,title,genres,year\n10,The Thing,Horror,1982\n20,Things to "
    "Come,Drama,1936\n30,Amélie,Comedy|Drama,2001\n"
)


@pytest.fixture
def films(tmp_path: Path) -> Path:
    place = tmp_path / "films.csv"
    place.write_text(FILMS)
    return place


@pytest.fixture
def plain_store(tmp_path: Path) -> DeviceStore:
    return DeviceStore.create(tmp_path / "me.sqlite")


@given(
    st.lists(st.text("abé c", min_size=1, max_size=8), min_size=1, max_size=30),
    st.text("abec ", max_size=5),
)
def test_search_finds_exactly_what_has_all_words(titles, wanted):
    from hdpmf.common.protocol import CatalogueTable

    ids = tuple(f"{place:04d}" for place in range(len(titles)))
    table = CatalogueTable(
        ids=ids,
        integer_ids=False,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
        titles=tuple(titles),
    )
    search = TitleSearch(table)
    words = plain(wanted).split()
    shown = [plain(title or item) for title, item in zip(titles, ids, strict=True)]
    expected = {
        place for place, title in enumerate(shown) if words and all(word in title for word in words)
    }
    if expected or all(len(word) < 4 for word in words):  # otherwise words with typos count
        assert set(search.find(wanted, 100)) == expected


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Godfather, The (1972)", "The Godfather (1972)"),
        ("Enfer, L' (1994)", "L'Enfer (1994)"),
        (
            "City of Lost Children, The (Cité des enfants perdus, La) (1995)",
            "The City of Lost Children (La Cité des enfants perdus) (1995)",
        ),
        ("Good, the Bad and the Ugly", "Good, the Bad and the Ugly"),
        ("Cook the Thief, His Wife", "Cook the Thief, His Wife"),
        ("The Thing", "The Thing"),
        ("", ""),
    ],
)
def test_titles_are_shown_upright(title: str, shown: str):
    assert upright(title) == shown == upright(shown)


def test_a_file_by_ids_and_by_titles(plain_store: DeviceStore, films: Path):
    load_catalogue(plain_store, films)
    plain_store.rate("10", 1)
    found = preview_file(plain_store, b"movieId;rating\n10;5\n20;3\n20;4\n99;1\n30;7\n30;x\n")
    assert dict(found.ready) == {"10": 5.0, "20": 4.0}
    assert (found.new, found.changed, found.unknown, found.off_scale, found.repeated) == (
        1,
        1,
        1,
        2,
        1,
    )
    assert plain_store.n_ratings == 1
    assert take_file(plain_store, found) == 2
    by_title = preview_file(
        plain_store, "\ufeffTitle,Year,Your Rating\nThe Thing,1982,2\nThe Thing,2011,3\n".encode()
    )
    assert dict(by_title.ready) == {"10": 2.0}
    assert by_title.unknown == 1  # of another year
    for bad in (b"", b"a,b\n1,2\n", b"rating\n5\n"):
        with pytest.raises(RatingsError):
            preview_file(plain_store, bad)


@given(st.binary(max_size=200))
def test_no_file_breaks_it(data):
    store = DeviceStore.create(":memory:")
    store.pin_catalogue(TABLE)
    try:
        found = preview_file(store, b"item,rating\n" + data)
    except HdpmfError:
        return
    assert all(1 <= value <= 5 for _, value in found.ready)


def test_the_dial_is_the_papers_groups_and_anything_between(plain_store: DeviceStore, films: Path):
    assert [group_of(weight) for weight in (0.05, 0.1, 0.49, 0.5, 0.99, 1.0)] == [
        "conservative", "conservative", "conservative", "moderate", "moderate", "liberal",
    ]  # fmt: skip
    assert guess_at(0.5) == pytest.approx(0.6225, abs=1e-4)
    load_catalogue(plain_store, films)
    for item in ("10", "20", "30"):
        plain_store.rate(item, 5)
    whole = privacy_bounds(plain_store)
    assert (whole.weight, whole.ratings, whole.person.epsilon) == (1.0, 3, pytest.approx(3.0, 1e-3))
    half = privacy_bounds(plain_store, 0.5)
    assert half.person.epsilon == pytest.approx(1.5, 1e-2)
    assert half.rating.guess == guess_at(0.5) < whole.rating.guess
    set_privacy_weight(plain_store, 0.5)
    assert privacy_bounds(plain_store) == half
    set_sensitive(plain_store, "10")
    assert privacy_bounds(plain_store).person.epsilon == pytest.approx(0.5 * (1 + 1 + 0.1), 1e-2)
    set_sensitive(plain_store, "20")
    set_sensitive(plain_store, "30")
    marked = privacy_bounds(plain_store)
    assert marked.person.epsilon == pytest.approx(0.5 * 0.3, 1e-2)
    assert marked.rating == half.rating  # of something that is rated tomorrow
    assert half.proved


def test_what_accuracy_costs_is_what_was_measured():
    text = (Path(__file__).parents[3] / "docs/results/csv/figure_epsilon.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    chosen = [row for row in rows if row["dataset"] == "ml-100k" and row["factors"] == "10"]
    sums = {float(row["x"]): float(row["mae_mean"]) for row in chosen if row["method"] == "hdp-sum"}
    assert {epsilon: round(sums[epsilon], 3) for epsilon in MISSES} == MISSES
    alone = {round(float(row["mae_mean"]), 3) for row in chosen if row["method"] == "user-mean"}
    assert alone == {MISS_ALONE}


def test_an_invitation_is_a_file_or_a_link():
    made = Invitation(address="https://films.example:9443", servers=SERVERS, authority="PEM")
    assert Invitation.read(made.to_json()) == made
    assert Invitation.read(f"  {made.to_link()}\n".encode()) == made
    assert made.to_link().startswith("https://films.example:9443#")
    changed = Invitation(address="https://films.example:9444", servers=SERVERS, authority="PEM")
    assert changed.digest != made.digest
    for bad in (
        b"",
        b"{}",
        b"\xff",
        made.to_link()[:-9].encode(),
        b"https://x#hdpmf-join=AAAA",
        b"x" * 100_000,
    ):
        with pytest.raises(ConfigError):
            Invitation.read(bad)
    with pytest.raises(ConfigError):
        Invitation(address="http://films.example", servers=SERVERS)


@given(st.binary(max_size=300))
def test_no_invitation_breaks_it(data):
    for text in (data, b"https://x.example#hdpmf-join=" + data):
        with pytest.raises(ConfigError):
            Invitation.read(text)
