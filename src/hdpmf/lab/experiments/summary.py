"""Summaries of results by table cell, with means, deviations and the paper's t-test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from hdpmf.common.data import dataset_info, dataset_names
from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments.execution import RANKED
from hdpmf.lab.experiments.expansion import (
    cell_configurations,
    choices,
    chosen_by_seed,
    evaluation_runs,
    worst_status,
)
from hdpmf.lab.experiments.spec import Experiment
from hdpmf.lab.experiments.store import METRICS, Result, Store, StoredClaim
from hdpmf.models.ranking_metrics import METRICS as LIST_METRICS
from hdpmf.models.result_tables import PairTest, all_pairs, stars_at
from hdpmf.models.validation import user_means


@dataclass(frozen=True, slots=True)
class Summary:
    """Values of one metric over seeds.

    Attributes:
        values: In the order of the seeds.
        mean: Infinite if a run diverged.
        std: With n - 1 in the denominator; NaN for a single value or an infinite mean.
    """

    values: tuple[float, ...]
    mean: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarize values."""
        n = len(values)
        if n == 0:
            return cls((), math.nan, math.nan)
        mean = math.fsum(values) / n if all(map(math.isfinite, values)) else math.inf
        if n == 1 or not math.isfinite(mean):
            return cls(tuple(values), mean, math.nan)
        return cls(
            tuple(values), mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        )


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairTest:
    """Compare errors of two methods over the same seeds (the paper: HDPMF against PDPMF).

    The paper says "t-test for means of paired two sample" and not whether one- or two-sided; this
    is two-sided, the stricter of the two. An error that is infinite leaves nothing to test.
    """
    if not all(map(math.isfinite, (*first, *second))):
        return PairTest("first", "second", math.nan, len(first), math.nan, math.nan)
    (test,) = all_pairs({"first": first, "second": second})
    return test


RANKING = (*(f"{name}_at_{RANKED}" for name in LIST_METRICS), f"ndcg_margin_at_{RANKED}")
"""In a cell's metrics where all of its finished runs have them: of lists, and the 95 % interval
over users of the first (one side)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table, or one point of a curve.

    Attributes:
        dataset_title: The display name, as "Yelp sample".
        label: The display name of the method.
        in_paper: True if the paper shows this method here.
        x: Position on the axis; None in a table.
        metrics: Summaries over the seeds of ``METRICS`` (empty for methods that predict no
            ratings), and of ``RANKING`` and ``n_off_scale`` (with ``n_all``) if they were measured.
        status: ``done``, ``diverged``, ``failed`` (any of its runs) or ``missing`` (some runs).
        hyperparameters: Chosen values, one for each seed where they differ; empty if there was no
            choice.
        run_ids: In the order of the seeds.
    """

    experiment: str
    dataset: str
    dataset_title: str
    method: str
    label: str
    in_paper: bool
    factors: int
    x: float | None
    metrics: dict[str, Summary]
    status: str
    hyperparameters: dict[str, float | tuple[float, ...]]
    run_ids: tuple[str, ...]
    claim: StoredClaim | None

    def summary(self, metric: str) -> Summary:
        """Return a metric's summary; an empty one if it was not measured."""
        return self.metrics.get(metric, Summary.of(()))

    @property
    def mse(self) -> Summary:
        """Mean squared error, as the paper measures it."""
        return self.metrics["mse"]


def dataset_title(name: str) -> str:
    """Return the display name of a data set."""
    return dataset_info(name).title if name in dataset_names() else name


