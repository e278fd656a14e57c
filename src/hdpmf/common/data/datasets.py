"""The registry of data sets: find, load and download them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hdpmf.common.base.names import Registry
from hdpmf.common.data.dataset_formats import (
    Counts,
    DatasetInfo,
    read_1m,
    read_100k,
    read_100k_split,
    read_plain,
    read_yelp,
)
from hdpmf.common.data.synthetic import synthetic_world
from hdpmf.common.data.table import Ratings
from hdpmf.errors import ConfigError, DatasetError, RatingsError, StorageError, hint

_KNOWN = (
    DatasetInfo(
        name="synthetic",
        title="Synthetic",
        description="a seeded world of any size, scale and sparsity; made here, nothing to "
        "download",
    ),
    DatasetInfo(
        name="ml-100k",
        title="MovieLens 100K",
        description="100,000 movie ratings of 1 to 5 stars, by GroupLens",
        page="https://grouplens.org/datasets/movielens/100k/",
        url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        files=("ml-100k.zip", "ml-100k"),
        cache_name="ml-100k.zip",
        counts=Counts(943, 1_682, 100_000),
        checksums={"u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"},
        read=read_100k,
        read_split=read_100k_split,
    ),
    DatasetInfo(
        name="ml-1m",
        title="MovieLens 1M",
        description="a million movie ratings of 1 to 5 stars, by GroupLens",
        page="https://grouplens.org/datasets/movielens/1m/",
        url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        files=("ml-1m.zip", "ml-1m"),
        cache_name="ml-1m.zip",
        counts=Counts(6_040, 3_706, 1_000_209),
        checksums={
            "ratings.dat": "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f"
        },
        read=read_1m,
    ),
    DatasetInfo(
        name="douban",
        title="Douban",
        description="Douban's books; users with at least 20 ratings",
        # Douban gives out no file itself. This research project collected such ratings and says
        # where its raw data is; the ratings.dat in it is a filtered part, which the counts below
        # tell apart.
        page="https://github.com/fengzhu1/GA-DTCDR",
        files=("douban.parquet", "douban-book.tsv.gz", "douban-book.tsv"),
        cache_name="douban.parquet",
        counts=Counts(1_403, 94_651, 221_195),
        read=read_plain,
    ),
    DatasetInfo(
        name="yelp",
        title="Yelp",
        description="Yelp's review file; the latest rating per business, users with at least 20 "
        "ratings",
        page="https://www.yelp.com/dataset",
        files=(
            "yelp.parquet",
            "yelp_academic_dataset_review.json",
            "yelp_academic_dataset_review.json.gz",
        ),
        cache_name="yelp.parquet",
        # No counts: Yelp replaces the file every year or so (the paper's had 36,997 / 147,435 /
        # 1,888,380).
        read=read_yelp,
    ),
    DatasetInfo(
        name="yelp-sample",
        # Never shown as "Yelp": figures made from a sample are not figures of the whole.
        title="Yelp sample",
        description="a sample of Yelp's star ratings, for tests; users with at least 20 ratings",
        page="https://www.yelp.com/dataset",
        files=("yelp-sample.parquet", "yelp-sample.tsv.gz", "yelp-sample.tsv"),
        cache_name="yelp-sample.parquet",
        counts=Counts(3_212, 43_679, 122_687),
        read=read_plain,
    ),
)

REGISTRY = Registry(DatasetInfo, "data set", "hdpmf.datasets", _KNOWN, DatasetError)
"""Ours, and those that packages add by the entry point ``hdpmf.datasets``."""


def dataset_names() -> tuple[str, ...]:
    """List the names that `load_dataset` takes."""
    return tuple(REGISTRY)


def dataset_info(name: str) -> DatasetInfo:
    """Tell what is known about a data set.

    Raises:
        DatasetError: There is none of that name.
    """
    if name not in REGISTRY and isinstance(name, str | Path) and os.path.isfile(name):
        raise DatasetError(f"{name} is a file and no data set; {hint('file')}")
    return REGISTRY.named(name)


def cache_folder() -> Path:
    """Return the folder of downloads: ``HDPMF_CACHE``, or the system's cache."""
    named = os.environ.get("HDPMF_CACHE")
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("hdpmf"))


def find_dataset(name: str, path: str | os.PathLike[str] | None = None) -> Path | None:
    """Find a data set on this machine without loading it.

    Looks at ``path`` (a file, or a folder that has it), else in the folder named by ``HDPMF_DATA``,
    then in the cache.

    Raises:
        DatasetError: ``path`` is given but has no such data set.
    """
    info = dataset_info(name)
    if path is not None:
        return _at(info, Path(path))
    named = os.environ.get("HDPMF_DATA")
    folders = ([Path(named).expanduser()] if named else []) + [cache_folder()]
    places = (folder / file for folder in folders for file in info.files)
    return next((place for place in places if place.exists()), None)


