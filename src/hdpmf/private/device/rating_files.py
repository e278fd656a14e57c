"""Files of ratings: tables of anybody's, and exports of Letterboxd, IMDb, Trakt and Goodreads.

A service is known by its columns. Its stars become those of the owner's scale in proportion, as
people read them: 8 of 10 are 4 of 5, half a star more rounds up, and nothing is below the lowest.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.errors import RatingsError

MOST_BYTES = 16 << 20
"""Of a file."""

_ITEM = ("item", "itemid", "movieid", "id", "const", "isbn")
_TITLE = ("title", "name")
_YEAR = ("originalpublicationyear", "year", "yearpublished")
_RATING = ("rating", "yourrating", "myrating", "stars", "value", "score")

_SERIES = re.compile(r"\s*\([^()]*#[^()]*\)$")


@dataclass(frozen=True, slots=True)
class Service:
    """A service that people take their ratings from.

    Attributes:
        name: As people know it.
        columns: Columns that only its files have, in their plainest form.
        unrated: The value of what was not rated, where such rows are in the file.
    """

    name: str
    scale: RatingScale
    columns: tuple[str, ...]
    unrated: float | None = None


SERVICES = (
    Service("Letterboxd", RatingScale(0.5, 5.0, 0.5), ("letterboxduri", "rating")),
    Service("IMDb", RatingScale(1.0, 10.0, 1.0), ("const", "yourrating")),
    Service("Goodreads", RatingScale(1.0, 5.0, 1.0), ("bookid", "myrating"), unrated=0.0),
    Service("Trakt", RatingScale(1.0, 10.0, 1.0), ("ratedat", "rating")),
)
"""Known services. Trakt's exports are JSON, or CSV with the same names."""


class RatingRow(NamedTuple):
    """A row of a file, as it is written there. PRIVATE."""

    number: int
    item: str
    title: str
    year: str
    rating: str


class RatingFile(NamedTuple):
    """The rows of a file, and the service that it is of, if it is known. PRIVATE."""

    service: Service | None
    rows: Iterator[RatingRow]


def read_rating_file(data: bytes) -> RatingFile:
    """Read a CSV, TSV or JSON file of ratings.

    Raises:
        RatingsError: It is no such file; of a row that is broken, when it is reached.
    """
    if len(data) > MOST_BYTES:
        raise RatingsError(
            f"the file has more than {MOST_BYTES >> 20} MB; take it in from the command line"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RatingsError("the file is not text in UTF-8; save it as CSV (UTF-8)") from None
    if text.lstrip()[:1] == "[":
        return RatingFile(SERVICES[-1], _trakt_rows(text))
    first = text.partition("\n")[0]
    delimiter = max(",\t;", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [re.sub(r"[^a-z]", "", name.lower()) for name in next(reader, [])]
    except csv.Error as error:
        raise RatingsError(f"the file is no CSV: {error}") from None
    service = next((each for each in SERVICES if set(each.columns) <= set(names)), None)
    return RatingFile(service, _table_rows(reader, names, service))


def converted(value: float, service: Service | None, scale: RatingScale) -> float:
    """Return a rating on another scale than its service's; as it is where no service is known."""
    known = None if service is None else service.scale
    if known is None or not known.low <= value <= known.high:
        return value
    share = value / known.high * scale.high
    if scale.step:
        share = scale.low + scale.step * math.floor((share - scale.low) / scale.step + 0.5)
    return min(max(share, scale.low), scale.high)


def _table_rows(
    reader: Iterator[list[str]], names: Sequence[str], service: Service | None
) -> Iterator[RatingRow]:
    columns = [_column(names, wanted) for wanted in (_ITEM, _TITLE, _YEAR, _RATING)]
    item, title, year, rating = columns
    if rating is None or (item is None and title is None):
        raise RatingsError(
            "the first line must name the columns: rating, and item or title (and year, "
            "where there is one)"
        )
    try:
        for number, row in enumerate(reader, start=2):
            if not row:
                continue
            told = RatingRow(
                number, _cell(row, item), _cell(row, title), _cell(row, year), _cell(row, rating)
            )
            if service is not None:
                if service.unrated is not None and number_of(told.rating) == service.unrated:
                    continue
                told = told._replace(title=_SERIES.sub("", told.title))
            yield told
    except csv.Error as error:
        raise RatingsError(f"the file is no CSV: {error}") from None


def _trakt_rows(text: str) -> Iterator[RatingRow]:
    """Rows of an export of Trakt: films and whole series, not their seasons and episodes."""
    try:
        entries = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise RatingsError("the file is no JSON that can be read") from None
    for number, entry in enumerate(entries, start=1):
        known: Any = entry if isinstance(entry, dict) else {}
        about = known.get("movie") or known.get("show")
        if not isinstance(about, dict) or known.get("type") in ("season", "episode"):
            continue
        year = about.get("year")
        yield RatingRow(
            number,
            "",
            str(about.get("title") or ""),
            "" if year is None else str(year),
            str(known.get("rating", "")),
        )


def number_of(text: str) -> float | None:
    """Return a rating as a number, also with a comma; None if it is none."""
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _column(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _cell(row: Sequence[str], column: int | None) -> str:
    return row[column].strip() if column is not None and column < len(row) else ""
