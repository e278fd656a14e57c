from __future__ import annotations

import io

import msgspec
import pytest

from hdpmf.common.base.progress import LiveView
from hdpmf.lab.experiments import Experiment, Result, expected_runs, watch
from hdpmf.lab.experiments.runner import StageProgress


def _results(experiment: Experiment) -> list[Result]:
    runs = expected_runs([experiment])
    return [
        Result(run, "done", {"mse": 1.0 + number, "mae": 1.0}, None)
        for number, run in enumerate(runs)
    ]


def test_plain_lines_where_there_is_no_terminal(small: Experiment) -> None:
    stream = io.StringIO()
    results = _results(small)
    with watch(stream) as progress:
        progress.stage("evaluation", [result.run for result in results], 3)
        for result in results:
            progress.finished(result)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "evaluation: 16 runs to do, 3 done before"
    assert lines[1].startswith("evaluation: 16/16 runs, ")
    assert "best MSE: HDPMF" in lines[1]
    assert "\x1b" not in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_display_on_a_terminal(small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    results = _results(small)
    with watch(stream) as progress:
        view = progress.view
        assert isinstance(view, LiveView)
        progress.stage("evaluation", [result.run for result in results], 0)
        for result in results:
            progress.finished(result)
        view.live.refresh()
    shown = stream.getvalue()
    for words in ("16/16 runs", "left", "/s", "best MSE so far", "HDPMF", "Synthetic"):
        assert words in shown


def test_the_best_is_the_best_mean(small: Experiment) -> None:
    accumulator = StageProgress()
    runs = [
        run for run in expected_runs([small]) if run.method == "pdpmf" and run.stage == "tuning"
    ]
    accumulator.stage("cross-validation", runs, 0)
    for run, mse in zip(runs, (1.0, 3.0, 1.5, 1.7), strict=True):
        accumulator.finished(Result(run, "done", {"mse": mse, "mae": 1.0}, None))
    assert accumulator.best() == {("Synthetic", "pdpmf"): pytest.approx(1.6)}
    assert (accumulator.done, accumulator.total, accumulator.share) == (4, 4, pytest.approx(1.0))
    wild = msgspec.structs.replace(runs[0], method="dpmf")
    accumulator.finished(Result(wild, "diverged", {}, None))
    assert accumulator.unusable == 1
