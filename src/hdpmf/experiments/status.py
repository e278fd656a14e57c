"""How far an experiment is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hdpmf.experiments.runner import expected_runs, final_runs, tuning_runs, unfinished
from hdpmf.experiments.spec import Experiment
from hdpmf.experiments.store import Result


@dataclass(frozen=True, slots=True)
class ExperimentStatus:
    """How far an experiment is.

    Attributes:
        name: Of the experiment.
        quick: Whether it is the reduced version.
        tuning_runs: Cross-validation runs in all.
        tuning_done: Of these, how many ended.
        evaluation_runs: Evaluation runs in all (an estimate until everything is tuned).
        evaluation_done: Of these, how many ended.
        diverged: Runs that ran away.
        failed: Runs that failed and will be tried again.
    """

    name: str
    quick: bool
    tuning_runs: int
    tuning_done: int
    evaluation_runs: int
    evaluation_done: int
    diverged: int
    failed: int

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.tuning_done == self.tuning_runs and self.evaluation_done >= self.evaluation_runs and not self.failed

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "complete": self.complete}


def experiment_status(experiment: Experiment, results: Mapping[str, Result]) -> ExperimentStatus:
    """Count what is there."""
    tuning = tuning_runs([experiment])
    final = final_runs([experiment], results)
    states = [results[run.id].status for run in (*tuning, *final) if run.id in results]
    tuning_done = len(tuning) - len(unfinished([experiment], tuning, results))
    expected = len(expected_runs([experiment])) - len(tuning)
    return ExperimentStatus(
        name=experiment.name,
        quick=experiment.quick,
        tuning_runs=len(tuning),
        tuning_done=tuning_done,
        evaluation_runs=len(final) if tuning_done == len(tuning) else expected,
        evaluation_done=len(final) - len(unfinished([experiment], final, results)),
        diverged=states.count("diverged"),
        failed=states.count("failed"),
    )
