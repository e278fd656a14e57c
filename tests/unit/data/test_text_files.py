"""Files of text as people have them: what is read, and what is an error of ours."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, read_split
from hdpmf.errors import HdpmfError, RatingsError

Reader = Callable[..., Ratings]
fuzz = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def reader(content: str | bytes, **options: object) -> Ratings:
        path = tmp_path / "ratings.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return Ratings.read(path, **options)

    return reader


@pytest.mark.parametrize(
    "content",
    [
        "1,10,5,99\n2,10,1,98",
        "1;10;5;99\r\n2;10;1;98\r\n",
        "user,item,rating,timestamp\n1,10,5,99\n2,10,1,98\n",
        "\ufeffuserId,movieId,rating,timestamp\n1,10,5.0,99\n2,10,1.0,98\n",
        "rating,other,item_id,user_id,timestamp\n5,x,10,1,99\n1,y,10,2,98\n",
        '"user","item","rating","timestamp"\n"1","10",5,99\n"2","10",1,98\n',
        "user,item,rating,timestamp\n1,10,5,1970-01-01T00:01:39Z\n2,10,1,1970-01-01 00:01:38\n",
        " 1 , 10 , 5 , 99 \n 2 , 10 , 1 , 98 \n",
    ],
)
@pytest.mark.filterwarnings("ignore:.*not used. other")
def test_every_layout_reads_the_same(read: Reader, content: str) -> None:
    for data in (content.encode(), gzip.compress(content.encode())):
        ratings = read(data)
        assert ratings.user_ids.tolist() == [1, 2]
        assert ratings.item_ids.tolist() == [10, 10]
        assert ratings.values.tolist() == [5, 1]
        assert ratings.timestamps is not None
        assert ratings.timestamps.tolist() == [99, 98]
        assert ratings.name == "ratings.csv"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("user,item,rating\n", "no ratings"),
        ("1,2,3\n1,3\n", "'rating', row 2: missing"),
        ("user,item,rating\n1,2,3\n1,3,four\n", "'rating', row 2: not a number"),
        ("1,2,3,4\n1,3,4,yesterday\n", "'timestamp', row 2: no time"),
        ("1\t2\t3\n1\t3\t4\t5\t6\n", "row 2 has more than 3 fields"),
        ("1,2,3\n1,3,4,5,6\n", "3 fields"),
        ('user,item,rating\n1,2,"3\n', "a quote is not closed"),
        ("1,2,3,4,5\n", "3 to 4 columns"),
        ("just text\n", "no column 'user'"),
        ("user,item,rating,rating\n1,1,1,1\n", "same name|more than one"),
        (b"1,2,3\n1,\xff\xfe,3\n", "UTF-8"),
        (b"us\xffr,item,rating\n1,2,3\n", "UTF-8"),
        (b"\x00\x01\x02", "not a text file"),
        (b"PK\x03\x04\x00\x00", "not a text file"),
        (gzip.compress(b"1,2,3\n", mtime=0)[:-4], "gzip file is truncated"),
        (b"\x1f\x8bnonsense", "gzip file is truncated"),
        (b"PAR1 nonsense PAR1", "Parquet file is truncated"),
        (b"PAR1", "Parquet file is truncated"),
        (b"1::2::3\n1::\x1f2::3\n", "control characters"),
    ],
)
def test_bad_files(read: Reader, content: str | bytes, message: str) -> None:
    with pytest.raises(RatingsError, match=message) as caught:
        read(content)
    assert str(caught.value).startswith("ratings.csv: ")


def test_bad_deflate_stream(read: Reader) -> None:
    good = gzip.compress(b"1,2,3\n" * 50, mtime=0)
    bad = good[:12] + b"\xff" * 10 + good[22:]
    with pytest.raises(zlib.error):
        gzip.decompress(bad)
    with pytest.raises(RatingsError, match="gzip"):
        read(bad)


def test_what_programs_write_for_nothing_is_missing(read: Reader) -> None:
    gaps = "user,item,rating\n1,a,5\n2,NA,NA\n3,b, \n  ,b,4\n4,c,nan\n5,NA,3\n"
    with pytest.warns(UserWarning, match="4 rows are left out.*: user in 1, rating in 3"):
        ratings = read(gaps, missing="drop")
    assert ratings.item_ids.tolist() == ["a", "NA"]  # an item may be called so
    with pytest.raises(RatingsError, match="row 1: not a number"):
        read("user,item,rating\n1,a,good\n", missing="drop")
    with pytest.raises(RatingsError, match="in every row something is missing"):
        read("user,item,rating\n1,a,\n", missing="drop")


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(RatingsError, match="there is no file"):
        Ratings.read(tmp_path / "absent.csv")
    with pytest.raises(RatingsError, match="not a usable path"):
        Ratings.read("a\0b")


def test_a_split_of_two_files_shares_ids(tmp_path: Path) -> None:
    train, test = tmp_path / "a.base", tmp_path / "a.test"
    train.write_text("1\t1\t5\t0\n3\t2\t4\t0\n")
    test.write_text("2\t9\t5\t0\n")
    first, second = read_split(train, test)
    assert first.users == second.users
    assert (first.n_users, first.n_items) == (3, 3)
    assert (second.user_codes.tolist(), second.item_codes.tolist()) == ([1], [2])
    test.write_text("two\t9\t5\t0\n")
    first, second = read_split(train, test)  # then all of them are text, as they are written
    assert (first.user_ids.tolist(), second.user_ids.tolist()) == (["1", "3"], ["two"])
    assert (first.item_ids.tolist(), second.item_ids.tolist()) == ([1, 2], [9])


SPELLED = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.from_regex(r"[+-]?0*[0-9]{1,6}", fullmatch=True),
    st.text("0123456789abcXYZ-+._", min_size=1, max_size=12),
)


@pytest.mark.slow
@fuzz
@given(st.lists(SPELLED, min_size=1, max_size=12, unique=True))
def test_ids_come_back_as_they_were_written(tmp_path: Path, written: list[str]) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{user},{user},3\n" for user in written))
    ratings = Ratings.read(path)
    for index, found in ((ratings.users, ratings.user_ids), (ratings.items, ratings.item_ids)):
        assert [str(value) for value in found] == written
        assert [str(index.parse(text)) for text in written] == written
    # What is written and read again is the same.
    ratings.write(tmp_path / "again.csv")
    assert Ratings.read(tmp_path / "again.csv").user_ids.tolist() == ratings.user_ids.tolist()


def attempt(path: Path, data: bytes) -> None:
    """Any bytes give ratings or one of our errors; everything else fails the test."""
    path.write_bytes(data)
    try:
        ratings = Ratings.read(path)
    except HdpmfError:
        return
    assert len(ratings) > 0


FIELDS = st.sampled_from(
    ["1", "2", "", "x", "-0", "007", "1e3", "nan", "NaN", '"', '""', " ", "5.0", "\x1f", "é", "\r"]
)


@pytest.mark.slow
@fuzz
@given(
    st.binary(max_size=200)
    | st.text(max_size=100).map(lambda text: text.encode(errors="surrogatepass"))
)
@example(b"user,item,rating\n")
@example(b"\xff\xfeu\x00s\x00")
@example(b"1,2,3\n\n\n1,3,3")
@example(b'1,2,"3\n')
def test_fuzz_bytes(tmp_path: Path, data: bytes) -> None:
    attempt(tmp_path / "any", data)


@pytest.mark.slow
@fuzz
@given(
    st.lists(st.lists(FIELDS, max_size=5), max_size=6),
    st.sampled_from(["\t", ",", "::", ";", "|", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_fuzz_lines(
    tmp_path: Path, lines: list[list[str]], mark: str, end: str, header: bool
) -> None:
    head = [mark.join(("user", "item", "rating"))] if header else []
    attempt(tmp_path / "any", end.join(head + [mark.join(line) for line in lines]).encode())
