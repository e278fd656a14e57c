from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import fetch_dataset, load_dataset
from hdpmf.errors import DatasetError, HdpmfError

MEMBER = "yelp_academic_dataset_review.json"


def review(
    user: str, business: str, stars: float, date: str = "2018-07-07 22:09:11"
) -> dict[str, object]:
    return {
        "review_id": "r",
        "user_id": user,
        "business_id": business,
        "stars": stars,
        "useful": 0,
        "text": "Tasty: ünïcode \n",
        "date": date,
    }


def lines(*reviews: dict[str, object]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in reviews)


REVIEWS = lines(
    *(review("ann", f"b{number:02}", 1 + number % 5) for number in range(20)),
    *(review("bob", f"b{number:02}", 3) for number in range(19)),  # one too few
    review("ann", "b00", 5, "2019-01-01 00:00:00"),  # a later word on b00
    review("ann", "b01", 5, "2001-01-01"),  # an earlier one on b01, as older releases write dates
    review("ann", "b02", 5),  # the same time as before, but later in the file
    review("bob", "b00", 1),
)


def tarred(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in (("Dataset_User_Agreement.pdf", b"%PDF"), (name, data)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._x.tar", b"")
        archive.writestr(name, data)
    return buffer.getvalue()


WRAPPINGS = {
    "bare": REVIEWS,
    "gzip": gzip.compress(REVIEWS),
    "tar": tarred(MEMBER, REVIEWS),
    "tgz": gzip.compress(tarred(MEMBER, REVIEWS)),
    "zip": zipped(MEMBER, REVIEWS),
    "tar in zip": zipped("Yelp JSON/yelp_dataset.tar", tarred(MEMBER, REVIEWS)),
    "gz in tar": tarred(MEMBER + ".gz", gzip.compress(REVIEWS)),
    "blank lines": REVIEWS.replace(b"\n", b"\n\n"),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_reviews_in_every_wrapping(tmp_path: Path, wrapping: str) -> None:
    path = tmp_path / "yelp"
    path.write_bytes(WRAPPINGS[wrapping])
    ratings = load_dataset("yelp", path=path)
    assert (ratings.n_users, ratings.n_items, len(ratings), ratings.name) == (1, 20, 20, "Yelp")
    assert set(ratings.user_ids.tolist()) == {"ann"}
    stars = dict(zip(ratings.item_ids.tolist(), ratings.values.tolist(), strict=True))
    assert stars == {f"b{number:02}": 1 + number % 5 for number in range(20)} | {"b00": 5, "b02": 5}
    assert ratings.timestamps is not None
    assert ratings.timestamps.max() == 1546300800


def test_it_is_kept_small_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    path = tmp_path / "download.json"
    path.write_bytes(REVIEWS)
    kept = fetch_dataset("yelp", from_file=path)
    assert kept == tmp_path / "cache" / "yelp.parquet"
    first, again = load_dataset("yelp", path=path), load_dataset("yelp")
    assert again.users == first.users
    assert again.items == first.items
    assert again.values.tolist() == first.values.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no reviews"),
        (lines(review("a", "b", 3)), "no user has 20"),
        (b"{}\n", "line 1 is not a review"),
        (REVIEWS + b'{"user_id": 5}\n', "line 44 is not a review"),
        (REVIEWS[:-9], "line 43 is not a review"),
        (lines(review("", "b", 3)), "line 1: an id is empty"),
        (lines(review("a", "b\0", 3)), "line 1: an id"),
        (lines(review("a", "b", 3, "yesterday")), "line 1: the date"),
        (lines(review("a", "b", 3, "2018-13-41")), "calendar"),
        (b"[" * 100_000, "line 1 is not a review"),
        (b'{"user_id": "\xff"}', "line 1 is not a review"),
        (
            REVIEWS.replace(b'"stars": 3', b'"stars": 9').replace(b'"stars": 5', b'"stars": 7'),
            "off the scale",
        ),
        (gzip.compress(REVIEWS)[:-20], "cannot be read to its end"),
        (tarred(MEMBER, REVIEWS)[:4000], "cannot be read to its end|is not a review"),
        (tarred("other.json", REVIEWS), "cannot be read"),
        (zipped("other.json", REVIEWS), "cannot be read"),
        (zipped(MEMBER, REVIEWS)[:-30], "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / MEMBER
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset("yelp", path=path)
    assert "https://www.yelp.com/dataset" in str(caught.value)


@pytest.mark.slow
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(sorted(WRAPPINGS)),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=5),
)
def test_fuzz_wrappings(
    tmp_path: Path, wrapping: str, cut: float, changes: list[tuple[float, int]]
) -> None:
    data = bytearray(WRAPPINGS[wrapping])
    for place, byte in changes:
        data[int(place * len(data))] = byte
    path = tmp_path / "any"
    path.write_bytes(data if changes else data[: int(cut * len(data))])
    with suppress(HdpmfError):
        load_dataset("yelp", path=path)


@pytest.mark.slow
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=100)
    | st.text(max_size=60).map(lambda text: lines(review(text, text, 3, text)))
)
def test_fuzz_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(REVIEWS + data)
    with suppress(HdpmfError):
        load_dataset("yelp", path=path)
