"""Ratings as they are given to a solver, and the choice of an engine for them."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

MAX_VIEWS = 32
"""A view is a bit of a 32-bit word."""


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Ratings on a device, in any order.

    Attributes:
        users: User of each rating (int32).
        items: Item of each rating (int32).
        target: What the model should predict, of shape (views, ratings) or (1, ratings) where views share it.
        coefficient: How much a residual counts in the item pass, in the same way, or None where all count 1.
        members: Bit v of each says whether it is in view v (int32), or None where there is one view of all.
    """

    users: Tensor
    items: Tensor
    target: Tensor
    n_users: int
    n_items: int
    coefficient: Tensor | None = None
    members: Tensor | None = None
    n_views: int = 1

    @property
    def device(self) -> torch.device:
        """Where the ratings are."""
        return self.users.device

    @property
    def n(self) -> int:
        """Ratings."""
        return len(self.users)

    def counts(self, rows: Tensor, n_rows: int) -> Tensor:
        """Ratings of each row in each view, of shape (views, rows)."""
        if self.members is None:
            return torch.bincount(rows, minlength=n_rows)[None]
        return torch.stack(
            [torch.bincount(rows[(self.members >> view & 1).bool()], minlength=n_rows) for view in range(self.n_views)]
        )


def of_view(table: Table, view: int) -> Table:
    """The ratings of one view as a table of their own."""
    target = table.target[min(view, len(table.target) - 1)]
    if table.members is None:
        return Table(table.users, table.items, target[None], table.n_users, table.n_items)
    member = (table.members >> view & 1).bool()
    return Table(table.users[member], table.items[member], target[member][None], table.n_users, table.n_items)


def engine_for(device: torch.device) -> ModuleType:
    """The engine for tensors on ``device``."""
    if device.type == "cpu":
        from hdpmf.gpu import torch_engine

        return torch_engine
    from hdpmf.gpu import triton_engine

    return triton_engine