def load_dataset(
    name: str, *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Ratings:
    """Load a data set by name.

    Args:
        name: One of `dataset_names`.
        path: Where it is; searched for where it is not given (see `find_dataset`).
        options: For ``synthetic``: those of `synthetic_world`.

    Raises:
        DatasetError: It is not on this machine, or not what it should be.
    """
    info = dataset_info(name)
    if info.read is not None:
        if options:
            raise ConfigError(f"{info.name!r} takes no options, got: {', '.join(sorted(options))}")
        return read_checked(info, _require(info, path))
    if path is not None:
        raise ConfigError(
            f"{info.name!r} is made here and has no path; its options are its size and rng"
        )
    try:
        return synthetic_world(**options)
    except TypeError as error:
        raise ConfigError(
            f"unknown option for {info.name!r} among: {', '.join(sorted(options))}"
        ) from error


def load_split(name: str, *, path: str | os.PathLike[str] | None = None) -> tuple[Ratings, Ratings]:
    """Load the ready-made training and test set that a data set comes with, in one id space.

    ``ml-100k`` has one: ``ua.base`` and ``ua.test``, ten test ratings per user.
    """
    info = dataset_info(name)
    if info.read_split is None:
        having = ", ".join(other.name for other in REGISTRY.values() if other.split)
        raise DatasetError(
            f"{info.title} has no ready-made split (only {having}); use "
            f"load_dataset({info.name!r}).hold_out(10)"
        )
    found = _require(info, path)
    with _known(info, found):
        return info.read_split(info, found)


def read_checked(info: DatasetInfo, path: Path) -> Ratings:
    """Load a data set from a path and check that it is what it should be."""
    if info.read is None:
        raise DatasetError(f"{info.title} is made here, not read from a file")
    with _known(info, path):
        ratings = info.read(info, path)
    info.check_counts(ratings, path.name)
    return ratings


def _require(info: DatasetInfo, path: str | os.PathLike[str] | None) -> Path:
    found = find_dataset(info.name, path)
    if found is None:
        raise DatasetError(f"{info.title} is not on this machine; {info.how_to_get()}")
    return found


def _at(info: DatasetInfo, path: Path) -> Path:
    if path.is_dir():
        for file in info.files:
            if (path / file).exists():
                return path / file
        if path.name in info.files or any((path / name).is_file() for name in info.checksums):
            return path
    elif path.exists():
        return path
    raise DatasetError(f"{info.title} is not at {path}; looked for {', '.join(info.files)} there")


@contextmanager
def _known(info: DatasetInfo, path: Path) -> Iterator[None]:
    """Errors of ratings inside say that this is not the data set."""
    try:
        yield
    except RatingsError as error:
        raise DatasetError(
            f"{path.name} is not {info.title} as we know it: {error}; {info.how_to_get()}"
        ) from error


def fetch_dataset(name: str, from_file: str | os.PathLike[str] | None = None) -> Path:
    """Get a data set into the cache, and return where it is.

    What arrives is loaded and its checksum and counts are compared before it takes its place in the
    cache; until then, whatever was there stays. Archives are kept as they are, bare rating files as
    Parquet.

    Args:
        name: One of `dataset_names`.
        from_file: A local archive or file to take it from, instead of downloading.

    Raises:
        DatasetError: It cannot be reached, cannot be downloaded, or is not what it should be.
        StorageError: The disk refused.
    """
    info = dataset_info(name)
    if info.read is None:
        raise ConfigError(
            f"{info.name!r} is made here: there is nothing to get; use it straight away"
        )
    if from_file is None and info.url is None:
        raise DatasetError(
            f"{info.title} cannot be downloaded without registration; {info.how_to_get()}"
        )
    if from_file is not None and not Path(from_file).is_file():
        raise DatasetError(
            f"there is no file {from_file}; give the archive or file of {info.title} after --from"
        )
    try:
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        target = cache / info.cache_name
        # Beside its final place, so that moving it there is a rename.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
            copy = Path(folder) / (Path(from_file).name if from_file else info.cache_name)
            if from_file is None:
                _download(info, copy)
            else:
                shutil.copyfile(from_file, copy)
            ratings = read_checked(info, copy)
            if target.suffix == ".parquet":
                ratings.write(target)
            else:
                os.replace(copy, target)
        return target
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"could not keep {info.title} in the cache: {reason}; free space there or name another "
            "folder with HDPMF_CACHE, then run the same command again"
        ) from error


def _download(info: DatasetInfo, target: Path) -> None:
    import pooch
    import requests

    fetch = pooch.HTTPDownloader(timeout=30)
    by_hand = f"get it from {info.page} and run: hdpmf data get {info.name} --from FILE"
    try:
        fetch(info.url, str(target), None)
    except requests.HTTPError as error:
        status: int | str = "with an error"
        if error.response is not None:
            status = error.response.status_code
            error.response.close()  # pooch leaves it open
        raise DatasetError(f"{info.url} answered {status}; {by_hand}") from error
    except (requests.ConnectionError, requests.Timeout) as error:
        raise DatasetError(f"no connection to {info.url}, or it broke off; {by_hand}") from error
    except (requests.RequestException, ValueError) as error:
        raise DatasetError(
            f"the download from {info.url} failed or broke off; {by_hand}"
        ) from error
