from __future__ import annotations

import dataclasses
import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import (
    cache_folder,
    dataset_info,
    dataset_names,
    datasets,
    find_dataset,
    load_dataset,
    load_split,
)
from hdpmf.errors import ConfigError, DatasetError, HdpmfError

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
        assert (table.index.find(ratings.items.ids) >= 0).all()
    else:
        assert ratings.user_counts().min() >= 20


@pytest.mark.slow
def test_real_latin1_titles(data_folder: Path) -> None:
    table = load_dataset("ml-100k").item_table
    assert table is not None
    assert table.title(543) == "Misérables, Les (1995)"


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


def test_importing_ratings_needs_only_numpy() -> None:
    heavy = ("polars", "narwhals", "pooch", "msgspec")
    code = f"import sys, hdpmf.common.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
