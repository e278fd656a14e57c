from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, read_split
from hdpmf.common.data.parquet_guard import decoded_bytes
from hdpmf.errors import ConfigError, HdpmfError, RatingsError


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Ratings]:
    def reader(content: str | bytes, name: str = "ratings.csv", **options: object) -> Ratings:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return Ratings.read(path, **options)  # type: ignore[arg-type]

    return reader


Reader = Callable[..., Ratings]


@pytest.mark.parametrize(
    "content",
    [
        "1\t10\t5\t99\n2\t10\t1\t98\n",
        "1::10::5::99\n2::10::1::98\n",
        "1,10,5,99\n2,10,1,98",
        "1;10;5;99\r\n2;10;1;98\r\n",
        "1|10|5|99\n2|10|1|98\n",
        "1 10 5 99\n2 10 1 98\n",
        "user,item,rating,timestamp\n1,10,5,99\n2,10,1,98\n",
        "user::item::rating::timestamp\n1::10::5::99\n2::10::1::98\n",
        "\ufeffuserId,movieId,rating,timestamp\n1,10,5.0,99\n2,10,1.0,98\n",
        "rating,other,item_id,user_id,timestamp\n5,x,10,1,99\n1,y,10,2,98\n",
        '"user","item","rating","timestamp"\n"1","10",5,99\n"2","10",1,98\n',
        "user,item,rating,timestamp\n1,10,5,1970-01-01T00:01:39Z\n2,10,1,1970-01-01 00:01:38\n",
        " 1 , 10 , 5 , 99 \n 2 , 10 , 1 , 98 \n",
    ],
)
@pytest.mark.filterwarnings("ignore:.*not used. other")
@pytest.mark.parametrize("packed", [False, True])
def test_every_layout_reads_the_same(read: Reader, content: str, packed: bool) -> None:
    data = content.encode()
    ratings = read(gzip.compress(data) if packed else data, "u.data")
    assert ratings.user_ids.tolist() == [1, 2]
    assert ratings.item_ids.tolist() == [10, 10]
    assert ratings.values.tolist() == [5, 1]
    assert ratings.timestamps is not None
    assert ratings.timestamps.tolist() == [99, 98]
    assert ratings.name == "u.data"


def test_three_columns_and_string_ids(read: Reader) -> None:
    ratings = read("ann,x,5\n7,y,1\n")
    assert ratings.user_ids.tolist() == ["ann", "7"]
    assert ratings.timestamps is None


def test_other_column_names(read: Reader) -> None:
    content = "who,what,stars\n1,2,3\n"
    assert len(read(content, columns={"user": "who", "item": "what", "rating": "stars"})) == 1
    with pytest.raises(
        RatingsError, match=r"no column 'user' among columns who, what, stars; .*columns="
    ):
        read(content)
    with pytest.raises(ConfigError, match="unknown: customer"):
        read(content, columns={"customer": "who"})
    with pytest.raises(ConfigError, match="without one"):
        read("1,2,3\n", columns={"user": "who"}, header=False)


