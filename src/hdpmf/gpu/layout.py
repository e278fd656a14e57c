"""Ratings on the device: those of one item (or user) next to each other, cut into segments of bounded length.

A segment is what one program sums. A popular item has many, so that no program works while all others wait; its
gradient is the sum of theirs, always in the same order. Segments begin with the longest ones.

Where the other side's factors do not fit the second-level cache, ratings are sorted by blocks of partners first: all
programs that run at a time then gather from the same few megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SEGMENT = 2048
"""Most ratings in a segment: long enough to pay for writing its sum, short enough to be spread over the device."""

CACHE_BYTES = 32 * 2**20
"""Factors to gather from at a time: about half of an H200's second-level cache, whose halves mirror each other."""


@dataclass(frozen=True, slots=True, repr=False)
class Side:
    """Ratings sorted for one pass.

    Attributes:
        n_rows: Items in the item pass, users in the user pass.
        n_ratings: Ratings; they may be elsewhere, and come in parts.
        partner: The other side of each rating (int32).
        start: Where each segment begins (int64).
        length: Ratings of each segment (int32).
        row: The row that each segment belongs to (int32).
        first: Where each row's list of segments begins in ``parts``, and the end of the last (int32).
        parts: Segments, row after row, in the order in which they are summed (int32).
    """

    n_rows: int
    n_ratings: int
    partner: Tensor
    start: Tensor
    length: Tensor
    row: Tensor
    first: Tensor
    parts: Tensor

    @property
    def n_segments(self) -> int:
        """How many segments there are."""
        return len(self.row)

    def row_of_ratings(self) -> Tensor:
        """The row of each rating."""
        by_place = torch.argsort(self.start)
        return torch.repeat_interleave(self.row[by_place].long(), self.length[by_place].long())


def lay_out(
    rows: Tensor,
    partners: Tensor,
    n_rows: int,
    n_partners: int,
    columns: Sequence[Tensor],
    row_bytes: int,
    segment: int = SEGMENT,
    cache_bytes: int = CACHE_BYTES,
) -> tuple[Side, list[Tensor]]:
    """Sort ratings for a pass.

    Args:
        rows: Row of each rating.
        partners: The other side of each.
        n_rows: How many rows there are.
        n_partners: How many partners.
        columns: Further facts of each rating along the last dimension, to be brought into the same order.
        row_bytes: What gathering one partner's factors moves.
        segment: Most ratings in a segment.
        cache_bytes: Gather from at most about so much at a time.
    """
    block = partners_per_block(n_partners, row_bytes, cache_bytes)
    key, order = sort_keys(rows, partners, n_rows, n_partners, block)
    partner = (key % n_partners).int()
    groups, counts = torch.unique_consecutive(key // n_partners, return_counts=True)
    del key
    side = segments(groups, counts, partner, n_rows, segment)
    return side, [column[..., order].contiguous() for column in columns]


def groups_of(rows: Tensor, partners: Tensor, n_rows: int, block: int) -> Tensor:
    """The number of each rating's group: ratings are sorted by blocks of partners, then by rows."""
    return (partners // block).long() * n_rows + rows


def sort_keys(rows: Tensor, partners: Tensor, n_rows: int, n_partners: int, block: int) -> tuple[Tensor, Tensor]:
    """Sorted keys (group times number of partners, plus partner) and the places where they were."""
    key, order = torch.sort(groups_of(rows, partners, n_rows, block) * n_partners + partners, stable=True)
    return key, order


def partners_per_block(n_partners: int, row_bytes: int, cache_bytes: int = CACHE_BYTES) -> int:
    """How many partners to gather from at a time; all of them where they nearly fit."""
    total = n_partners * row_bytes
    # A second block costs another round of partial sums, so a little over the measure is taken in one.
    blocks = 1 if total <= 1.25 * cache_bytes else -(-total // cache_bytes)
    return -(-n_partners // blocks) if n_partners else 1


def segments(
    groups: Tensor, counts: Tensor, partner: Tensor, n_rows: int, segment: int = SEGMENT, longest_first: bool = True
) -> Side:
    """Cut groups of sorted ratings into segments.

    Args:
        groups: Numbers of the groups that have ratings.
        counts: Ratings of each.
        partner: The other side of each rating, in order.
        n_rows: How many rows there are.
        segment: Most ratings in a segment.
        longest_first: Number segments in the order in which they should be begun; or else by their places.
    """
    device = groups.device
    begins = torch.cumsum(counts, 0) - counts
    pieces = (counts + segment - 1) // segment
    group_of = torch.repeat_interleave(torch.arange(len(groups), device=device), pieces)
    piece = torch.arange(len(group_of), device=device) - (torch.cumsum(pieces, 0) - pieces)[group_of]
    start = begins[group_of] + piece * segment
    length = torch.clamp(counts[group_of] - piece * segment, max=segment)
    row, block = groups[group_of] % n_rows, groups[group_of] // n_rows
    if longest_first:
        # Block after block, so that programs that run together share a block; in a block the longest first.
        schedule = torch.argsort(block * (segment + 1) - length, stable=True)
        start, length, row = start[schedule], length[schedule], row[schedule]
    # A row's segments are summed in the order of their places, whatever the schedule.
    by_place = torch.argsort(start)
    parts = by_place[torch.argsort(row[by_place], stable=True)]
    first = torch.zeros(n_rows + 1, dtype=torch.int64, device=device)
    first[1:] = torch.cumsum(torch.bincount(row, minlength=n_rows), 0)
    return Side(n_rows, int(counts.sum()), partner, start, length.int(), row.int(), first.int(), parts.int())
