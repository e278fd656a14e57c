"""Algorithm 1 on a device, for many runs at once: item gradients, noise and step, then one step of every user."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from hdpmf.gpu.columns import RatingColumns, RunTensors, padded
from hdpmf.gpu.layout import Side, lay_out
from hdpmf.gpu.table import Table, engine_for


class BatchSolver:
    """Ratings laid out for both passes; factors are the caller's.

    Args:
        scale_steps: Divide a step by the square root of the number of ratings behind it.
        engine: Does the passes; by default the one for the table's device.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(
        self, table: Table, n_factors: int, scale_steps: bool = True, engine: ModuleType | None = None
    ) -> None:
        self.n_factors = n_factors
        self.n_users = table.n_users
        self._engine = engine or engine_for(table.users.device)
        self.raters = table.counts(table.items, table.n_items)
        self._item_steps = steps_of(self.raters, scale_steps) * (self.raters > 0)
        self._user_steps = steps_of(table.counts(table.users, table.n_users), scale_steps)
        self._by_item, self._item_columns = self._side(table, by_item=True)
        # The coefficient protects what is sent; a device fits its own vector to all that it knows.
        self._by_user, self._user_columns = self._side(table, by_item=False)

    def _side(self, table: Table, by_item: bool) -> tuple[Side, RatingColumns]:
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        n_rows, n_partners = (table.n_items, table.n_users) if by_item else (table.n_users, table.n_items)
        given = (table.target, table.coefficient if by_item else None, table.members)
        side, sorted_columns = lay_out(
            rows,
            partners,
            n_rows,
            n_partners,
            [column for column in given if column is not None],
            4 * padded(self.n_factors),
        )
        columns = iter(sorted_columns)
        return side, RatingColumns(*(None if column is None else next(columns) for column in given))  # type: ignore[arg-type]

    def epoch(
        self,
        U: Tensor,
        V: Tensor,
        runs: RunTensors,
        rates: Tensor,
        number: int,
        noise: str = "none",
        unit_ball: bool = True,
    ) -> None:
        """One epoch, in place.

        Args:
            U: User vectors, padded, of shape (users, runs, width).
            V: Item factors, in the same way.
            runs: The runs.
            rates: Learning rate of each run.
            number: Selects the noise; the same number draws the same again.
            noise: See ``torch_engine.step``.
            unit_ball: Keep user vectors in the unit ball.
        """
        engine, by_item, by_user = self._engine, self._by_item, self._by_user
        sums = engine.residual_sums(by_item, self._item_columns, runs, V, U)
        engine.step(by_item, sums, V, runs, self._item_steps, rates, self.n_factors, noise=noise, epoch=number)
        sums = engine.residual_sums(by_user, self._user_columns, runs, U, V)
        engine.step(by_user, sums, U, runs, self._user_steps, rates, self.n_factors, unit_ball=unit_ball)


def steps_of(counts: Tensor, scale_steps: bool) -> Tensor:
    """The factor of each row's step: one over the square root of its ratings, or 1."""
    return torch.rsqrt(counts.clamp(min=1).float()) if scale_steps else torch.ones_like(counts, dtype=torch.float32)