def test_scale_is_public_and_given(read: Reader) -> None:
    assert read("1,1,10\n", scale=(0, 10)).scale.high == 10
    with pytest.raises(RatingsError, match=r"row 1: off the scale 1..5 .*scale=\(low, high\)"):
        read("1,1,10\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("user,item,rating\n", "no ratings"),
        ("1,2,3\n1,3,nan\n", "'rating', row 2: missing"),
        ("1,2,3\n1,3,inf\n", "row 2: not a finite"),
        ("1,2,3\n1,3,\n", "'rating', row 2: missing"),
        ("1,2,3\n1,3\n", "'rating', row 2: missing"),
        ("1,2,3\n,3,4\n", "'user', row 2: missing"),
        ("user,item,rating\n1,2,3\n1,3,four\n", "'rating', row 2: text, not a number"),
        ("1,2,3,4\n1,3,4,yesterday\n", "'timestamp', row 2: text, not a number"),
        ("1,2,3\n1,2,4\n", "row 2 rates an item that the same user"),
        ("1\t2\t3\n1\t3\t4\t5\t6\n", "row 2 has more than 3 fields"),
        ("1,2,3\n1,3,4,5,6\n", "3 fields"),
        ("1,2,3,4,5\n", "3 or 4 columns"),
        ("just text\n", "no column 'user'"),
        (
            "user,user_id,userid,item,rating\n1,1,1,1,1\n",
            "same name|no column|missing|more than one|x",
        ),
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
    if content == "user,user_id,userid,item,rating\n1,1,1,1,1\n":
        with pytest.warns(UserWarning, match="not used: user_id, userid"):
            assert len(read(content)) == 1  # the exact name wins
        return
    with pytest.raises(RatingsError, match=message) as caught:
        read(content)
    assert str(caught.value).startswith("ratings.csv: ")


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(RatingsError, match="there is no file"):
        Ratings.read(tmp_path / "absent.csv")
    with pytest.raises(RatingsError, match="no Parquet file in the folder"):
        Ratings.read(tmp_path)
    with pytest.raises(RatingsError, match="not a usable path"):
        Ratings.read("a\0b")


@pytest.mark.parametrize("separator", ["", "\n", '"'])
def test_bad_separators(read: Reader, separator: str) -> None:
    with pytest.raises(ConfigError, match="separator"):
        read("1,2,3\n", separator=separator)


def test_given_separators(read: Reader) -> None:
    assert len(read("1§2§3\n", separator="§")) == 1
    assert len(read("1--2--3\n", separator="--")) == 1
    assert len(read("1,2,3\n", header=False)) == 1
    with pytest.raises(RatingsError, match="columns without names"):
        read("1,2,3\n4,5,1\n", header=True)


def test_read_split_shares_ids(tmp_path: Path) -> None:
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


def attempt(path: Path, data: bytes, **options: object) -> None:
    """Any bytes give ratings or one of our errors; everything else fails the test."""
    path.write_bytes(data)
    try:
        ratings = Ratings.read(path, **options)  # type: ignore[arg-type]
    except HdpmfError:
        return
    assert len(ratings) > 0


FIELDS = st.sampled_from(
    ["1", "2", "", "x", "-0", "007", "1e3", "nan", "NaN", '"', '""', " ", "5.0", "\x1f", "é", "\r"]
)
LINES = st.lists(st.lists(FIELDS, max_size=5), max_size=6)
fuzz = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    LINES,
    st.sampled_from(["\t", ",", "::", ";", "|", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_fuzz_lines(
    tmp_path: Path, lines: list[list[str]], mark: str, end: str, header: bool
) -> None:
    head = [mark.join(("user", "item", "rating"))] if header else []
    attempt(tmp_path / "any", end.join(head + [mark.join(line) for line in lines]).encode())


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, 5.0]}).write_parquet(buffer)
    return buffer.getvalue()


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Cut a file short, or change some of its bytes."""

    def change(seed: int) -> bytes:
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)

    return st.integers(0, len(whole)).map(lambda end: whole[:end]) | st.integers(0, 2**32).map(
        change
    )


@pytest.mark.slow
@fuzz
@given(damaged(_parquet()))
def test_fuzz_parquet(tmp_path: Path, data: bytes) -> None:
    attempt(tmp_path / "any.parquet", data)


@pytest.mark.parametrize(
    "options", [{}, {"data_page_size": 64}, {"data_page_version": "2.0"}, {"use_dictionary": False}]
)
def test_parquet_of_others_is_sound(options: dict[str, object]) -> None:
    frame = pl.DataFrame(
        {
            "a": [1, None] * 500,
            "b": ["x", None] * 500,
            "c": [[1], None] * 500,
            "d": [True, None] * 500,
        }
    )
    buffer = io.BytesIO()
    pq.write_table(frame.to_arrow(), buffer, **options)
    assert decoded_bytes(buffer.getvalue()) is not None


def test_a_page_that_announces_too_much_is_not_decoded(read: Reader) -> None:
    # The decoder would ask for 2^61 bytes and take the process with it.
    whole = _parquet()
    refused = 0
    for place in range(4, len(whole)):
        for byte in (0x01, 0x7F, 0xFF):
            refused += decoded_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :]) is None
    assert refused > 100
    assert decoded_bytes(whole) is not None
    with pytest.raises(RatingsError, match="Parquet file is truncated"):
        read(whole[:-8] + b"\xff\xff\xff\x7fPAR1")


@pytest.mark.slow
@fuzz
@given(st.binary(max_size=300))
def test_fuzz_parquet_structure(data: bytes) -> None:
    length = len(data).to_bytes(4, "little")
    found = decoded_bytes(b"PAR1" + data + length + b"PAR1")
    assert found is None or found >= 0


@pytest.mark.slow
@fuzz
@given(damaged(gzip.compress(b"1,2,3\n4,5,1\n" * 3, mtime=0)))
def test_fuzz_gzip(tmp_path: Path, data: bytes) -> None:
    attempt(tmp_path / "any.csv.gz", data)


def test_gzip_with_bad_deflate_stream(read: Reader) -> None:
    good = gzip.compress(b"1,2,3\n" * 50, mtime=0)
    with pytest.raises(zlib.error):
        gzip.decompress(good[:12] + b"\xff" * 10 + good[22:])
    with pytest.raises(RatingsError, match="gzip"):
        read(good[:12] + b"\xff" * 10 + good[22:])


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"user": [[1]], "item": [1], "rating": [1]}),
        pl.DataFrame({"user": [1], "item": [1], "rating": ["many"]}),
        pl.DataFrame({"user": [1], "item": [1], "rating": [None]}),
        pl.DataFrame({"user": [None], "item": [1], "rating": [1]}),
        pl.DataFrame({"user": [1], "item": [1]}),
        pl.DataFrame({"user": [], "item": [], "rating": []}),
    ],
)
def test_unfit_parquet(tmp_path: Path, frame: pl.DataFrame) -> None:
    frame.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(RatingsError):
        Ratings.read(tmp_path / "x.parquet")
