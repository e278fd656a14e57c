"""Ratings with whole-number ids from a Parquet file straight to a GPU, block after block; for
``gpu.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ROWS_AT_A_TIME = 1 << 25
NAMES = ("user", "item", "rating")


def read_parquet(
    path: Path, device: torch.device
) -> tuple[Tensor, Tensor, list[tuple[Tensor, ...]]]:
    """Distinct user ids, distinct item ids, and the blocks of the file; the next is read while
    one is copied.
    """
    read = _with_polars if find_spec("polars") is not None else _with_pyarrow
    blocks = [
        tuple(torch.from_numpy(np.require(column, requirements="W")).to(device) for column in block)
        for block in _ahead(read(path))
    ]
    users, items = (
        torch.unique(torch.cat([torch.unique(block[side]) for block in blocks])) for side in (0, 1)
    )
    return users.long(), items.long(), blocks


def _ahead(blocks: Iterator[list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _with_polars(path: Path) -> Iterator[list[np.ndarray]]:
    import polars as pl

    frame = pl.scan_parquet(path).select(NAMES)
    for begin in range(0, frame.select(pl.len()).collect().item(), ROWS_AT_A_TIME):
        part = frame.slice(begin, ROWS_AT_A_TIME).collect()
        yield [part[name].to_numpy() for name in NAMES]


def _with_pyarrow(path: Path) -> Iterator[list[np.ndarray]]:
    import pyarrow
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_A_TIME, columns=list(NAMES)):
            yield [batch[name].to_numpy() for name in NAMES]
