"""Data sets as their owners pack them: MovieLens' archives, Yelp's JSON, and rating files."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hdpmf.common.data.checks import RatingScale
from hdpmf.common.data.columns import Layout
from hdpmf.common.data.items import YEAR, ItemTable
from hdpmf.common.data.readers import parse_columns
from hdpmf.common.data.splits import share_indexes
from hdpmf.common.data.table import Ratings
from hdpmf.errors import DatasetError, RatingsError


class Counts(NamedTuple):
    """The size of a data set after loading."""

    users: int
    items: int
    ratings: int

    def __str__(self) -> str:
        return f"{self.users:,} users, {self.items:,} items, {self.ratings:,} ratings"


@dataclass(frozen=True)
class DatasetInfo:
    """One data set of the registry.

    Attributes:
        name: What `load_dataset` calls it.
        title: Its display name, for tables and figures.
        description: One line about it.
        page: Where its owner describes it, or None for what we make ourselves.
        url: Where its owner lets anyone download it, or None.
        files: File or folder names to look for, best first.
        cache_name: The file it is kept in, in the cache.
        counts: What it must have after loading, or None where releases differ.
        checksums: SHA-256 of members after unpacking, by name.
        split: Whether it comes with a ready-made training and test set.
    """

    name: str
    title: str
    description: str
    page: str | None = None
    url: str | None = None
    files: tuple[str, ...] = ()
    cache_name: str = ""
    counts: Counts | None = None
    checksums: dict[str, str] = field(default_factory=dict)
    read: Callable[[DatasetInfo, Path], Ratings] | None = field(default=None, repr=False)
    read_split: Callable[[DatasetInfo, Path], tuple[Ratings, Ratings]] | None = field(
        default=None, repr=False
    )

    @property
    def split(self) -> bool:
        """True if it comes with a predefined training and test set."""
        return self.read_split is not None

    def how_to_get(self) -> str:
        """Say in one line how to get it."""
        by_hand = f"hdpmf data get {self.name} --from FILE"
        if self.url is None:
            return f"get it from {self.page} and run: {by_hand}"
        return f"run: hdpmf data get {self.name} (or get it from {self.page} and run: {by_hand})"

    def check_counts(self, ratings: Ratings, origin: str) -> None:
        """Compare with what the data set is known to have."""
        found = Counts(ratings.n_users, ratings.n_items, len(ratings))
        if self.counts is not None and found != self.counts:
            raise DatasetError(
                f"{origin} is not {self.title} as we know it: it has {found}; expected "
                f"{self.counts}. To use other ratings, read them with Ratings.read; for "
                f"{self.title} {self.how_to_get()}"
            )


# The largest member we expect is 24 MB; an archive that unpacks to more than this is not one of
# ours.
_MEMBER_LIMIT = 1 << 30


def _members(info: DatasetInfo, path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read files out of a zip archive or a folder, wherever in it they lie.

    Raises:
        DatasetError: The archive is damaged, a member is missing, or its checksum is wrong.
    """
    try:
        members = _from_folder(path, names) if path.is_dir() else _from_zip(path, names)
    except Exception as error:  # zipfile has a dozen kinds for archives that are damaged or exotic
        raise DatasetError(
            f"{path.name} is not a usable archive of {info.title} (truncated, corrupted or "
            f"something else); {info.how_to_get()}"
        ) from error
    for name in names:
        if name not in members:
            raise DatasetError(
                f"{path.name} has no member '{name}', so it is not {info.title}; "
                f"{info.how_to_get()}"
            )
        expected = info.checksums.get(name)
        if expected is not None and hashlib.sha256(members[name]).hexdigest() != expected:
            raise DatasetError(
                f"'{name}' in {path.name} is not the one of {info.title} (its SHA-256 differs); "
                f"{info.how_to_get()}"
            )
    return members


def _from_folder(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names if (path / name).is_file()}


def _from_zip(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename).name
            # Archives packed on a Mac carry shadow files of the same name.
            if name not in names or name in found or member.filename.startswith("__MACOSX"):
                continue
            with archive.open(member) as stream:
                found[name] = stream.read(_MEMBER_LIMIT + 1)
            if len(found[name]) > _MEMBER_LIMIT:
                raise ValueError("member too large")
    return found


