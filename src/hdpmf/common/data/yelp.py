"""Yelp's own review file: one JSON object per line, inside whatever archive Yelp put it."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.dataset_formats import ARCHIVE_ERRORS, MIN_RATINGS, DatasetInfo, read_plain
from hdpmf.common.data.ids import MAX_ID_LENGTH, IdIndex
from hdpmf.common.data.scale import RatingScale
from hdpmf.common.data.table import Ratings
from hdpmf.errors import DatasetError, RatingsError

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
            return _ratings(info, stream)
    except tarfile.TarError as error:
        raise _damaged(info, path) from error
    except ARCHIVE_ERRORS as error:
        raise _damaged(info, path) from error


def _ratings(info: DatasetInfo, stream: IO[bytes]) -> Ratings:
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
