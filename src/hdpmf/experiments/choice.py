"""Choosing hyper-parameters from finished cross-validation runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hdpmf.experiments.expand import Choices, Place, places, tuning_cells
from hdpmf.experiments.spec import Experiment
from hdpmf.experiments.store import Result


@dataclass(frozen=True, slots=True)
class Measured:
    """One combination of a grid with its cross-validated numbers.

    Attributes:
        values: The hyper-parameters.
        mse: Mean over the folds; infinite where a fold diverged or failed; NaN where a fold is missing, or where
            there was nothing to choose.
        mae: The same.
        ndcg: NDCG@10, where the choice is by it; NaN elsewhere.
        status: ``done``, ``diverged``, ``failed``, ``missing`` (of any fold), or ``single`` (nothing to choose).
        run_ids: The runs, one per fold.
    """

    values: dict[str, float]
    mse: float
    mae: float
    status: str
    run_ids: tuple[str, ...]
    ndcg: float = math.nan


def measured(experiment: Experiment, place: Place, results: Mapping[str, Result]) -> list[Measured]:
    """The grid at one place with what is known about it, in the order of the grid."""
    rows = []
    for values, runs in tuning_cells(experiment, place):
        ids = tuple(run.id for run in runs)
        if not runs:
            rows.append(Measured(values, math.nan, math.nan, "single", ids))
            continue
        folds = [results[run] for run in ids if run in results]
        status = worst_status(folds, len(ids), ("diverged", "failed", "missing", "done"))
        if status == "missing":
            rows.append(Measured(values, math.nan, math.nan, status, ids))
            continue
        mse, mae, ndcg = (
            math.fsum(fold.metric(name) for fold in folds) / len(folds) for name in ("mse", "mae", "ndcg_at_10")
        )
        rows.append(Measured(values, mse, mae, status, ids, ndcg))
    return rows


def worst_status(results: Sequence[Result], wanted: int, order: Sequence[str]) -> str:
    """The first status in ``order`` that any of the results has; ``missing`` where there are fewer than wanted."""
    states = {result.status for result in results} | ({"missing"} if len(results) < wanted else set())
    return next(status for status in order if status in states)


def best(grid: list[Measured], by: str = "mse") -> Measured | None:
    """The combination with the lowest MSE, or the highest NDCG (``ndcg_at_10``), the first of equals.

    None while any is missing or where none is usable. A combination with a diverged or failed fold is never chosen.
    """
    if len(grid) == 1 and grid[0].status == "single":
        return grid[0]
    if any(row.status == "missing" for row in grid):
        return None

    def cost(row: Measured) -> float:
        return -row.ndcg if by == "ndcg_at_10" else row.mse

    return min((row for row in grid if row.status == "done" and math.isfinite(cost(row))), key=cost, default=None)


def choices(experiment: Experiment, results: Mapping[str, Result]) -> Choices:
    """The chosen hyper-parameters wherever they are known."""
    chosen = {}
    for place in places(experiment):
        winner = best(measured(experiment, place, results), experiment.tuning.by)
        if winner is not None:
            chosen[place] = winner.values
    return chosen
