"""Algorithm 1 with more ratings than fit on the device.

Sorted ratings lie in pinned memory of the host; every pass streams them through two buffers, of
which one is filled while the other is summed. Segments are those of the in-memory layout and each
row adds its segments' sums in the same order, so the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_engine as engine
from hdpmf.private.kernels.gpu.layout import (
    RatingColumns,
    RunTensors,
    Side,
    groups_of,
    padded,
    partners_per_block,
    segments,
    sort_keys,
)
from hdpmf.private.kernels.gpu.solvers import BatchSolver, Recipe

AT_A_TIME = 1 << 26
"""Ratings in a buffer: half a gigabyte, enough for the bus to run at full speed."""


@dataclass(frozen=True, slots=True, repr=False)
class Block:
    """Some ratings on the device.

    Attributes:
        users: User of each (int32).
        items: Item of each (int32).
        target: What the model should predict.
        coefficient: How much a residual counts in the item pass, or None where all count 1.
    """

    users: Tensor
    items: Tensor
    target: Tensor
    coefficient: Tensor | None = None


Blocks = Callable[[], Iterable[Block]]
"""Goes through all ratings, block after block, as often as it is called; always in the same
order.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Stream:
    """Ratings that come in blocks, where a ``Table`` would not fit."""

    blocks: Blocks
    n_users: int
    n_items: int
    device: torch.device


@dataclass(frozen=True, slots=True, repr=False)
class _HostSide:
    """Sorted ratings on the host, and their segments on the device.

    Attributes:
        side: The segments, numbered by their positions.
        columns: Partner, target and (or None) coefficient of each rating, pinned.
        pieces: First and end segment, first and end rating of what is copied at a time.
    """

    side: Side
    columns: tuple[Tensor, Tensor, Tensor | None]
    pieces: list[tuple[int, int, int, int]]


