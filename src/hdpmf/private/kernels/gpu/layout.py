"""Ratings as tensors: tables, sorted segments, orders of visits."""

from dataclasses import dataclass

import torch
from torch import Tensor


def padded(n_factors: int) -> int:
    """The row width that holds ``n_factors`` numbers on a device: a power of two from 4 on."""
    width = 4
    while width < n_factors:
        width *= 2
    return width


def pad(matrix: Tensor) -> Tensor:
    """Return a float32 copy with zero columns added, up to the padded number of factors."""
    factors = matrix.shape[-1]
    out = torch.zeros(
        (*matrix.shape[:-1], padded(factors)), dtype=torch.float32, device=matrix.device
    )
    out[..., :factors] = matrix
    return out


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Ratings on a device, in any order.

    Attributes:
        users: User of each rating (int32).
        items: Item of each rating (int32).
        target: What the model should predict.
        coefficient: How much a residual counts in the item pass, or None where all count 1.
    """

    users: Tensor
    items: Tensor
    target: Tensor
    n_users: int
    n_items: int
    coefficient: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device that holds the ratings."""
        return self.users.device


@dataclass(frozen=True, slots=True, repr=False)
class Visits:
    """The ratings that each row visits.

    Attributes:
        begin: Where each row's ratings begin, and the end of the last (int64).
        partner: The other side of each rating, in the order of visits (int32).
        target: What the model should predict of each.
        coefficient: How much its residual counts, or None where all count 1.
        ranked: Rows, those with most ratings first (int32): rows that are done side by side are
            equally long.
    """

    begin: Tensor
    partner: Tensor
    target: Tensor
    coefficient: Tensor | None
    ranked: Tensor


def begins(rows: Tensor, n_rows: int) -> Tensor:
    """Return where each row begins in a table sorted by rows, and the end of the last."""
    begin = torch.zeros(n_rows + 1, dtype=torch.int64, device=rows.device)
    begin[1:] = torch.cumsum(torch.bincount(rows, minlength=n_rows), 0)
    return begin


def ranked(begin: Tensor) -> Tensor:
    """Rows, those with most ratings first."""
    return torch.argsort(torch.diff(begin), descending=True, stable=True).int()


def shuffled(rows: Tensor, keys: Tensor | None) -> Tensor:
    """Places of the table sorted by row and, within rows, by key (or in the order of the table)."""
    combined = rows.long() if keys is None else (rows.long() << 32) | keys
    return torch.argsort(combined, stable=True)


SEGMENT = 2048
"""Most ratings in a segment: long enough to pay for writing its sum, short enough to be spread
over the device.
"""

CACHE_BYTES = 32 * 2**20
"""Factors to gather from at a time: about half of an H200's second-level cache, whose halves
mirror each other.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Side:
    """Ratings sorted for one pass.

    Attributes:
        n_rows: Items in the item pass, users in the user pass.
        partner: The other side of each rating (int32).
        target: What the model should predict of each.
        coefficient: How much its residual counts, or None where all count 1.
        start: Where each segment begins (int64).
        length: Ratings of each segment (int32).
        row: The row that each segment belongs to (int32).
        first: Where each row's list of segments begins in ``parts``, and the end of the last
            (int32).
        parts: Segments, row after row, in the order in which they are summed (int32).
    """

    n_rows: int
    partner: Tensor
    target: Tensor
    coefficient: Tensor | None
    start: Tensor
    length: Tensor
    row: Tensor
    first: Tensor
    parts: Tensor

    @property
    def n_segments(self) -> int:
        """The number of segments."""
        return len(self.row)


def lay_out(
    table: Table,
    by_item: bool,
    row_bytes: int,
    segment: int = SEGMENT,
    cache_bytes: int = CACHE_BYTES,
) -> Side:
    """Sort ratings for a pass.

    Args:
        by_item: For the item pass. A coefficient protects what is sent; a device fits its own
            vector to all that it knows.
        row_bytes: What gathering one partner's factors moves.
        segment: Most ratings in a segment.
        cache_bytes: Gather from at most about so much at a time.
    """
    rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
    n_rows, n_partners = (
        (table.n_items, table.n_users) if by_item else (table.n_users, table.n_items)
    )
    block = partners_per_block(n_partners, row_bytes, cache_bytes)
    group = (partners // block).long() * n_rows + rows
    key, order = torch.sort(group * n_partners + partners, stable=True)
    groups, counts = torch.unique_consecutive(key // n_partners, return_counts=True)
    coefficient = table.coefficient if by_item else None
    return Side(
        n_rows,
        (key % n_partners).int(),
        table.target[order],
        None if coefficient is None else coefficient[order],
        *segments(groups, counts, n_rows, segment),
    )


def partners_per_block(n_partners: int, row_bytes: int, cache_bytes: int) -> int:
    """Return how many partners to gather from at a time; all of them where they nearly fit."""
    total = n_partners * row_bytes
    # A second block costs another round of partial sums, so a little over the measure is taken in
    # one.
    blocks = 1 if total <= 1.25 * cache_bytes else -(-total // cache_bytes)
    return -(-n_partners // blocks) if n_partners else 1


def segments(
    groups: Tensor, counts: Tensor, n_rows: int, segment: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Cut groups of sorted ratings into segments, in the order in which they should be begun.

    Args:
        groups: Numbers of the groups that have ratings.
        counts: Ratings of each.
        segment: Most ratings in a segment.

    Returns:
        ``start``, ``length``, ``row``, ``first`` and ``parts`` of a `Side`.
    """
    device = groups.device
    begins = torch.cumsum(counts, 0) - counts
    pieces = (counts + segment - 1) // segment
    group_of = torch.repeat_interleave(torch.arange(len(groups), device=device), pieces)
    piece = (
        torch.arange(len(group_of), device=device) - (torch.cumsum(pieces, 0) - pieces)[group_of]
    )
    start = begins[group_of] + piece * segment
    length = torch.clamp(counts[group_of] - piece * segment, max=segment)
    row, block = groups[group_of] % n_rows, groups[group_of] // n_rows
    # Block after block, so that programs that run together share a block; in a block the longest
    # first.
    schedule = torch.argsort(block * (segment + 1) - length, stable=True)
    start, length, row = start[schedule], length[schedule], row[schedule]
    # A row's segments are summed in the order of their positions, whatever the schedule.
    by_position = torch.argsort(start)
    parts = by_position[torch.argsort(row[by_position], stable=True)]
    first = torch.zeros(n_rows + 1, dtype=torch.int64, device=device)
    first[1:] = torch.cumsum(torch.bincount(row, minlength=n_rows), 0)
    return start, length.int(), row.int(), first.int(), parts.int()
