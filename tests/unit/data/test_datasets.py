from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import (
    cache_folder,
    dataset_info,
    dataset_names,
    datasets,
    fetch_dataset,
    find_dataset,
    load_dataset,
    load_split,
)
from hdpmf.errors import ConfigError, DatasetError, HdpmfError, StorageError

Pack = Callable[[dict[str, bytes]], bytes]
ONE_MORE = b"1\t1\t5\t100\n1\t2\t3\t101\n2\t1\t4\t102\n2\t2\t1\t103\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "title", "counts", "listed"),
    [
        ("ml-100k", "MovieLens 100K", (943, 1682, 100_000), 1682),
        ("ml-1m", "MovieLens 1M", (6040, 3706, 1_000_209), 3883),
        ("douban", "Douban", (1403, 94_651, 221_195), None),
        ("yelp-sample", "Yelp sample", (3212, 43_679, 122_687), None),
    ],
)
def test_real_data(
    data_folder: Path, name: str, title: str, counts: tuple[int, ...], listed: int | None
) -> None:
    ratings = load_dataset(name)
    assert (ratings.n_users, ratings.n_items, len(ratings)) == counts
    assert ratings.name == dataset_info(name).title == title
    table = ratings.item_table
    assert (len(table) if table else None) == listed
    if table:
        assert table.title(1) == "Toy Story (1995)"
        assert table.genres[0] == ("Animation", "Children's", "Comedy")
        assert table.years[0] == 1995
        assert name != "ml-100k" or table.title(543) == "Misérables, Les (1995)"
        assert (table.index.find(ratings.items.ids) >= 0).all()
    else:
        assert ratings.user_counts().min() >= 20


@pytest.mark.slow
def test_real_split(data_folder: Path) -> None:
    train, test = load_split("ml-100k")
    assert (len(train), len(test)) == (90_570, 9_430)
    assert train.users == test.users
    assert train.items == test.items
    assert (test.user_counts() == 10).all()
    assert train.n_users == 943
    assert train.item_table is not None


def test_the_registry_is_complete() -> None:
    assert set(dataset_names()) == {
        "synthetic",
        "ml-100k",
        "ml-1m",
        "douban",
        "yelp",
        "yelp-sample",
    }
    for name in dataset_names():
        info = dataset_info(name)
        assert info.title
        assert info.description
        assert info.split == (name == "ml-100k")
        if name != "synthetic":
            assert info.page
            assert info.page.startswith("https://")
            assert info.url is None or info.url.startswith("https://")


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(
        DatasetError, match=r"did you mean 'ml-100k'\? choose from synthetic, ml-100k"
    ):
        load_dataset("ml100k")
    with pytest.raises(DatasetError, match="unknown data set 'netflix'"):
        dataset_info("netflix")


def test_absent_data_says_how_to_get_it(empty: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"run: hdpmf data get ml-1m \(or get it from https://.*--from FILE\)"
    ):
        load_dataset("ml-1m")
    with pytest.raises(
        DatasetError, match=r"get it from https://www.yelp.com.* hdpmf data get yelp --from FILE"
    ) as e:
        load_dataset("yelp")
    assert "\n" not in str(e.value)
    assert find_dataset("yelp") is None


def test_wrong_use(empty: Path) -> None:
    with pytest.raises(ConfigError, match="takes no options, got: colour"):
        load_dataset("ml-1m", colour="red")
    with pytest.raises(ConfigError, match="has no path"):
        load_dataset("synthetic", path=empty)
    with pytest.raises(DatasetError, match="no ready-made split"):
        load_split("ml-1m")
    with pytest.raises(DatasetError, match=r"is not at .*looked for ml-1m.zip"):
        load_dataset("ml-1m", path=empty)
    with pytest.raises(DatasetError, match="made here"):
        datasets.read_checked(dataset_info("synthetic"), empty)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("HDPMF_CACHE")
    assert cache_folder().name == "hdpmf"


def test_path_then_data_folder_then_cache(tiny: Path, whole: bytes) -> None:
    for place in ("path", "data", "cache"):
        (tiny / place).mkdir(exist_ok=True)
        (tiny / place / "ml-100k.zip").write_bytes(whole)
    assert find_dataset("ml-100k", tiny / "path") == tiny / "path" / "ml-100k.zip"
    assert find_dataset("ml-100k", tiny / "path" / "ml-100k.zip") == tiny / "path" / "ml-100k.zip"
    assert find_dataset("ml-100k") == tiny / "data" / "ml-100k.zip"
    (tiny / "data" / "ml-100k.zip").unlink()
    assert find_dataset("ml-100k") == tiny / "cache" / "ml-100k.zip"