# The paper keeps users with at least this many ratings.
_MIN_RATINGS = 20


def read_plain(info: DatasetInfo, path: Path) -> Ratings:
    """Read a rating file and keep the users with at least 20 ratings."""
    return Ratings.read(path, scale=(1, 5), name=info.title).min_ratings(_MIN_RATINGS)


_YELP = {"user_id": "user", "business_id": "item", "stars": "rating", "date": "timestamp"}


def read_yelp(info: DatasetInfo, path: Path) -> Ratings:
    """Read Yelp's reviews, a JSON object in each line: the latest of each user and business.

    Users with at least 20 of them are kept.
    """
    if path.suffix == ".parquet":
        return read_plain(info, path)
    import polars as pl

    types = dict.fromkeys(_YELP, pl.String) | {"stars": pl.Float64}
    try:
        frame = pl.scan_ndjson(path, schema=types).collect(engine="streaming")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise RatingsError(
            "its lines are no JSON objects; unpack Yelp's archive and give the file of reviews"
        ) from error
    ratings = Ratings.of(frame.rename(_YELP), scale=(1, 5), duplicates="last", name=info.title)
    return ratings.min_ratings(_MIN_RATINGS)


_STARS = RatingScale(1, 5, 1)


def read_100k(info: DatasetInfo, path: Path) -> Ratings:
    """Read ``u.data`` with the titles of ``u.item``."""
    members = _members(info, path, ("u.data", "u.item", "u.genre"))
    return _ratings(info, members["u.data"]).describe(_items_100k(info, members))


def read_100k_split(info: DatasetInfo, path: Path) -> tuple[Ratings, Ratings]:
    """Read ``ua.base`` and ``ua.test`` (10 test ratings per user) into one id space."""
    members = _members(info, path, ("ua.base", "ua.test", "u.item", "u.genre"))
    train, test = (_ratings(info, members[name]) for name in ("ua.base", "ua.test"))
    return share_indexes(train, test, _items_100k(info, members))


def read_1m(info: DatasetInfo, path: Path) -> Ratings:
    """Read ``ratings.dat`` with the titles of ``movies.dat``."""
    members = _members(info, path, ("ratings.dat", "movies.dat"))
    rows = [line.split("::") for line in _lines(members["movies.dat"])]
    items = _items(
        info, lambda: [(row[0], row[1], row[2].split("|"), _year(row[1])) for row in rows]
    )
    return _ratings(info, members["ratings.dat"]).describe(items)


def _ratings(info: DatasetInfo, data: bytes) -> Ratings:
    found = parse_columns(data, info.title, Layout())
    return Ratings.from_arrays(
        found.frame["user"],
        found.frame["item"],
        found.get("rating"),
        timestamps=found.get("timestamp"),
        scale=_STARS,
        name=info.title,
    )


def _items_100k(info: DatasetInfo, members: dict[str, bytes]) -> ItemTable:
    names = [line.split("|")[0] for line in _lines(members["u.genre"])]
    rows = [line.split("|") for line in _lines(members["u.item"])]
    return _items(
        info,
        lambda: [
            (
                row[0],
                row[1],
                [name for name, flag in zip(names, row[5:], strict=True) if flag == "1"],
                # Titles carry the year of the film; the date beside them is the one of the release
                # in the US.
                _year(row[1]) or _year(f"({row[2][-4:]})"),
            )
            for row in rows
        ],
    )


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("latin-1").splitlines() if line.strip()]


def _items(
    info: DatasetInfo, rows: Callable[[], Sequence[tuple[str, str, list[str], int | None]]]
) -> ItemTable:
    """Make a table of ids, titles, genres and years."""
    try:
        ids, titles, genres, years = zip(*rows(), strict=True)
        return ItemTable.build([int(one) for one in ids], titles, genres, years)
    except (ValueError, IndexError) as error:
        raise DatasetError(
            f"the item list of {info.title} cannot be read; {info.how_to_get()}"
        ) from error


def _year(text: str) -> int | None:
    match = YEAR.search(text)
    return int(match.group(1)) if match else None
