"""Runs that are trained together, epoch after epoch, with any solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hdpmf.private.kernels.gpu.layout import RunTensors, Table, pad
from hdpmf.private.kernels.gpu.solvers import BatchSolver, Recipe, SequentialSolver


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One of the runs.

    Attributes:
        rates: Its learning rate in each epoch.
        seed: Of its noise, and of the orders of ratings.
        noise_scale: Scale b of its noise.
        view: The view of the table that it trains on.
    """

    rates: tuple[float, ...]
    reg: float
    seed: int
    noise_scale: float = 0.0
    view: int = 0


class GpuTraining:
    """Runs that are trained together on one table of ratings.

    The result of a run does not depend on which others are trained beside it.

    Args:
        table: The ratings.
        recipe: What the runs share.
        runs: The runs, all of the same number of epochs. In ``sequential`` all have the same seed:
            orders are shared.
        first_users: First user vectors, one row per user and the same for all runs, or (users,
            runs, K).
        first_items: First item factors, in the same way.

    Attributes:
        U: User vectors, padded, of shape (users, runs, width); changed by every epoch.
        V: Item factors, in the same way.
        raters: Ratings of each item in each view.
    """

    def __init__(
        self,
        table: Table,
        recipe: Recipe,
        runs: Sequence[GpuRun],
        first_users: np.ndarray | Tensor,
        first_items: np.ndarray | Tensor,
    ) -> None:
        device = table.device
        self._recipe = recipe
        self._tensors = RunTensors(
            view=torch.tensor([run.view for run in runs], dtype=torch.int32, device=device),
            reg=torch.tensor([run.reg for run in runs], dtype=torch.float32, device=device),
            seed=torch.tensor([run.seed for run in runs], dtype=torch.int64, device=device),
            noise_scale=torch.tensor(
                [run.noise_scale for run in runs], dtype=torch.float32, device=device
            ),
        )
        self._rates = torch.tensor(
            [run.rates for run in runs], dtype=torch.float32, device=device
        ).T.contiguous()
        self.U, self.V = (_first(given, len(runs), device) for given in (first_users, first_items))
        self._solver = (
            BatchSolver(table, recipe)
            if recipe.solver == "batch"
            else SequentialSolver(table, recipe, runs[0].seed)
        )
        self.raters = self._solver.raters

    def epochs(self) -> Iterator[int]:
        """Train, and yield each epoch's number once its work is queued; the GPU may still run."""
        for number in range(1, len(self._rates) + 1):
            self._solver.epoch(self.U, self.V, self._tensors, self._rates[number - 1], number)
            yield number

    def finish(self) -> None:
        """Train to the end."""
        for _ in self.epochs():
            pass

    def vectors(self, run: int = 0) -> np.ndarray:
        """A copy of the user vectors of one run, on the host."""
        return np.array(self.U[:, run, : self._recipe.n_factors].cpu().numpy())

    def factors(self, run: int = 0) -> np.ndarray:
        """A copy of the item factors of one run, on the host."""
        return np.array(self.V[:, run, : self._recipe.n_factors].cpu().numpy())


def _first(given: np.ndarray | Tensor, n_runs: int, device: torch.device) -> Tensor:
    first = torch.as_tensor(given, dtype=torch.float32).to(device)
    if first.ndim == 2:
        first = first[:, None, :].expand(-1, n_runs, -1)
    return pad(first)
