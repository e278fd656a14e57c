"""Experiments: declarative specs, an interruptible runner, an append-only store, summaries.

Start with `read_experiment` and `run_experiments` to run something, with `Store` and `collect` to
read results. The paper's own experiments are in
`hdpmf.lab.paper`.
"""

from __future__ import annotations

from hdpmf.lab.experiments.expansion import (
    Configuration,
    GridPoint,
    resolve,
    wishes_in_words,
    wishes_of,
)
from hdpmf.lab.experiments.progress import watch
from hdpmf.lab.experiments.runner import RunCounts, expected_runs, expected_seconds, run_experiments
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import Experiment, parse_experiment, read_experiment
from hdpmf.lab.experiments.store import METRICS, Result, Store
from hdpmf.lab.experiments.summary import (
    RANKING,
    Cell,
    PairedTest,
    Summary,
    collect,
    compare,
    dataset_title,
    pair_tests,
    paired_test,
    tuning_tables,
)

__all__ = [
    "METRICS",
    "RANKING",
    "Cell",
    "Configuration",
    "Experiment",
    "GridPoint",
    "PairedTest",
    "Result",
    "Run",
    "RunCounts",
    "Store",
    "Summary",
    "collect",
    "compare",
    "dataset_title",
    "expected_runs",
    "expected_seconds",
    "pair_tests",
    "paired_test",
    "parse_experiment",
    "read_experiment",
    "resolve",
    "run_experiments",
    "tuning_tables",
    "watch",
    "wishes_in_words",
    "wishes_of",
]
