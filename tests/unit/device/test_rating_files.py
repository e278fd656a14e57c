"""Exports of services: found by their columns, with ratings converted to the scale here."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import RatingScale
from hdpmf.errors import RatingsError
from hdpmf.private.device.own_items import preview_file
from hdpmf.private.device.rating_files import SERVICES, converted, read_rating_file
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import table

TITLES = ("Godfather, The (1972)", "Alien (1979)", "Amélie (2001)", "Hobbit, The (1937)")

LETTERBOXD = (
    "Date,Name,Year,Letterboxd URI,Rating\n"
    "2024-01-01,The Godfather,1972,https://boxd.it/a,4.5\n"
    "2024-01-02,Alien,1979,https://boxd.it/b,0.5\n"
    "2024-01-03,Unheard Of,2020,https://boxd.it/c,3\n"
)
IMDB = (
    "Const,Your Rating,Date Rated,Title,Original Title,URL,Title Type,IMDb Rating,Runtime (mins),"
    "Year,Genres,Num Votes,Release Date,Directors\n"
    'tt0068646,9,2024-01-01,The Godfather,The Godfather,https://x,Movie,9.2,175,1972,"Crime, War",'
    "1,1972-03-14,Francis Ford Coppola\n"
    "tt0078748,1,2024-01-01,Alien,Alien,https://x,Movie,8.5,117,1979,Horror,1,1979-05-25,X\n"
)
GOODREADS = (
    "Book Id,Title,Author,ISBN,My Rating,Average Rating,Year Published,Original Publication Year\n"
    '5907,"The Hobbit (The Lord of the Rings, #0)",J.R.R. Tolkien,"=""0618260307""",4,4.28,2002,'
    "1937\n"
    '1,"Alien",Somebody,"=""1""",0,4.0,1979,1979\n'
)
TRAKT = json.dumps(
    [
        {
            "rated_at": "2024-01-01T00:00:00.000Z",
            "rating": 8,
            "type": "movie",
            "movie": {"title": "The Godfather", "year": 1972, "ids": {"trakt": 1}},
        },
        {"rating": 7, "type": "movie", "movie": {"title": "Amélie", "year": None}},
        {"rating": 3, "type": "episode", "show": {"title": "Alien", "year": 1979}},
        "no entry",
    ]
)


def store_on(scale: tuple[float, float, float] = (1.0, 5.0, 1.0)) -> DeviceStore:
    store = DeviceStore.create(":memory:")
    low, high, step = scale
    changes = {"scale_low": low, "scale_high": high, "scale_step": step}
    store.pin_catalogue(table(len(TITLES), titles=TITLES, **changes))
    return store


@pytest.mark.parametrize(
    ("data", "service", "ready", "unknown"),
    [
        (LETTERBOXD, "Letterboxd", {"item 00": 5.0, "item 01": 1.0}, 1),
        (IMDB, "IMDb", {"item 00": 5.0, "item 01": 1.0}, 0),
        (GOODREADS, "Goodreads", {"item 03": 4.0}, 0),
        (TRAKT, "Trakt", {"item 00": 4.0, "item 02": 4.0}, 0),
    ],
)
def test_an_export_is_known_and_converted(data: str, service: str, ready: object, unknown: int):
    found = preview_file(store_on(), data.encode())
    assert found.service is not None
    assert found.service.name == service
    assert dict(found.ready) == ready
    assert (found.unknown, found.off_scale) == (unknown, 0)


def test_half_stars_and_ten_stars_stay_what_they_are():
    halves = preview_file(store_on((0.5, 5.0, 0.5)), LETTERBOXD.encode())
    assert dict(halves.ready) == {"item 00": 4.5, "item 01": 0.5}
    tens = preview_file(store_on((1.0, 10.0, 1.0)), IMDB.encode())
    assert dict(tens.ready) == {"item 00": 9.0, "item 01": 1.0}


def test_a_table_of_nobody_is_taken_as_it_is():
    found = preview_file(store_on(), b"title,rating\nThe Godfather,4\nAlien,8\n")
    assert found.service is None
    assert dict(found.ready) == {"item 00": 4.0}
    assert found.off_scale == 1  # 8 of what?


@pytest.mark.parametrize("data", [b"[", b'[{"movie": 1}', b"title,opinion\nx,1\n"])
def test_what_is_no_file_of_ratings_is_refused(data: bytes):
    with pytest.raises(RatingsError):
        list(read_rating_file(data).rows)


scales = st.sampled_from(
    (
        RatingScale(1.0, 5.0, 1.0),
        RatingScale(0.5, 5.0, 0.5),
        RatingScale(1.0, 10.0, 1.0),
        RatingScale(0.0, 100.0, None),
    )
)


@given(st.sampled_from(SERVICES), scales, st.data())
def test_conversion_keeps_the_order_and_stays_on_the_scale(service, scale, data):
    known = service.scale
    steps = round((known.high - known.low) / known.step)
    left, right = sorted(
        known.low + known.step * data.draw(st.integers(0, steps)) for _ in range(2)
    )
    low, high = converted(left, service, scale), converted(right, service, scale)
    assert scale.low <= low <= high <= scale.high
    assert converted(known.high, service, scale) == scale.high
    if scale.step:
        assert ((low - scale.low) / scale.step).is_integer()
