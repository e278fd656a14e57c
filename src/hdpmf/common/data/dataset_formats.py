"""Data sets as their owners pack them: archives, MovieLens, Yelp, plain files.

Yelp's own review file has one JSON object per line, inside whatever archive Yelp put it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.ids import MAX_ID_LENGTH, IdIndex
from hdpmf.common.data.items import ItemTable
from hdpmf.common.data.readers import parse_columns
from hdpmf.common.data.scale import RatingScale
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


# What the standard library raises for archives that are truncated, corrupted, encrypted or exotic.
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    KeyError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)

# The largest member we expect is 24 MB; an archive that unpacks to more than this is not one of
# ours.
_MEMBER_LIMIT = 1 << 30


def read_members(info: DatasetInfo, path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read files out of a zip archive or a folder, wherever in it they lie.

    Raises:
        DatasetError: The archive is damaged, a member is missing, or its checksum is wrong.
    """
    try:
        members = _from_folder(path, names) if path.is_dir() else _from_zip(path, names)
    except ARCHIVE_ERRORS as error:
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
                data = stream.read(_MEMBER_LIMIT + 1)
            if len(data) > _MEMBER_LIMIT:
                raise ValueError("member too large")
            found[name] = data
    return found


# The paper keeps users with at least this many ratings.
MIN_RATINGS = 20


def read_plain(info: DatasetInfo, path: Path) -> Ratings:
    """Read a rating file and keep the users with at least 20 ratings."""
    return Ratings.read(path, scale=(1, 5), name=info.title).min_ratings(MIN_RATINGS)


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
    """Read ``ratings.dat`` with the titles of ``movies.dat``."""
    members = read_members(info, path, ("ratings.dat", "movies.dat"))
    table = _items_1m(info, members["movies.dat"])
    return _ratings(info, members["ratings.dat"], "::").describe(table)


def _ratings(info: DatasetInfo, data: bytes, separator: str) -> Ratings:
    found = parse_columns(data, info.title, separator=separator, header=False)
    return Ratings.from_arrays(
        found.user,
        found.item,
        found.rating,
        timestamps=found.timestamp,
        scale=STARS,
        name=info.title,
    )


def _items_100k(info: DatasetInfo, items: bytes, genres: bytes) -> ItemTable:
    try:
        names = [
            line.split("|")[0] for line in genres.decode("latin-1").splitlines() if line.strip()
        ]
        rows = [line.split("|") for line in items.decode("latin-1").splitlines() if line.strip()]
        return ItemTable.build(
            [int(row[0]) for row in rows],
            [row[1] for row in rows],
            [
                [name for name, flag in zip(names, row[5:], strict=True) if flag == "1"]
                for row in rows
            ],
            # Titles carry the year of the film; the date beside them is the one of the release in
            # the US.
            [_year(row[1]) or _year(f"({row[2][-4:]})") for row in rows],
        )
    except (ValueError, IndexError) as error:
        raise DatasetError(
            f"the item list of {info.title} cannot be read; {info.how_to_get()}"
        ) from error


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
        raise DatasetError(
            f"the item list of {info.title} cannot be read; {info.how_to_get()}"
        ) from error


def _year(text: str) -> int | None:
    match = _YEAR.search(text)
    return int(match.group(1)) if match else None


_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d)?", re.ASCII)
_BLOCK = 65_536


class _Review(msgspec.Struct):
    """The four fields we need; the text of the review is skipped without being decoded."""

    user_id: str
    business_id: str
    stars: float
    date: str


def read_yelp(info: DatasetInfo, path: Path) -> Ratings:
    """Read reviews, keep the latest per user and business, then users with at least 20 ratings.

    Seven million reviews are read as a stream: memory holds 20 bytes of each, and every id once.
    """
    if path.suffix == ".parquet":
        return read_plain(info, path)
    try:
        with _open_reviews(path) as stream:
            return _yelp_ratings(info, stream)
    except tarfile.TarError as error:
        raise _damaged(info, path) from error
    except ARCHIVE_ERRORS as error:
        raise _damaged(info, path) from error


def _yelp_ratings(info: DatasetInfo, stream: IO[bytes]) -> Ratings:
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    user_codes, item_codes, values, times = array("i"), array("i"), array("f"), array("q")
    decode = msgspec.json.Decoder(_Review).decode
    numbered = enumerate(stream, start=1)
    while block := list(islice(numbered, _BLOCK)):
        dates = []
        for row, line in block:
            if line.isspace():
                continue
            try:
                review = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise RatingsError(
                    f"line {row:,} is not a review with user_id, business_id, stars and date"
                ) from error
            if not _DATE.fullmatch(review.date):
                raise RatingsError(f"line {row:,}: the date is not written as YYYY-MM-DD HH:MM:SS")
            if not (_fits(review.user_id) and _fits(review.business_id)):
                raise RatingsError(
                    f"line {row:,}: an id is empty or longer than {MAX_ID_LENGTH} characters"
                )
            user_codes.append(users.setdefault(review.user_id, len(users)))
            item_codes.append(items.setdefault(review.business_id, len(items)))
            values.append(review.stars)
            dates.append(review.date)
        times.extend(_seconds(dates, block[0][0]).tolist())
    if not values:
        raise RatingsError("there are no reviews in it")
    latest = _latest(np.array(user_codes), np.array(item_codes), np.array(times), len(items))
    return _table(info, users, items, (user_codes, item_codes, values, times), latest)