@pytest.mark.parametrize("unpacked", [False, True])
def test_tiny_movielens(tiny: Path, pack: Pack, members: dict[str, bytes], unpacked: bool) -> None:
    if unpacked:
        (tiny / "data" / "ml-100k").mkdir()
        for name, data in members.items():
            (tiny / "data" / "ml-100k" / name).write_bytes(data)
        assert len(load_dataset("ml-100k", path=tiny / "data" / "ml-100k")) == 3
    else:
        (tiny / "data" / "ml-100k.zip").write_bytes(pack({"x/__MACOSX": b""} | members))
    ratings = load_dataset("ml-100k")
    table = ratings.item_table
    assert table is not None
    assert table.titles == ("Café Noir (1994)", "unknown", "None")
    assert table.genres == (("Action",), ("unknown",), ("unknown", "Drama"))
    assert table.years == (1994, 1996, None)
    train, test = load_split("ml-100k")
    assert (len(train), len(test), test.item_ids.tolist()) == (2, 1, [2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u.data": ONE_MORE}, "SHA-256 differs"),
        ({"u.item": b"1|only a title\n"}, "item list"),
        ({"u.item": b"x|t|d|v|u|0|0|0\n"}, "item list"),
        ({"u.genre": b"Action|0\n"}, "item list"),
        ({"u.data": None}, "no member 'u.data'"),
    ],
)
def test_wrong_archives(
    tiny: Path, pack: Pack, members: dict[str, bytes], change: dict[str, bytes | None], message: str
) -> None:
    changed = {name: data for name, data in (members | change).items() if data is not None}
    (tiny / "data" / "ml-100k.zip").write_bytes(pack(changed))
    with pytest.raises(DatasetError, match=message):
        load_dataset("ml-100k")


def test_wrong_content_and_counts(
    tiny: Path, pack: Pack, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = dataclasses.replace(datasets.REGISTRY["ml-100k"], checksums={})
    monkeypatch.setitem(datasets.REGISTRY._known, "ml-100k", bare)
    path = tiny / "data" / "ml-100k.zip"
    path.write_bytes(pack(members | {"u.data": ONE_MORE}))
    with pytest.raises(
        DatasetError,
        match="it has 2 users, 2 items, 4 ratings; expected 2 users, 2 items, 3 ratings",
    ):
        load_dataset("ml-100k")
    path.write_bytes(pack(members | {"u.data": b"1\t1\t9\t0\n", "ua.base": b"1\t1\t9\t0\n"}))
    with pytest.raises(DatasetError, match="row 1: off the scale"):
        load_dataset("ml-100k")
    with pytest.raises(DatasetError, match="row 1: off the scale"):
        load_split("ml-100k")


def damage(whole: bytes, cut: float, seed: int | None) -> bytes:
    """Cut a file short, or change some of its bytes."""
    if seed is None:
        return whole[: int(cut * len(whole))]
    chance = random.Random(seed)
    data = bytearray(whole)
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.slow
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.floats(0, 1), st.none() | st.integers(0, 2**32), st.none() | st.binary(max_size=100))
def test_fuzz_archives(
    tiny: Path, whole: bytes, cut: float, seed: int | None, other: bytes | None
) -> None:
    path = tiny / "data" / "ml-100k.zip"
    path.write_bytes(damage(whole, cut, seed) if other is None else other)
    for load in (load_dataset, load_split):
        with suppress(HdpmfError):
            load("ml-100k", path=path)


@pytest.mark.slow
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(["u.item", "u.genre", "u.data"]), st.binary(max_size=80), st.booleans())
def test_fuzz_members(
    tiny: Path, pack: Pack, members: dict[str, bytes], name: str, data: bytes, after: bool
) -> None:
    # `tiny` puts the real entry back at the end.
    datasets.REGISTRY._known["ml-100k"] = dataclasses.replace(
        datasets.REGISTRY["ml-100k"], checksums={}, counts=None
    )
    path = tiny / "data" / "ml-100k.zip"
    path.write_bytes(pack(members | {name: members[name] + data if after else data}))
    with suppress(HdpmfError):
        load_dataset("ml-100k", path=path)


