"""Stores that look like the paper's evaluation, filled in a second with invented but plausible
numbers.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.methods import METHODS
from hdpmf.lab import paper
from hdpmf.lab.experiments import Experiment, Store
from hdpmf.lab.experiments.expansion import final_runs, tuning_runs
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.store import Result, StoredClaim
from hdpmf.lab.experiments.summary import RANKING
from hdpmf.lab.paper import published

FACTS = {
    "ml-100k": ("ML-100K", 943, 1682, 100_000),
    "ml-1m": ("ML-1M", 6040, 3706, 1_000_209),
    "douban": ("Douban", 1403, 94651, 221_195),
    "yelp-sample": ("Yelp sample", 400, 900, 9_000),
}
ENVIRONMENT = {
    "system": "Linux",
    "machine": "x86_64",
    "cores": 2,
    "python": "3.11.0",
    "processor": "A & B <CPU>",
}
BASE = {"user-mean": 1.085, "global-mean": 1.258, "hdpmf-w": 1.248, "hdpmf-r": 6.2}


def paper_experiments(names: Iterable[str] = paper.NAMES) -> list[Experiment]:
    """The paper's experiments on the paper's data sets, whether the data is here or not."""
    found = []
    for name in names:
        one = paper.experiment(name)
        datasets = tuple(
            "yelp-sample" if dataset == "yelp" else dataset for dataset in one.datasets
        )
        found.append(msgspec.structs.replace(one, datasets=datasets))
    return found


def invented(run: Run) -> Result:
    """A result of a run that nobody did: near the published number, different for every seed,
    always the same.
    """
    wobble = int(run.id[:6], 16) / 0xFFFFFF - 0.5
    factors = int(run.params.get("n_factors", 10))
    number = published.table3(run.data.name, run.method, factors, "mse")
    mse = number.mean if number else BASE.get(run.method, 1.1)
    epsilon = float(run.params.get("epsilon", 1.0))
    if run.privacy is not None:
        mse *= 1 + 0.25 * (1 / epsilon**0.5 - 1)
        mse *= 1 - 0.4 * (run.privacy.changes.get("epsilon_uc", 0.1) - 0.1)
        mse *= 1 - 0.3 * (0.54 - run.privacy.changes.get("f_uc", 0.54))
    if run.method == "pdpmf" and run.data.name == "ml-1m":
        mse *= 0.9
    mse *= (1 + 0.5 * (1 - run.part.fraction)) * (1 + 0.03 * wobble)
    mse *= 1 + 0.05 * abs(math.log(float(run.params.get("learning_rate", 0.005)) / 0.005))
    method = METHODS[run.method]
    model = method.configure(**method.own(epsilon=epsilon))
    claim = msgspec.convert(model.privacy, StoredClaim, from_attributes=True)
    if run.method == "mf" and run.params.get("learning_rate") == 0.05:
        return Result(run, "diverged", {}, claim, "training ran away", "0.1.0", "a", "b", {})
    metrics = {"mse": mse, "mae": 0.75 * mse**0.5, "n": 9430, "n_cold": 3, "mse_all": mse * 1.001}
    metrics |= {"mae_all": 0.76 * mse**0.5, "n_all": 9433, "fit_seconds": 0.25}
    if method.lists_only:
        metrics = {"n": 9430, "fit_seconds": 0.25}
    if run.method not in ("user-mean", "global-mean"):
        metrics |= {name: 0.2 / mse / (place + 1) for place, name in enumerate(RANKING)} | {
            "n_listed": 940
        }
    return Result(
        run, "done", metrics, claim, "", "0.1.0", "2026-01-01T00:00:00", "2026-01-01T00:00:01", {}
    )


def fill(
    folder: Path,
    experiments: list[Experiment],
    *,
    keep: Callable[[Run], bool] = lambda run: True,
    change: Callable[[Result], Result] = lambda result: result,
    ended: bool = True,
) -> Path:
    """A store in which the runs that ``keep`` likes have been done."""
    with Store(folder, create=True) as store:
        data = {
            "command": "hdpmf paper run --out <out>",
            "environment": ENVIRONMENT,
            "jobs": 2,
            "backend": "loky",
        }
        store.note("start", {**data, "experiments": msgspec.to_builtins(experiments)})
        for name in dict.fromkeys(name for one in experiments for name in one.datasets):
            title, users, items, ratings = FACTS.get(name, (name, 10, 10, 50))
            facts = {
                "name": name,
                "title": title,
                "users": users,
                "items": items,
                "ratings": ratings,
            }
            facts |= {
                "density": ratings / users / items,
                "scale": [1.0, 5.0],
                "mean_weight": 0.3,
                "min_weight": 0.01,
            }
            store.note("dataset", facts)
        results: dict[str, Result] = {}
        for list_runs in (
            lambda: tuning_runs(experiments),
            lambda: final_runs(experiments, results),
        ):
            for run in list_runs():
                if run.id not in results and keep(run):
                    results[run.id] = change(invented(run))
        if ended:
            store.note("end", {"reason": "finished", "seconds": 4321.0, "runs": len(results)})
        path = store.path
    rows = [
        (
            one.run.id,
            _json(one.run),
            one.status,
            _json(one.metrics),
            _json(one.claim),
            one.message,
            one.version,
            one.started,
            one.finished,
            _json(one.host),
        )
        for one in results.values()
    ]
    # Thousands of rows in one transaction: the store's own way reaches the disk after every one.
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO runs (run_id, run, status, metrics, claim, message, version, "
            "started, finished, host)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    return folder


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, on all four data sets."""
    return fill(tmp_path_factory.mktemp("full"), paper_experiments())


@pytest.fixture(scope="session")
def fill_store() -> Callable[..., Path]:
    """`fill`, for stores of a test's own."""
    return fill


@pytest.fixture(scope="session")
def experiments() -> Callable[..., list[Experiment]]:
    """`paper_experiments`."""
    return paper_experiments