def _table(
    info: DatasetInfo,
    users: dict[str, int],
    items: dict[str, int],
    columns: tuple[array[int], array[int], array[float], array[int]],
    rows: NDArray[np.int64],
) -> Ratings:
    user_codes, item_codes, values, times = (np.array(column)[rows] for column in columns)
    kept = np.bincount(user_codes, minlength=len(users))[user_codes] >= MIN_RATINGS
    if not bool(kept.any()):
        raise RatingsError(f"no user has {MIN_RATINGS} ratings or more")
    user_index, user_rows = _index(users, user_codes[kept])
    item_index, item_rows = _index(items, item_codes[kept])
    return Ratings(
        users=user_index,
        items=item_index,
        user_codes=user_rows[user_codes[kept]],
        item_codes=item_rows[item_codes[kept]],
        values=values[kept].astype(np.float32),
        timestamps=times[kept].astype(np.int64),
        scale=RatingScale(1, 5),
        name=info.title,
    )


def _index(names: dict[str, int], used: NDArray[np.int32]) -> tuple[IdIndex, NDArray[np.int32]]:
    """Index the names in use; also return where each numbered name went."""
    in_use = np.zeros(len(names), dtype=bool)
    in_use[used] = True
    index = IdIndex([name for name, keep in zip(names, in_use.tolist(), strict=True) if keep])
    return index, index.find(list(names))


def _latest(
    user_codes: NDArray[np.int32],
    item_codes: NDArray[np.int32],
    times: NDArray[np.int64],
    n_items: int,
) -> NDArray[np.int64]:
    """Find the rows that are a user's last word on a business; of equal times, the later line."""
    pair = user_codes.astype(np.int64) * n_items + item_codes
    order = np.lexsort((times, pair))  # stable, so equal times stay in the order of the file
    last = np.ones(len(order), dtype=bool)
    last[:-1] = pair[order[1:]] != pair[order[:-1]]
    return np.sort(order[last])


def _seconds(dates: list[str], first_row: int) -> NDArray[np.int64]:
    try:
        return np.array(dates, dtype="datetime64[s]").astype(np.int64)
    except ValueError as error:
        raise RatingsError(
            f"a date in line {first_row:,} or shortly after is not in the calendar"
        ) from error


def _fits(text: str) -> bool:
    return 0 < len(text) <= MAX_ID_LENGTH and "\0" not in text


def _damaged(info: DatasetInfo, path: Path) -> DatasetError:
    return DatasetError(
        f"{path.name} cannot be read to its end as {info.title} (truncated, corrupted or something "
        f"else); {info.how_to_get()}"
    )


@contextmanager
def _open_reviews(path: Path) -> Iterator[IO[bytes]]:
    """Open the review file: bare, gzip-compressed, in a tar, in a zip, or in a tar in a zip."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            with zipfile.ZipFile(path) as archive, archive.open(_zip_member(archive)) as member:
                yield _unwrap(member)
        else:
            file.seek(0)
            yield _unwrap(file)


def _unwrap(stream: IO[bytes] | gzip.GzipFile) -> IO[bytes]:
    # BufferedReader.peek shows the first bytes without using them up, so nested streams need no
    # seeking.
    buffered = io.BufferedReader(cast("io.RawIOBase", stream), 1 << 20)
    head = buffered.peek(512)
    if head.startswith(b"\x1f\x8b"):
        return _unwrap(gzip.GzipFile(fileobj=buffered))
    if head[257:262] == b"ustar":
        archive = tarfile.open(fileobj=buffered, mode="r|")  # noqa: SIM115 - lives as long as its member
        for entry in archive:
            member = archive.extractfile(entry) if _is_review(entry.name) else None
            if member is not None:
                return _unwrap(member)
        raise KeyError("no review file in the tar archive")
    return buffered


def _zip_member(archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX")]
    for wanted in (_is_review, _is_packed):
        for name in names:
            if wanted(name):
                return name
    raise KeyError("no review file in the zip archive")


def _is_review(name: str) -> bool:
    return name.endswith(("review.json", "review.json.gz"))


def _is_packed(name: str) -> bool:
    return name.endswith((".tar", ".tgz", ".tar.gz"))
