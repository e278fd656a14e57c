"""Training on a GPU: batch (Algorithm 1) and sequential, as published."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_engine as engine
from hdpmf.private.kernels.gpu.layout import (
    Table,
    Visits,
    begins,
    lay_out,
    pad,
    padded,
    ranked,
    shuffled,
)


@dataclass(frozen=True, slots=True)
class GpuRun:
    """What is trained, and how.

    Attributes:
        solver: ``batch`` or ``sequential``.
        rates: The learning rate of each epoch.
        seed: Of the noise, and of the orders of ratings.
        noise: ``none``, ``item`` (Laplace, h per item) or ``shared`` (one h for all items).
        noise_scale: Scale b of the noise.
        fresh_noise: Draw the noise anew in every epoch.
        unit_ball: Keep user vectors in the unit ball.
        scale_steps: In ``batch``, divide a step by the square root of the number of ratings behind
            it.
    """

    solver: str
    n_factors: int
    rates: tuple[float, ...]
    reg: float
    seed: int
    noise: str = "none"
    noise_scale: float = 0.0
    fresh_noise: bool = True
    unit_ball: bool = True
    scale_steps: bool = True


class GpuTraining:
    """A training on a table of ratings.

    Args:
        first_users: First user vectors, one row per user.
        first_items: First item factors, in the same way.

    Attributes:
        U: User vectors, padded; changed by every epoch.
        V: Item factors, in the same way.
        raters: Ratings of each item.
    """

    def __init__(
        self,
        table: Table,
        run: GpuRun,
        first_users: np.ndarray | Tensor,
        first_items: np.ndarray | Tensor,
    ) -> None:
        self._run = run
        self.U, self.V = (
            pad(torch.as_tensor(first, dtype=torch.float32).to(table.device))
            for first in (first_users, first_items)
        )
        self.raters = torch.bincount(table.items, minlength=table.n_items)
        self._solver = (BatchSolver if run.solver == "batch" else SequentialSolver)(table, run)

    def epochs(self) -> Iterator[int]:
        """Train, and yield each epoch's number once its work is queued; the GPU may still run."""
        for number, rate in enumerate(self._run.rates, start=1):
            self._solver.epoch(self.U, self.V, rate, number)
            yield number

    def finish(self) -> None:
        """Train to the end."""
        for _ in self.epochs():
            pass

    def vectors(self) -> np.ndarray:
        """A copy of the user vectors, on the host."""
        return np.array(self.U[:, : self._run.n_factors].cpu().numpy())

    def factors(self) -> np.ndarray:
        """A copy of the item factors, on the host."""
        return np.array(self.V[:, : self._run.n_factors].cpu().numpy())


class BatchSolver:
    """Ratings laid out for both passes; factors are the caller's."""

    def __init__(self, table: Table, run: GpuRun) -> None:
        self._run = run
        raters = torch.bincount(table.items, minlength=table.n_items)
        self._item_steps = steps_of(raters, run.scale_steps) * (raters > 0)
        rated = torch.bincount(table.users, minlength=table.n_users)
        self._user_steps = steps_of(rated, run.scale_steps)
        row_bytes = 4 * padded(run.n_factors)
        self._by_item, self._by_user = (lay_out(table, one, row_bytes) for one in (True, False))

    def epoch(self, U: Tensor, V: Tensor, rate: float, number: int) -> None:
        """One epoch, in place; the same number draws the same noise again."""
        run = self._run
        sums = engine.residual_sums(self._by_item, V, U)
        epoch = number if run.fresh_noise else 0
        engine.step(self._by_item, sums, V, run, self._item_steps, rate, noise=True, epoch=epoch)
        sums = engine.residual_sums(self._by_user, U, V)
        engine.step(self._by_user, sums, U, run, self._user_steps, rate, unit_ball=run.unit_ball)


def steps_of(counts: Tensor, scale_steps: bool) -> Tensor:
    """The factor of each row's step: one over the square root of its ratings, or 1."""
    return (
        torch.rsqrt(counts.clamp(min=1).float())
        if scale_steps
        else torch.ones_like(counts, dtype=torch.float32)
    )


class SequentialSolver:
    """Private methods, one noisy step per rating, in an order drawn from the seed."""

    def __init__(self, table: Table, run: GpuRun) -> None:
        self._run = run
        self._table = table
        raters = torch.bincount(table.items, minlength=table.n_items)
        self._shares = steps_of(raters, scale_steps=True)
        self._begins = (begins(table.items, table.n_items), begins(table.users, table.n_users))
        self._ranked = tuple(map(ranked, self._begins))

    def epoch(self, U: Tensor, V: Tensor, rate: float, number: int) -> None:
        """One epoch, in place.

        Noise that is not fresh is that of epoch 0 and belongs to its rating, so items keep their
        order.
        """
        run = self._run
        drawn = number if run.fresh_noise else None
        visits = self._visits(drawn, by_item=True)
        engine.visit_ratings(visits, V, U, run, rate, shares=self._shares, epoch=drawn or 0)
        visits = self._visits(number, by_item=False)
        engine.visit_ratings(visits, U, V, run, rate, unit_ball=True)

    def _visits(self, epoch: int | None, by_item: bool) -> Visits:
        table, side = self._table, 0 if by_item else 1
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        keys = None
        # Items and users take turns in drawing, so that their orders have nothing in common.
        if epoch is not None:
            keys = engine.random_words(self._run.seed, table.users, table.items, 2 * epoch + side)
        order = shuffled(rows, keys)
        return Visits(
            self._begins[side],
            partners[order],
            table.target[order],
            table.coefficient[order] if table.coefficient is not None and by_item else None,
            self._ranked[side],
        )