def test_a_plain_file_that_is_something_else(empty: Path) -> None:
    (empty / "data" / "douban-book.tsv.gz").write_bytes(gzip.compress(b"1\t2\t3\n"))
    with pytest.raises(
        DatasetError, match=r"is not Douban as we know it: .*no user has 20 ratings"
    ):
        load_dataset("douban")
    rows = "".join(f"1\t{item}\t3\n" for item in range(20))
    (empty / "data" / "douban-book.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    with pytest.raises(DatasetError, match="expected 1,403 users, 94,651 items, 221,195 ratings"):
        load_dataset("douban")


def review(user: str, business: str, stars: float, date: str = "2018-07-07 22:09:11") -> str:
    named = {"user_id": user, "business_id": business, "stars": stars, "date": date}
    return json.dumps({"review_id": "r", "useful": 0, "text": "Tasty: ünïcode \n"} | named) + "\n"


REVIEWS = "".join(
    [
        *(review("ann", f"b{number:02}", 1 + number % 5) for number in range(20)),
        *(review("bob", f"b{number:02}", 3) for number in range(19)),  # one too few
        review("ann", "b00", 5, "2019-01-01 00:00:00"),  # a later word on b00
        review("ann", "b01", 5, "2001-01-01 00:00:00"),  # an earlier one on b01
        review("ann", "b02", 5),  # the same time as before, but later in the file
        review("bob", "b00", 1),
    ]
)


def test_yelps_reviews(empty: Path) -> None:
    path = empty / "yelp_academic_dataset_review.json"
    for data in (REVIEWS.replace("\n", "\n\n").encode(), gzip.compress(REVIEWS.encode())):
        path.write_bytes(data)
        ratings = load_dataset("yelp", path=path)
        assert (ratings.n_users, ratings.n_items, len(ratings), ratings.name) == (1, 20, 20, "Yelp")
        stars = dict(zip(ratings.item_ids.tolist(), ratings.values.tolist(), strict=True))
        usual = {f"b{number:02}": 1 + number % 5 for number in range(20)}
        assert stars == usual | {"b00": 5, "b02": 5}
        assert ratings.timestamps is not None
        assert ratings.timestamps.max() == 1546300800
    kept = fetch_dataset("yelp", from_file=path)
    assert kept == empty / "cache" / "yelp.parquet"
    again = load_dataset("yelp")
    assert (again.users, again.items) == (ratings.users, ratings.items)
    assert again.values.tolist() == ratings.values.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no ratings"),
        (review("a", "b", 3), "no user has 20"),
        ("{}\n", "column 'user', row 1: missing"),
        (REVIEWS + '{"user_id": 5}\n', "column 'item', row 44: missing"),
        (REVIEWS[:-9], "no JSON objects"),
        (review("", "b", 3), "column 'user', row 1: missing"),
        (review("a", "b\0", 3), "column 'item', row 1: .*NUL"),
        (review("a", "b", 3, "yesterday"), "column 'timestamp', row 1"),
        ("[" * 100_000, "no JSON objects"),
        (b'{"user_id": "\xff"}', "no JSON objects"),
        (REVIEWS.replace('"stars": 3', '"stars": 9'), "off the scale"),
        (b"PK\x03\x04" + REVIEWS.encode(), "unpack Yelp's archive"),
    ],
)
def test_what_is_no_file_of_reviews(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "reviews.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset("yelp", path=path)
    assert "https://www.yelp.com/dataset" in str(caught.value)


class Answer(NamedTuple):
    """What the server says; ``missing`` bytes of the body never come, ``length`` tells how long
    it should be.
    """

    status: int = 200
    body: bytes | None = None
    missing: int = 0
    length: bool = True


Serve = Callable[[Answer], str]


@pytest.fixture
def serve(whole: bytes) -> Iterator[Serve]:
    """Serve one answer from 127.0.0.1, whatever is asked."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answer: Answer) -> str:
        body = whole if answer.body is None else answer.body

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(answer.status)
                if answer.length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) - answer.missing])

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,)
        )  # seconds between looks at shutdown
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/ml-100k.zip"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def use_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(
        datasets.REGISTRY._known,
        "ml-100k",
        dataclasses.replace(datasets.REGISTRY["ml-100k"], url=url),
    )


@pytest.mark.parametrize("length", [True, False])
def test_download(
    tiny: Path, serve: Serve, whole: bytes, monkeypatch: pytest.MonkeyPatch, length: bool
) -> None:
    use_url(monkeypatch, serve(Answer(length=length)))
    path = fetch_dataset("ml-100k")
    assert path == tiny / "cache" / "ml-100k.zip"
    assert path.read_bytes() == whole
    assert len(load_dataset("ml-100k")) == 3
    assert [file.name for file in (tiny / "cache").iterdir()] == ["ml-100k.zip"]
    assert fetch_dataset("ml-100k") == path  # again, over the old one


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(status=404, body=b"gone"), "answered 404; get it from https://.*--from FILE"),
        (Answer(status=500, body=b""), "answered 500"),
        (Answer(missing=50), "broke off; get it from https://.*--from FILE"),
        (Answer(missing=50, length=False), "not a usable archive"),
        (Answer(body=b"<html>"), "not a usable archive"),
        (Answer(body=b""), "not a usable archive"),
    ],
)
def test_bad_downloads_leave_no_trace(
    tiny: Path,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    message: str,
) -> None:
    use_url(monkeypatch, serve(answer))
    (tiny / "cache" / "ml-100k.zip").write_bytes(b"what was there before")
    with pytest.raises(DatasetError, match=message) as caught:
        fetch_dataset("ml-100k")
    assert "\n" not in str(caught.value)
    assert [file.name for file in (tiny / "cache").iterdir()] == ["ml-100k.zip"]
    assert (tiny / "cache" / "ml-100k.zip").read_bytes() == b"what was there before"


def test_no_network(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/ml-100k.zip", "http://no-such-host.invalid/ml-100k.zip"):
        use_url(monkeypatch, url)
        with pytest.raises(
            DatasetError, match=r"no connection to .*get it from https://.*ml-100k --from FILE"
        ) as caught:
            fetch_dataset("ml-100k")
        assert "\n" not in str(caught.value)
    assert list((tiny / "cache").iterdir()) == []


def test_from_file(tiny: Path, whole: bytes) -> None:
    archive = tiny / "somewhere.zip"
    archive.write_bytes(whole)
    assert fetch_dataset("ml-100k", from_file=archive).read_bytes() == whole
    assert archive.exists()
    archive.write_bytes(whole[:100])
    with pytest.raises(DatasetError, match="not a usable archive"):
        fetch_dataset("ml-100k", from_file=archive)
    with pytest.raises(DatasetError, match="there is no file"):
        fetch_dataset("ml-100k", from_file=tiny / "absent.zip")
    with pytest.raises(DatasetError, match="there is no file"):
        fetch_dataset("ml-100k", from_file=tiny)
    assert len(load_dataset("ml-100k")) == 3


def test_from_the_real_file(data_folder: Path, empty: Path) -> None:
    assert (
        fetch_dataset("yelp-sample", from_file=data_folder / "yelp-sample.tsv.gz").name
        == "yelp-sample.parquet"
    )
    assert len(load_dataset("yelp-sample")) == 122_687
    fetch_dataset("ml-100k", from_file=data_folder / "ml-100k.zip")
    assert len(load_dataset("ml-100k")) == 100_000


def test_nothing_to_download(empty: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to get"):
        fetch_dataset("synthetic")
    for name in ("yelp", "douban", "yelp-sample"):
        with pytest.raises(
            DatasetError, match=f"cannot be downloaded .*hdpmf data get {name} --from FILE"
        ):
            fetch_dataset(name)


def test_a_full_disk(tiny: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tiny / "somewhere.zip"
    archive.write_bytes(whole)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=r"No space left on device.*HDPMF_CACHE"):
        fetch_dataset("ml-100k", from_file=archive)
    assert os.listdir(tiny / "cache") == []
    monkeypatch.setenv("HDPMF_CACHE", str(archive))  # a file where the folder should be
    with pytest.raises(StorageError, match="HDPMF_CACHE"):
        fetch_dataset("ml-100k", from_file=archive)


def test_importing_ratings_needs_only_numpy() -> None:
    heavy = ("polars", "narwhals", "pooch", "msgspec")
    code = f"import sys, hdpmf.common.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
