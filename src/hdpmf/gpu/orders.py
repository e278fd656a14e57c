"""Random orders for the sequential solver: anew in every epoch, uniform, the same for the same seed.

Ratings get random words and are sorted by them within their rows. Ties among 32-bit words keep the order of the table;
one pair in four billion is too few to matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, repr=False)
class Visits:
    """Which ratings each row visits.

    Attributes:
        begin: Where each row's ratings begin, and the end of the last (int64).
        partner: The other side of each rating, in the order of visits (int32).
        ranked: Rows, those with most ratings first (int32): rows that are done side by side are equally long.
    """

    begin: Tensor
    partner: Tensor
    ranked: Tensor


@dataclass(frozen=True, slots=True, repr=False)
class Queues:
    """Several orders of ratings one after another, each item after item: who is to be served when.

    Attributes:
        base: Where each order begins, and the end of the last (int64).
        view: The view that each order is of (int32).
        begin: For each view, where each item's queue begins after the base, and the end of the last (int64).
        user: The user of each place (int32).
        turn: Which of that user's ratings it is, from 0 (int32).
    """

    base: Tensor
    view: Tensor
    begin: Tensor
    n_users: int
    user: Tensor
    turn: Tensor


@dataclass(frozen=True, slots=True, repr=False)
class Levels:
    """One order for each view, cut into levels of ratings that share neither user nor item.

    Attributes:
        first: Where each view's levels begin in ``start``, and the end of the last view's (int32).
        start: Where each level begins; each view's list ends with the end of its last level (int64).
        users: Users, view after view and level after level (int32).
        items: Items (int32).
        target: What the model should predict.
    """

    first: Tensor
    start: Tensor
    users: Tensor
    items: Tensor
    target: Tensor


def begins(rows: Tensor, n_rows: int) -> Tensor:
    """Where each row begins in a table sorted by rows, and the end of the last."""
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
