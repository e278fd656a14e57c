from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.lab.experiments import (
    Experiment,
    Result,
    Store,
    collect,
    compare,
    expected_runs,
    parse_experiment,
    run_experiments,
)
from hdpmf.lab.experiments.execution import do_run, measured
from hdpmf.lab.experiments.expansion import (
    GridPoint,
    best_of_grid,
    choices,
    configurations,
    grid_points,
)
from hdpmf.lab.experiments.runner import (
    check_backend,
    estimated_seconds,
    expected_seconds,
    jobs,
    tasks_of,
)
from hdpmf.lab.experiments.runs import Data, Part, Privacy, Run
from hdpmf.lab.experiments.summary import RANKING
from hdpmf.models import make_model

RUNS = 24


@pytest.mark.slow
def test_everything_runs_once_and_reads_back(tmp_path: Path, small: Experiment) -> None:
    with Store(tmp_path, create=True) as store:
        done = run_experiments([small], store, n_jobs=1)
        assert done.ran == {"done": RUNS}
        again = run_experiments([small], store, n_jobs=1)
        assert (again.total, again.reused) == (0, RUNS)

        cells = collect(store, "small")
        assert [cell.method for cell in cells] == ["hdpmf", "hdpmf-r", "pdpmf", "user-mean"]
        assert all(cell.status == "done" and len(cell.mse.values) == 2 for cell in cells)
        assert [cell.in_paper for cell in cells] == [True, False, True, False]
        results = store.results()
        for cell in cells:
            assert list(cell.mse.values) == [results[one].metrics["mse"] for one in cell.run_ids]
        assert cells[0].hyperparameters == cells[1].hyperparameters
        assert cells[3].hyperparameters == {}
        assert cells[0].claim is not None
        assert cells[0].claim.status == "nominal"
        assert set(compare(cells, "hdpmf", "pdpmf")) == {("synthetic", 4, None)}
        assert not any(
            set(RANKING) & set(one.metrics) for one in results.values()
        )  # only errors were asked for
        assert store.datasets()["synthetic"]["ratings"] == 700
        assert [event.data["reason"] for event in store.events("end")] == ["finished", "finished"]


def test_worlds_have_names_of_ones_own(tmp_path: Path) -> None:
    experiment = parse_experiment(
        """
name = "worlds"
title = "Two worlds"
datasets = ["stars", "marks"]
methods = ["user-mean"]
seeds = [0]
[split]
per_user = 2
[data.stars]
world = { n_users = 40, n_items = 30, n_ratings = 700, scale = [0.5, 5, 0.5] }
[data.marks]
world = { n_users = 40, n_items = 30, n_ratings = 700, scale = [0, 10, 1], features = false }
""",
        "worlds.toml",
    )
    with Store(tmp_path, create=True) as store:
        run_experiments([experiment], store, n_jobs=1)
        stars, marks = (cell.mse.values[0] for cell in collect(store, "worlds"))
        assert marks > 2 * stars
        assert set(store.datasets()) == {"stars", "marks"}


def test_the_choice_is_the_lowest_mean_over_the_folds(tmp_path: Path, small: Experiment) -> None:
    with Store(tmp_path, create=True) as store:
        run_experiments([small], store, n_jobs=1)
        results = store.results()
    tuned = [place for place in configurations(small) if place.method != "user-mean"]
    assert [(place.method, place.seed) for place in tuned] == [
        ("hdpmf", 0),
        ("hdpmf", 1),
        ("pdpmf", 0),
        ("pdpmf", 1),
    ]
    for place in tuned:
        grid = grid_points(small, place, results)
        winner = best_of_grid(grid)
        assert winner is not None
        for row in grid:
            folds = [results[one].metrics["mse"] for one in row.run_ids]
            assert row.mse == pytest.approx(sum(folds) / len(folds))
            assert winner.mse <= row.mse
        assert choices(small, results)[place] == winner.values


@pytest.mark.parametrize("bad", ["diverged", "failed"])
def test_a_cell_that_did_not_end_well_is_never_chosen(bad: str) -> None:
    good = GridPoint({"reg": 1.0}, 5.0, "done", ())
    assert best_of_grid([GridPoint({"reg": 2.0}, math.inf, bad, ()), good]) is good
    assert best_of_grid([GridPoint({"reg": 2.0}, math.inf, bad, ())] * 2) is None
    assert best_of_grid([good, GridPoint({"reg": 3.0}, math.nan, "missing", ())]) is None
    assert best_of_grid([good, GridPoint({"reg": 3.0}, 5.0, "done", ())]) is good