class StreamedBatchSolver(BatchSolver):
    """``BatchSolver`` for ratings in blocks that do not fit on the device together.

    It has one view.
    """

    def __init__(self, stream: Stream, recipe: Recipe) -> None:
        self._recipe = recipe
        self._device = stream.device
        self._items = self._sorted(stream.blocks, stream.n_items, stream.n_users, by_item=True)
        self._users = self._sorted(stream.blocks, stream.n_users, stream.n_items, by_item=False)
        self._by_item, self._by_user = self._items.side, self._users.side
        self._begin(recipe, _row_counts(self._by_item)[None], _row_counts(self._by_user)[None])

    def _item_sums(self, runs: RunTensors, own: Tensor, other: Tensor) -> Tensor:
        return self._sums(self._items, runs, own, other)

    def _user_sums(self, runs: RunTensors, own: Tensor, other: Tensor) -> Tensor:
        return self._sums(self._users, runs, own, other)

    def _sums(self, host: _HostSide, runs: RunTensors, own: Tensor, other: Tensor) -> Tensor:
        out: Tensor = engine.empty_sums(host.side, own)
        for (first, end, begin, _), (partner, target, coefficient) in zip(
            host.pieces, self._on_gpu(host), strict=True
        ):
            columns = RatingColumns(
                target[None], None if coefficient is None else coefficient[None]
            )
            engine.sum_range(host.side, partner, columns, runs, own, other, out, first, end, begin)
        return out

    def _on_gpu(self, host: _HostSide) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Pieces of the ratings, the next one being copied while this one is used."""
        if self._device.type != "cuda":
            for _, _, begin, end in host.pieces:
                yield _cut(host.columns, begin, end)
            return
        copying, computing = torch.cuda.Stream(), torch.cuda.current_stream()
        size = max((end - begin for _, _, begin, end in host.pieces), default=0)
        buffers = [
            tuple(
                None if c is None else torch.empty(size, dtype=c.dtype, device=self._device)
                for c in host.columns
            )
            for _ in range(2)
        ]
        arrived = [torch.cuda.Event() for _ in range(2)]
        used = [torch.cuda.Event() for _ in range(2)]

        def fetch(number: int) -> None:
            _, _, begin, end = host.pieces[number]
            with torch.cuda.stream(copying):
                # Of the piece before last, which this one overwrites.
                copying.wait_event(used[number % 2])
                for buffer, column in zip(buffers[number % 2], host.columns, strict=True):
                    if buffer is not None and column is not None:
                        buffer[: end - begin].copy_(column[begin:end], non_blocking=True)
                arrived[number % 2].record(copying)

        # Buffers are fresh memory that kernels before this may still be using.
        copying.wait_stream(computing)
        if host.pieces:
            fetch(0)
        for number, (_, _, begin, end) in enumerate(host.pieces):
            if number + 1 < len(host.pieces):
                fetch(number + 1)
            computing.wait_event(arrived[number % 2])
            yield _cut(buffers[number % 2], 0, end - begin)  # type: ignore[arg-type]  # three columns
            used[number % 2].record(computing)
        # What is freed here must not be given to others while the copies still run.
        computing.wait_stream(copying)

    def _sorted(self, blocks: Blocks, n_rows: int, n_partners: int, by_item: bool) -> _HostSide:
        """Sort all ratings, as many groups at a time as fit into a buffer."""
        block = partners_per_block(n_partners, 4 * padded(self._recipe.n_factors))
        n_groups = -(-n_partners // block) * n_rows
        counts = torch.zeros(n_groups, dtype=torch.int64, device=self._device)
        weighted = False
        for ratings in blocks():
            rows, partners = (
                (ratings.items, ratings.users) if by_item else (ratings.users, ratings.items)
            )
            counts += torch.bincount(groups_of(rows, partners, n_rows, block), minlength=n_groups)
            weighted |= ratings.coefficient is not None and by_item
        n, pin = int(counts.sum()), self._device.type == "cuda"
        out = tuple(
            torch.empty(n, dtype=dtype, pin_memory=pin) if wanted else None
            for dtype, wanted in (
                (torch.int32, True),
                (torch.float32, True),
                (torch.float32, weighted),
            )
        )
        ends = torch.cumsum(counts, 0)
        first = done = 0
        while done < n:
            last = max(int(torch.searchsorted(ends, done + AT_A_TIME, right=True)), first + 1)
            end = int(ends[last - 1])
            columns = self._range(blocks, n_rows, n_partners, block, first, last, by_item, weighted)
            for buffer, column in zip(out, columns, strict=True):
                if buffer is not None and column is not None:
                    buffer[done:end].copy_(column)
            first, done = last, end
        present = torch.nonzero(counts).flatten()
        no_partner = torch.empty(0, dtype=torch.int32, device=self._device)  # they are on the host
        side = segments(present, counts[present], no_partner, n_rows, longest_first=False)
        return _HostSide(side, out, self._pieces(side))  # type: ignore[arg-type]  # three columns

    def _range(
        self,
        blocks: Blocks,
        n_rows: int,
        n_partners: int,
        block: int,
        first: int,
        last: int,
        by_item: bool,
        weighted: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The ratings of some groups, sorted."""
        collected = []
        for ratings in blocks():
            rows, partners = (
                (ratings.items, ratings.users) if by_item else (ratings.users, ratings.items)
            )
            group = groups_of(rows, partners, n_rows, block)
            here = (group >= first) & (group < last)
            coefficient = (
                ratings.coefficient[here] if weighted and ratings.coefficient is not None else None
            )
            collected.append((rows[here], partners[here], ratings.target[here], coefficient))
        rows, partners, target = (
            torch.cat([columns[part] for columns in collected])  # type: ignore[misc]
            for part in range(3)
        )
        key, order = sort_keys(rows, partners, n_rows, n_partners, block)
        coefficient = torch.cat([columns[3] for columns in collected])[order] if weighted else None  # type: ignore[misc]
        return (key % n_partners).int(), target[order], coefficient

    def _pieces(self, side: Side) -> list[tuple[int, int, int, int]]:
        """Yield pieces to copy: whole segments, at most as many ratings as fit into a buffer."""
        ends = side.start + side.length
        pieces, first, begin = [], 0, 0
        while first < side.n_segments:
            last = max(int(torch.searchsorted(ends, begin + AT_A_TIME, right=True)), first + 1)
            end = int(ends[last - 1])
            pieces.append((first, last, begin, end))
            first, begin = last, end
        return pieces


def _cut(
    columns: tuple[Tensor, Tensor, Tensor | None], begin: int, end: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    partner, target, coefficient = columns
    return (
        partner[begin:end],
        target[begin:end],
        None if coefficient is None else coefficient[begin:end],
    )


def _row_counts(side: Side) -> Tensor:
    counts = torch.zeros(side.n_rows, dtype=torch.int64, device=side.row.device)
    return counts.index_add_(0, side.row.long(), side.length.long())
