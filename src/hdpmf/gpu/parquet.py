"""Ratings from a Parquet file straight to a device, block after block, with whole-number ids of users and items.

Reads with Polars, or with PyArrow where only that is installed. While the device works on a block, the next is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike

import numpy as np
import torch
from torch import Tensor

from hdpmf.errors import MissingExtraError, RatingsError
from hdpmf.gpu.streaming import Block

ROWS_AT_A_TIME = 1 << 25

_Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, repr=False)
class ParquetRatings:
    """Ratings in a Parquet file, known by their ids.

    Attributes:
        users: User ids, sorted (int64, on the device).
        items: Item ids, in the same way.
        n: Ratings.
        raw: Blocks of the file that stay on the device, or None where they are read anew each time.
        read: Goes through the file.
        device: The device.
    """

    users: Tensor
    items: Tensor
    n: int
    raw: list[tuple[Tensor, Tensor, Tensor]] | None
    read: Callable[[], Iterator[_Columns]]
    device: torch.device

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        device: torch.device,
        columns: Mapping[str, str] | None = None,
        keep: bool = True,
        rows: int = ROWS_AT_A_TIME,
    ) -> ParquetRatings:
        """Go through a file once, to know who and what is in it.

        Args:
            path: The file.
            device: Where ratings go.
            columns: What the file calls ``user``, ``item`` and ``rating``, where it is something else.
            keep: Keep all ratings on the device.
            rows: Rows at a time.
        """
        names = [(columns or {}).get(name, name) for name in ("user", "item", "rating")]

        def read() -> Iterator[_Columns]:
            return _ahead(_reader()(str(path), names, rows))

        users, items, raw, n = [], [], [], 0
        for block in read():
            arrived = _put(block, device)
            users.append(torch.unique(arrived[0]))
            items.append(torch.unique(arrived[1]))
            n += len(arrived[2])
            if keep:
                raw.append(arrived)
        if n == 0:
            raise RatingsError(f"{path} has no ratings")
        distinct = torch.unique(torch.cat(users)), torch.unique(torch.cat(items))
        return cls(*distinct, n, raw if keep else None, read, device)

    def blocks(self, target: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None) -> Iterator[Block]:
        """All ratings with positions for ids; ``target`` makes of users, items and values what is to be predicted."""
        raw = self.raw if self.raw is not None else (_put(block, self.device) for block in self.read())
        for user_ids, item_ids, values in raw:
            users = torch.searchsorted(self.users, user_ids).int()
            items = torch.searchsorted(self.items, item_ids).int()
            yield Block(users, items, values if target is None else target(users, items, values))


def _put(block: _Columns, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    users, items, values = (torch.from_numpy(np.require(column, requirements="W")).to(device) for column in block)
    for name, ids in (("user", users), ("item", items)):
        if ids.is_floating_point():
            raise RatingsError(f"the {name} ids are not whole numbers; ratings with other ids go through Ratings.read")
    values = values.float()
    if not bool(torch.isfinite(values).all()):
        raise RatingsError("the file has ratings that are missing or infinite; leave those rows out")
    return users.long(), items.long(), values


def _ahead(blocks: Iterator[_Columns]) -> Iterator[_Columns]:
    """The same, the next block being read while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _reader() -> Callable[[str, list[str], int], Iterator[_Columns]]:
    if find_spec("polars") is not None:
        return _with_polars
    if find_spec("pyarrow") is not None:
        return _with_pyarrow
    raise MissingExtraError("reading Parquet needs polars: pip install polars")


def _with_polars(path: str, names: list[str], rows: int) -> Iterator[_Columns]:
    import polars as pl

    try:
        frame = pl.scan_parquet(path).select(names)
        n = frame.select(pl.len()).collect().item()
        for begin in range(0, n, rows):
            part = frame.slice(begin, rows).collect()
            users, items, values = (_numbers(part[name].to_numpy(), name) for name in names)
            yield users, items, values
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RatingsError(f"cannot read {path}: {error}") from error


def _with_pyarrow(path: str, names: list[str], rows: int) -> Iterator[_Columns]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            groups: list[int] = []
            for group in range(file.num_row_groups):
                groups.append(group)
                waiting = sum(file.metadata.row_group(one).num_rows for one in groups)
                if waiting >= rows or group == file.num_row_groups - 1:
                    table = file.read_row_groups(groups, columns=names)
                    users, items, values = (_numbers(table[name].to_numpy(), name) for name in names)
                    yield users, items, values
                    groups = []
    except (pyarrow.ArrowException, KeyError, OSError) as error:
        raise RatingsError(f"cannot read {path}: {error}") from error


def _numbers(column: np.ndarray, name: str) -> np.ndarray:
    if column.dtype.kind not in "iuf":
        raise RatingsError(f"the column {name!r} does not hold numbers; ratings with other ids go through Ratings.read")
    # PyTorch has no unsigned integers beyond bytes.
    return column.astype(np.int64) if column.dtype.kind == "u" else column
