"""Experiments: declarative specs, an interruptible runner, an append-only store, summaries.

Start with `read_experiment` and `run_experiments` to run something, with `Store` and `collect` to
read results. The paper's own experiments are in `hdpmf.lab.paper`.
"""

from hdpmf.lab.experiments.expansion import expected_runs, resolve
from hdpmf.lab.experiments.runner import RunCounts, run_experiments
from hdpmf.lab.experiments.spec import Experiment, parse_experiment, read_experiment
from hdpmf.lab.experiments.store import Result, Store
from hdpmf.lab.experiments.summary import Cell, Summary, collect, compare, dataset_title

__all__ = [
    "Cell",
    "Experiment",
    "Result",
    "RunCounts",
    "Store",
    "Summary",
    "collect",
    "compare",
    "dataset_title",
    "expected_runs",
    "parse_experiment",
    "read_experiment",
    "resolve",
    "run_experiments",
]
