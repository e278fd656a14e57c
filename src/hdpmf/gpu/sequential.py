"""The published procedure on a device, for many runs at once: one step per rating, row beside row.

In the item pass users are fixed, so an item depends on its own ratings alone and all items step at the same time (and
so do users, in the user pass), with the distribution of the serial loop.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from hdpmf.gpu.batch import steps_of
from hdpmf.gpu.columns import RatingColumns, RunTensors
from hdpmf.gpu.orders import Visits, begins, ranked, shuffled
from hdpmf.gpu.table import Table, engine_for


class SequentialSolver:
    """Private methods, one noisy step per rating.

    Runs that are trained together visit ratings in the same random order, drawn from ``seed``; a run skips what is not
    in its view, which leaves the order that it would have alone.

    Args:
        seed: Of the orders.
        engine: Does the passes; by default the one for the table's device.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, n_factors: int, seed: int, engine: ModuleType | None = None) -> None:
        self.n_factors = n_factors
        self._table = table
        self._seed = seed
        self._engine = engine or engine_for(table.users.device)
        self.raters = table.counts(table.items, table.n_items)
        self._shares = steps_of(self.raters, scale_steps=True)
        self._begins = (begins(table.items, table.n_items), begins(table.users, table.n_users))
        self._ranked = tuple(map(ranked, self._begins))

    def epoch(
        self,
        U: Tensor,
        V: Tensor,
        runs: RunTensors,
        rates: Tensor,
        number: int,
        noise: str = "none",
        fresh: bool = True,
    ) -> None:
        """One epoch, in place; the arguments are those of ``BatchSolver.epoch``.

        With ``fresh`` False the noise is that of epoch 0 and belongs to its rating, so items keep their order.
        """
        visits, columns = self._visits(number if fresh else None, by_item=True)
        self._engine.visit_ratings(
            visits, columns, runs, V, U, rates, self.n_factors,
            noise=noise, shares=self._shares, epoch=number if fresh else 0,
        )  # fmt: skip
        visits, columns = self._visits(number, by_item=False)
        self._engine.visit_ratings(visits, columns, runs, U, V, rates, self.n_factors, unit_ball=True)

    def _visits(self, epoch: int | None, by_item: bool) -> tuple[Visits, RatingColumns]:
        table, side = self._table, 0 if by_item else 1
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        keys = None
        if epoch is not None:  # items and users take turns in drawing, so that their orders have nothing in common
            keys = self._engine.random_words(self._seed, table.users, table.items, 2 * epoch + side)
        order = shuffled(rows, keys)
        columns = RatingColumns(
            table.target[:, order],
            table.coefficient[:, order] if table.coefficient is not None and by_item else None,
            None if table.members is None else table.members[order],
        )
        return Visits(self._begins[side], partners[order], self._ranked[side]), columns