def collect(
    store: Store, experiment: Experiment | str, results: Mapping[str, Result] | None = None
) -> list[Cell]:
    """Return all cells of an experiment, in the order data set, method, K, x.

    ``results`` are ``store.results()``, if these have been read already.
    """
    if isinstance(experiment, str):
        experiment = store.experiments()[experiment]
    results = store.results() if results is None else results
    chosen = choices(experiment, results)
    cells = []
    for configuration, tuned, x in cell_configurations(experiment):
        values = chosen_by_seed(experiment, tuned, chosen)
        runs = evaluation_runs(experiment, configuration, values, x)
        ended = [results[run.id] for run in runs if run.id in results]
        order = ("failed", "diverged", "missing", "done")
        method = METHODS[configuration.method]
        claims = [replace(one.claim, unit=method.unit) for one in ended if one.claim is not None]
        cells.append(
            Cell(
                experiment=experiment.name,
                dataset=configuration.dataset,
                dataset_title=dataset_title(configuration.dataset),
                method=configuration.method,
                label=method.label,
                in_paper=configuration.method in experiment.paper_methods,
                factors=configuration.factors,
                x=None if x is None else float(x),
                metrics=_summaries(ended),
                status=worst_status(ended, len(experiment.seeds), order),
                hyperparameters=_together(values),
                run_ids=tuple(run.id for run in runs),
                claim=claims[0] if claims else None,
            )
        )
    return cells


def _together(chosen: Sequence[Mapping[str, float]]) -> dict[str, float | tuple[float, ...]]:
    """Return the values of all seeds: one where they agree."""
    found: dict[str, float | tuple[float, ...]] = {}
    for name in chosen[0] if chosen else ():
        values = tuple(each[name] for each in chosen)
        found[name] = values[0] if len({*values}) == 1 else values
    return found


def _summaries(ended: Sequence[Result]) -> dict[str, Summary]:
    """Summarize errors, and all else that every one of these results has."""
    further = [
        name
        for name in (*RANKING, "n_off_scale")
        if ended and all(name in result.metrics for result in ended)
    ]
    if "n_off_scale" in further:
        further.append("n_all")
    values = {
        name: [value for result in ended if not math.isnan(value := result.metric(name))]
        for name in (*METRICS, *further)
    }
    return {name: Summary.of(of_name) for name, of_name in values.items()}


Tests = dict[tuple[str, int], dict[str, list[PairTest]]]
"""Tests of all pairs of methods, by data set and K, and by measure."""


def user_tests(cells: Sequence[Cell], store: Store) -> Tests:
    """Test all pairs of methods over users, each by their mean over the seeds.

    Methods whose runs did not keep users' measures are left out.
    """
    samples: dict[tuple[str, int], dict[str, dict[str, np.ndarray]]] = {}
    for cell in cells:
        parts = [store.users(run) for run in cell.run_ids] if cell.x is None else []
        if (
            cell.status == "done"
            and parts
            and all(part.keys() == parts[0].keys() for part in parts)
        ):
            place = samples.setdefault((cell.dataset, cell.factors), {})
            for metric, values in user_means(parts).items():
                place.setdefault(metric, {})[cell.method] = values
    tests: Tests = {}
    for where, by_metric in samples.items():
        for metric, of in by_metric.items():
            if len(of) > 1:
                tests.setdefault(where, {})[metric] = all_pairs(of)
    return tests


def stars_of_best(tests: Sequence[PairTest], method: str, *, lowest: bool = True) -> int:
    """Return the stars of a method against every other one, after Holm's correction."""
    found = 3
    for test in tests:
        if method in (test.first, test.second):
            ahead = (test.difference < 0) == ((method == test.first) == lowest)
            found = min(found, stars_at(test.t_holm) if ahead else 0)
    return found if any(method in (test.first, test.second) for test in tests) else 0


def compare(
    cells: list[Cell], first: str, second: str, metric: str = "mse"
) -> dict[tuple[str, int, float | None], PairTest]:
    """Test two methods, by data set, K and x, wherever both are complete."""
    by_position = {
        (cell.method, cell.dataset, cell.factors, cell.x): cell
        for cell in cells
        if cell.status == "done"
    }
    tests = {}
    for cell in by_position.values():
        other = by_position.get((second, cell.dataset, cell.factors, cell.x))
        if cell.method == first and other is not None:
            tests[cell.dataset, cell.factors, cell.x] = paired_test(
                cell.metrics[metric].values, other.metrics[metric].values
            )
    return tests
