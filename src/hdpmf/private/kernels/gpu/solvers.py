"""Solvers on a GPU for many runs at once: batch (Algorithm 1) and sequential, as published."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_engine as engine
from hdpmf.private.kernels.gpu.layout import (
    RatingColumns,
    RunTensors,
    Side,
    Table,
    Visits,
    begins,
    lay_out,
    padded,
    ranked,
    shuffled,
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters that runs trained together have in common.

    Attributes:
        solver: ``batch`` or ``sequential``.
        noise: ``none``, ``item`` (Laplace, h per item) or ``shared`` (one h for all items).
        fresh_noise: Draw the noise anew in every epoch.
        unit_ball: Keep user vectors in the unit ball.
        scale_steps: In ``batch``, divide a step by the square root of the number of ratings behind
            it.
    """

    solver: str
    n_factors: int
    noise: str = "none"
    fresh_noise: bool = True
    unit_ball: bool = True
    scale_steps: bool = True


class BatchSolver:
    """Ratings laid out for both passes; factors are the caller's.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, recipe: Recipe) -> None:
        self._recipe = recipe
        self.raters = table.counts(table.items, table.n_items)
        self._item_steps = steps_of(self.raters, recipe.scale_steps) * (self.raters > 0)
        rated = table.counts(table.users, table.n_users)
        self._user_steps = steps_of(rated, recipe.scale_steps)
        self._by_item, self._item_columns = self._side(table, by_item=True)
        # The coefficient protects what is sent; a device fits its own vector to all that it knows.
        self._by_user, self._user_columns = self._side(table, by_item=False)

    def _side(self, table: Table, by_item: bool) -> tuple[Side, RatingColumns]:
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        n_rows, n_partners = (
            (table.n_items, table.n_users) if by_item else (table.n_users, table.n_items)
        )
        given = (table.target, table.coefficient if by_item else None, table.members)
        side, sorted_columns = lay_out(
            rows,
            partners,
            n_rows,
            n_partners,
            [column for column in given if column is not None],
            4 * padded(self._recipe.n_factors),
        )
        columns = iter(sorted_columns)
        return side, RatingColumns(*(None if column is None else next(columns) for column in given))  # type: ignore[arg-type]

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor, number: int) -> None:
        """One epoch, in place.

        Args:
            U: User vectors, padded, of shape (users, runs, width).
            V: Item factors, in the same way.
            rates: Learning rate of each run.
            number: Selects the noise; the same number draws the same again.
        """
        recipe = self._recipe
        sums = engine.residual_sums(self._by_item, self._item_columns, runs, V, U)
        engine.step(
            self._by_item, sums, V, runs, self._item_steps, rates,
            recipe.n_factors, noise=recipe.noise, epoch=number if recipe.fresh_noise else 0,
        )  # fmt: skip
        sums = engine.residual_sums(self._by_user, self._user_columns, runs, U, V)
        engine.step(
            self._by_user, sums, U, runs, self._user_steps, rates,
            recipe.n_factors, unit_ball=recipe.unit_ball,
        )  # fmt: skip


def steps_of(counts: Tensor, scale_steps: bool) -> Tensor:
    """The factor of each row's step: one over the square root of its ratings, or 1."""
    return (
        torch.rsqrt(counts.clamp(min=1).float())
        if scale_steps
        else torch.ones_like(counts, dtype=torch.float32)
    )


class SequentialSolver:
    """Private methods, one noisy step per rating.

    Runs that are trained together visit ratings in the same random order, drawn from ``seed``; a
    run skips what is not in its view, which leaves the order that it would have alone.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, recipe: Recipe, seed: int) -> None:
        self._recipe = recipe
        self._table = table
        self._seed = seed
        self.raters = table.counts(table.items, table.n_items)
        self._shares = steps_of(self.raters, scale_steps=True)
        self._begins = (begins(table.items, table.n_items), begins(table.users, table.n_users))
        self._ranked = tuple(map(ranked, self._begins))

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor, number: int) -> None:
        """One epoch, in place; the arguments are those of ``BatchSolver.epoch``.

        Noise that is not fresh is that of epoch 0 and belongs to its rating, so items keep their
        order.
        """
        recipe = self._recipe
        drawn = number if recipe.fresh_noise else None
        visits, columns = self._visits(drawn, by_item=True)
        engine.visit_ratings(
            visits, columns, runs, V, U, rates, recipe.n_factors,
            noise=recipe.noise, shares=self._shares, epoch=drawn or 0,
        )  # fmt: skip
        visits, columns = self._visits(number, by_item=False)
        engine.visit_ratings(visits, columns, runs, U, V, rates, recipe.n_factors, unit_ball=True)

    def _visits(self, epoch: int | None, by_item: bool) -> tuple[Visits, RatingColumns]:
        table, side = self._table, 0 if by_item else 1
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        keys = None
        # Items and users take turns in drawing, so that their orders have nothing in common.
        if epoch is not None:
            keys = engine.random_words(self._seed, table.users, table.items, 2 * epoch + side)
        order = shuffled(rows, keys)
        columns = RatingColumns(
            table.target[:, order],
            table.coefficient[:, order] if table.coefficient is not None and by_item else None,
            None if table.members is None else table.members[order],
        )
        return Visits(self._begins[side], partners[order], self._ranked[side]), columns