def test_divergence_is_a_result(tmp_path: Path, small: Experiment) -> None:
    wild = msgspec.structs.replace(
        small,
        methods=("mf",),
        paper_methods=(),
        epochs=30,
        tuning=msgspec.structs.replace(
            small.tuning, grids={"default": {"learning_rate": (1e6, 0.01)}}
        ),
    )
    with Store(tmp_path, create=True) as store:
        done = run_experiments([wild], store, n_jobs=1)
        assert done.ran == {"diverged": 4, "done": 6}
        (cell,) = collect(store, wild)
        assert cell.hyperparameters == {"learning_rate": 0.01}
        hopeless = msgspec.structs.replace(
            wild,
            tuning=msgspec.structs.replace(
                wild.tuning, grids={"default": {"learning_rate": (1e6,)}}
            ),
        )
        run_experiments([hopeless], store, n_jobs=1)
        (cell,) = collect(store, hopeless)
        assert (cell.status, cell.mse.mean) == ("diverged", math.inf)


def test_a_failed_run_is_told_and_tried_again(
    tmp_path: Path, small: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = msgspec.structs.replace(small, methods=("user-mean",), paper_methods=())
    with Store(tmp_path, create=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr("hdpmf.lab.experiments.execution.score", _refuse)
            assert run_experiments([one], store, n_jobs=1).ran == {"failed": 2}
        assert collect(store, one)[0].status == "failed"
        assert {result.message for result in store.results().values()} == {"the disk ate it"}
        assert run_experiments([one], store, n_jobs=1).ran == {"done": 2}


def _refuse(*_: object) -> None:
    raise ConfigError("the disk ate it")


@pytest.mark.slow
def test_the_papers_measure_leaves_cold_ratings_out() -> None:
    """Items that sampling left without ratings are predicted from their factors, as published."""
    sparse = Data("synthetic", world={"n_users": 60, "n_items": 200, "n_ratings": 900})
    params = {"epochs": 5, "solver": "sequential", "epsilon": 0.2}
    metrics = do_run(Run(sparse, Part("hold-out", 5), "pdpmf", params, Privacy()), {}).metrics
    assert metrics["n"] + metrics["n_cold"] == metrics["n_all"]
    assert metrics["n_cold"] > 0
    assert metrics["mse"] != metrics["mse_all"]


def test_lists_are_measured_on_the_test_set_by_methods_that_rank(
    tmp_path: Path, small: Experiment
) -> None:
    with Store(tmp_path, create=True) as store:
        run_experiments([msgspec.structs.replace(small, measure="both")], store, n_jobs=1)
        for cell in collect(store, "small"):
            assert (set(RANKING) <= set(cell.metrics)) == (cell.method != "user-mean")
        assert not any(
            set(RANKING) & set(one.metrics)
            for one in store.results().values()
            if one.run.stage == "tuning"
        )


def test_methods_for_lists_alone_have_no_errors(tmp_path: Path, small: Experiment) -> None:
    lists = msgspec.structs.replace(small, measure="lists", methods=("most-popular", "hdpmf"))
    with Store(tmp_path, create=True) as store:
        run_experiments([lists], store, n_jobs=1)
        cells = {cell.method: cell for cell in collect(store, "small")}
    assert cells["hdpmf"].mse.mean > 0
    popular = cells["most-popular"]
    assert popular.status == "done"
    assert popular.mse.values == popular.summary("mse_all").values == ()
    assert popular.summary("ndcg_at_10").mean > 0


def test_counts_in_a_grid_stay_counts(tmp_path: Path, small: Experiment) -> None:
    """Through the store too: 4 and 4.0 factors would be two runs, and the second none."""
    grid = {"learning_rate": (0.01,), "reg": (1, 0.1), "n_factors": (4,), "epochs": (2,)}
    tuning = msgspec.structs.replace(small.tuning, grids={"biased-mf": grid})
    biased = msgspec.structs.replace(small, methods=("biased-mf",), tuning=tuning)
    with Store(tmp_path, create=True) as store:
        run_experiments([biased], store, n_jobs=1)
        (cell,) = collect(store, store.experiments()["small"])
        runs = [store.results()[run].run for run in cell.run_ids]
    assert cell.status == "done"
    for run in runs:
        assert (run.params["n_factors"], run.params["epochs"]) == (4, 2)
        assert isinstance(run.params["n_factors"], int)
        assert isinstance(run.params["reg"], float)


def test_a_choice_for_lists_is_the_highest_ndcg_over_the_folds(
    tmp_path: Path, small: Experiment
) -> None:
    tuning = msgspec.structs.replace(small.tuning, by="ndcg_at_10")
    lists = msgspec.structs.replace(small, measure="lists", methods=("hdpmf",), tuning=tuning)
    with Store(tmp_path, create=True) as store:
        run_experiments([msgspec.structs.replace(lists, tuning=small.tuning)], store, n_jobs=1)
        assert run_experiments([lists], store, n_jobs=1).total >= 4  # the folds again, with lists
        results = store.results()
        place, _ = configurations(lists)
        grid = grid_points(lists, place, results)
        winner = best_of_grid(grid, "ndcg_at_10")
    for row in grid:
        folds = [results[run].metrics["ndcg_at_10"] for run in row.run_ids]
        assert row.ndcg == pytest.approx(sum(folds) / len(folds))
    assert winner is max(grid, key=lambda row: row.ndcg)


class Interrupted(Store):
    """A store at whose fifth result somebody presses Ctrl-C."""

    def add(self, result: Result) -> None:
        super().add(result)
        if len(self.results()) == 5:
            raise KeyboardInterrupt


def test_interrupting_keeps_what_was_finished(tmp_path: Path, small: Experiment) -> None:
    with Interrupted(tmp_path, create=True) as store, pytest.raises(KeyboardInterrupt):
        run_experiments([small], store, n_jobs=1)
    with Store(tmp_path) as store:
        assert len(store.results()) == 5
        assert store.events("end")[0].data["reason"] == "interrupted"
        assert {cell.status for cell in collect(store, small)} <= {"missing"}
        assert run_experiments([small], store, n_jobs=1).total == RUNS - 5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_backends_agree_to_the_last_bit(tmp_path: Path, small: Experiment, backend: str) -> None:
    few = msgspec.structs.replace(small, methods=("pdpmf",), paper_methods=())
    found = []
    for name, n_jobs in ((backend, 2), ("loky", 1)):
        with Store(tmp_path / f"{name}-{n_jobs}", create=True) as store:
            run_experiments([few], store, n_jobs=n_jobs, backend=name)
            results = store.results()
            found.append(
                {
                    one: (result.metrics["mse"], result.metrics["mae"])
                    for one, result in results.items()
                }
            )
    assert found[0] == found[1]
    assert len(found[0]) == 10


@pytest.mark.slow
def test_a_cluster_by_its_address(tmp_path: Path, small: Experiment) -> None:
    distributed = pytest.importorskip("distributed")
    few = msgspec.structs.replace(small, methods=("hdpmf",), paper_methods=())
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        with Store(tmp_path / "here", create=True) as store:
            run_experiments([few], store, n_jobs=1)
            here = {one: result.metrics["mse"] for one, result in store.results().items()}
        with Store(tmp_path / "there", create=True) as store:
            run_experiments([few], store, backend=f"dask://{address}")
            results = store.results()
        assert {one: result.metrics["mse"] for one, result in results.items()} == here
        assert len(here) == 10


def test_backends_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in ("dask://127.0.0.1:8786", "threading", "loky"):
        check_backend(backend)
    for backend in ("dask", "dask://host", "loky://host:1", "ray://host:1", "slurm"):
        with pytest.raises(ConfigError, match="unknown backend"):
            check_backend(backend)
    monkeypatch.setattr("hdpmf.lab.experiments.runner.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install"):
        check_backend("dask://127.0.0.1:8786")
    with pytest.raises(ConfigError, match="at least 1"):
        jobs(0)


def test_long_runs_go_first_and_short_ones_together(small: Experiment) -> None:
    long = msgspec.structs.replace(small, epochs=100_000)
    runs = [*expected_runs([small]), *expected_runs([long])]
    tasks = list(tasks_of(runs))
    assert sorted(run.id for task in tasks for run in task) == sorted(run.id for run in runs)
    costs = [max(map(estimated_seconds, task)) for task in tasks]
    assert costs[0] > 1
    assert len(tasks[0]) == 1
    assert max(map(len, tasks)) > 1
    assert all(sum(map(estimated_seconds, task)) <= 1.0 for task in tasks if len(task) > 1)
    assert expected_seconds([long], 2) == pytest.approx(
        sum(map(estimated_seconds, expected_runs([long]))) / 2
    )


KILLED = """
name = "killed"
title = "Killed again and again"
datasets = ["synthetic"]
methods = ["hdpmf", "pdpmf", "user-mean"]
epochs = 60
seeds = [0, 1, 2]

[data.synthetic]
world = { n_users = 300, n_items = 200, n_ratings = 30000 }

[tuning]
folds = 2
"""


# So long that it is never over before this process, on a busy machine, gets to stopping it.
LONG = KILLED.replace("epochs = 60", "epochs = 2000")


# As ``nohup`` and ``&`` in a script do: what is started inherits that Ctrl-C is ignored.
IGNORING_CTRL_C = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def _command() -> list[str]:
    return [sys.executable, "-c", "from hdpmf.cli.main import run; run()"]


def _start(folder: Path, *more: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
    words = [
        "experiment",
        "run",
        str(folder / "killed.toml"),
        "--out",
        str(folder / "out"),
        "--jobs",
        "2",
    ]
    return subprocess.Popen(
        [*under, *_command(), *words, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _finished(folder: Path) -> set[str]:
    if not (folder / "out" / "results.sqlite").exists():
        return set()
    with Store(folder / "out", create=True) as store:  # the tables may not be there yet
        return set(store.results())


def _wait_for(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(_finished(folder)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_at_most_the_runs_in_flight(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(KILLED)
    moments = random.Random(7)
    seen: set[str] = set()
    for attempt in range(3):
        process = _start(tmp_path)
        _wait_for(tmp_path, len(seen) + 1 + 4 * attempt, process)
        time.sleep(moments.uniform(0.0, 0.2))
        seen |= _finished(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        after = _finished(tmp_path)
        assert seen <= after  # nothing that was finished is gone
        seen = after
    assert 0 < len(seen) < 105
    process = _start(tmp_path, "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    report = msgspec.json.decode(out)
    # 2 methods x 8 cells x 2 folds x 3 seeds, then 3 methods x 3 seeds; what was there is kept.
    assert report["n_reused"] == len(seen)
    assert report["n_ran"] == 105 - len(seen)
    assert len(_finished(tmp_path)) == 105
    assert all(cell["status"] == "done" for cell in report["cells"])


@pytest.mark.slow
@pytest.mark.parametrize("under", [(), IGNORING_CTRL_C], ids=["plain", "nohup"])
def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path, under: Sequence[str]) -> None:
    (tmp_path / "killed.toml").write_text(LONG)
    process = _start(tmp_path, under=under)
    _wait_for(tmp_path, 1, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert (
        f"To go on: hdpmf experiment run {tmp_path / 'killed.toml'} --out {tmp_path / 'out'}" in err
    )
    assert "Traceback" not in err
    assert 0 < len(_finished(tmp_path)) < 105


@pytest.mark.slow
def test_workers_go_when_the_starter_is_killed(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(LONG)
    process = _start(tmp_path)
    _wait_for(tmp_path, 1, process)
    process.kill()
    process.communicate()  # returns when no worker holds the pipes any more
    assert process.returncode == -signal.SIGKILL


def test_lists_of_splits_by_time_are_made_in_time_and_those_of_folds_are_not() -> None:
    train, test = synthetic_world(40, 30, 500, rng=3).split_by_time(0.3, per_user=True)
    model = make_model("ease").fit(train)
    in_time, alike = (model.rank(test, 10, in_time=when)["ndcg"] for when in (True, False))
    assert in_time != alike
    for part, wanted in (
        (Part("user-time", share=0.3), in_time),
        (Part("user-time", share=0.3, folds=2), alike),
        (Part("hold-out"), alike),
    ):
        run = Run(Data("synthetic"), part, "ease", {})
        assert measured(run, model, train, test, True).metrics["ndcg_at_10"] == wanted
