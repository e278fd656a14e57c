"""MovieLens 100K and 1M as GroupLens packs them."""

from __future__ import annotations

import re
from pathlib import Path

from hdpmf.errors import DatasetError
from hdpmf.ratings.datasets.info import DatasetInfo
from hdpmf.ratings.datasets.source import read_members
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.pairs import share_indexes
from hdpmf.ratings.readers import parse_columns
from hdpmf.ratings.scale import RatingScale
from hdpmf.ratings.table import Ratings

STARS = RatingScale(1, 5, 1)
_YEAR = re.compile(r"\((\d{4})(?:-\d{4})?\)\s*$")


def read_100k(info: DatasetInfo, path: Path) -> Ratings:
    """Read ``u.data`` with the titles of ``u.item``."""
    members = read_members(info, path, ("u.data", "u.item", "u.genre"))
    table = _items_100k(info, members["u.item"], members["u.genre"])
    return _ratings(info, members["u.data"], "\t").describe(table)


def read_100k_split(info: DatasetInfo, path: Path) -> tuple[Ratings, Ratings]:
    """Read ``ua.base`` and ``ua.test`` (10 test ratings per user) into one id space."""
    members = read_members(info, path, ("ua.base", "ua.test", "u.item", "u.genre"))
    table = _items_100k(info, members["u.item"], members["u.genre"])
    train, test = (_ratings(info, members[name], "\t") for name in ("ua.base", "ua.test"))
    return share_indexes(train, test, table)


def read_1m(info: DatasetInfo, path: Path) -> Ratings:
    """Read ``ratings.dat`` with the titles of ``movies.dat``, which also lists movies nobody rated."""
    members = read_members(info, path, ("ratings.dat", "movies.dat"))
    table = _items_1m(info, members["movies.dat"])
    return _ratings(info, members["ratings.dat"], "::").describe(table)


def _ratings(info: DatasetInfo, data: bytes, separator: str) -> Ratings:
    found = parse_columns(data, info.title, separator=separator, header=False)
    return Ratings.from_arrays(
        found.user, found.item, found.rating, timestamps=found.timestamp, scale=STARS, name=info.title
    )


def _items_100k(info: DatasetInfo, items: bytes, genres: bytes) -> ItemTable:
    try:
        names = [line.split("|")[0] for line in genres.decode("latin-1").splitlines() if line.strip()]
        rows = [line.split("|") for line in items.decode("latin-1").splitlines() if line.strip()]
        return ItemTable.build(
            [int(row[0]) for row in rows],
            [row[1] for row in rows],
            [[name for name, flag in zip(names, row[5:], strict=True) if flag == "1"] for row in rows],
            # Titles carry the year of the film; the date beside them is the one of the release in the US.
            [_year(row[1]) or _year(f"({row[2][-4:]})") for row in rows],
        )
    except (ValueError, IndexError) as error:
        raise DatasetError(f"the item list of {info.title} cannot be read; {info.how_to_get()}") from error


def _items_1m(info: DatasetInfo, movies: bytes) -> ItemTable:
    try:
        rows = [line.split("::") for line in movies.decode("latin-1").splitlines() if line.strip()]
        return ItemTable.build(
            [int(row[0]) for row in rows],
            [row[1] for row in rows],
            [row[2].split("|") for row in rows],
            [_year(row[1]) for row in rows],
        )
    except (ValueError, IndexError) as error:
        raise DatasetError(f"the item list of {info.title} cannot be read; {info.how_to_get()}") from error


def _year(text: str) -> int | None:
    match = _YEAR.search(text)
    return int(match.group(1)) if match else None
