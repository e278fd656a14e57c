"""Getting data sets into the cache: downloaded, or from a file at hand; checked before they land there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from hdpmf.errors import ConfigError, DatasetError, StorageError
from hdpmf.ratings.datasets.info import DatasetInfo
from hdpmf.ratings.datasets.registry import cache_folder, dataset_info, read_checked

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes received so far and the bytes there will be (None where the server does not say)."""

_CHUNK = 64 * 1024
_TIMEOUT_SECONDS = 30


def fetch_dataset(name: str, from_file: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Get a data set into the cache.

    What arrives is loaded and its checksum and counts are compared before it takes its place in the cache;
    until then, whatever was there stays. Archives are kept as they are, bare rating files as Parquet.

    Args:
        name: One of `dataset_names`.
        from_file: A local archive or file to take it from, instead of downloading.
        progress: Told how far the download is.

    Returns:
        Where it is now.

    Raises:
        DatasetError: It cannot be reached, cannot be downloaded, or is not what it should be.
        StorageError: The disk refused.
    """
    info = dataset_info(name)
    if info.read is None:
        raise ConfigError(f"{info.name!r} is made here: there is nothing to get; use it straight away")
    if from_file is None and info.url is None:
        raise DatasetError(f"{info.title} cannot be downloaded without registration; {info.how_to_get()}")
    try:
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        # Beside its final place, so that moving it there is a rename.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
            if from_file is None:
                source = Path(folder) / info.cache_name
                _download(info, source, progress)
            else:
                source = Path(from_file)
            return _settle(info, source, cache / info.cache_name, Path(folder))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"could not keep {info.title} in the cache: {reason}; free space there or name another folder "
            "with HDPMF_CACHE, then run the same command again"
        ) from error


def _settle(info: DatasetInfo, source: Path, target: Path, folder: Path) -> Path:
    if not source.is_file():
        raise DatasetError(f"there is no file {source}; give the archive or file of {info.title} after --from")
    ratings = read_checked(info, source)
    if target.suffix == ".parquet":
        ratings.write(target)
        return target
    if source.parent != folder:
        source = Path(shutil.copyfile(source, folder / info.cache_name))
        read_checked(info, source)  # what was copied, not what was there: the file may have changed meanwhile
    os.replace(source, target)
    return target


def _download(info: DatasetInfo, target: Path, progress: Progress | None) -> None:
    import pooch
    import requests

    meter = None if progress is None else _Meter(progress)
    fetch = pooch.HTTPDownloader(progressbar=meter or False, chunk_size=_CHUNK, timeout=_TIMEOUT_SECONDS)
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
        raise DatasetError(f"the download from {info.url} failed or broke off; {by_hand}") from error


class _Meter:
    """What pooch wants of a progress bar, without tqdm."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0
        self.total = 0

    def update(self, amount: int) -> None:
        self._done += amount
        # pooch counts whole chunks, also for the last one, which is shorter.
        shown = min(self._done, self.total) if self.total else self._done
        self._progress(shown, self.total or None)

    def reset(self) -> None:
        # pooch starts again at 0 only to fill up the bar in one step.
        self._done = 0 if self.total else self._done

    def close(self) -> None:
        """Leave the bar as it is: who gave it to us closes it."""
