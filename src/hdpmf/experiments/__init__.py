"""Experiments: declarative specs, a runner that can be killed, an append-only store, and reading it back.

Start with `read_experiment` and `run_experiments` to run something, with `Store` and `collect` to read results, with
`tune` to choose hyper-parameters. The paper's own experiments are in `hdpmf.paper`.
"""

from __future__ import annotations

from hdpmf.experiments.choice import Measured
from hdpmf.experiments.expand import Place, resolve, wishes_in_words, wishes_of
from hdpmf.experiments.progress import watch
from hdpmf.experiments.runner import BACKENDS, Done, Progress, expected_runs, expected_seconds, run_experiments
from hdpmf.experiments.runs import Run
from hdpmf.experiments.spec import Experiment, parse_experiment, read_experiment
from hdpmf.experiments.statistics import PairedTest, Summary, paired_test
from hdpmf.experiments.store import Result, Store
from hdpmf.experiments.summary import METRICS, RANKING, Cell, collect, compare, dataset_title, tuning_tables
from hdpmf.experiments.tuning import Tuned, tune

__all__ = [
    "BACKENDS",
    "METRICS",
    "RANKING",
    "Cell",
    "Done",
    "Experiment",
    "Measured",
    "PairedTest",
    "Place",
    "Progress",
    "Result",
    "Run",
    "Store",
    "Summary",
    "Tuned",
    "collect",
    "compare",
    "dataset_title",
    "expected_runs",
    "expected_seconds",
    "paired_test",
    "parse_experiment",
    "read_experiment",
    "resolve",
    "run_experiments",
    "tune",
    "tuning_tables",
    "watch",
    "wishes_in_words",
    "wishes_of",
]
