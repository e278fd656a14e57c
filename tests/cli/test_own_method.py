"""A method of the user's own, as docs/own-method.md has it: written to files, run, changed and
broken.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hdpmf
from hdpmf.cli.experiment import SOME_RUNS_FAILED
from hdpmf.errors import ConfigError

PAGE = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text()
METHOD, USE, NOISY = re.findall(r"```python\n(.*?)```", PAGE, re.S)
EXPERIMENT, _ENTRY_POINT = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
COMMANDS = [line[2:].split() for line in PAGE.splitlines() if line.startswith("$ hdpmf ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "damped.py").write_text(METHOD)
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "with-mine.toml").write_text(EXPERIMENT)
    return tmp_path


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from hdpmf.cli.main import run; run()" if arguments[0] == "hdpmf" else ""
    words = arguments[1:] if code else arguments
    source = str(Path(hdpmf.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *(["-c", code] if code else []), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )


def _experiment(folder: Path, *, code: int = 0) -> dict[str, Any]:
    ended = _run(
        folder,
        "hdpmf",
        "experiment",
        "run",
        "with-mine.toml",
        "--plugin",
        "damped.py",
        "--out",
        "out",
        "--jobs",
        "1",
        "--json",
    )
    assert ended.returncode == code, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found | {
        "cells": {cell["method"]: cell for cell in found["cells"]},
        "said": ended.stderr,
    }


@pytest.mark.slow
def test_the_page_works_as_it_is_written(folder: Path) -> None:
    (folder / "use.py").write_text(USE)
    ended = _run(folder, "use.py")
    assert ended.returncode == 0, ended.stderr
    assert "no privacy" in ended.stdout
    for command in COMMANDS:
        ended = _run(folder, *command)
        assert ended.returncode == 0, (command, ended.stderr)
        assert "Traceback" not in ended.stderr
        assert "PROVED" not in ended.stdout or "damped" not in command[2:4]
    assert "not contradicted" in ended.stdout
    page = (folder / "out" / "report" / "index.html").read_text()
    assert "Damped item mean" in page


@pytest.mark.slow
def test_a_changed_method_is_run_again_and_a_broken_one_ends_nothing(folder: Path) -> None:
    first = _experiment(folder)
    assert first["n_ran"] == 6
    assert _experiment(folder)["n_ran"] == 0
    (folder / "damped.py").write_text(
        METHOD.replace("return self.means_[items]", "return 5 - self.means_[items] / 5")
    )
    changed = _experiment(folder)
    assert (changed["n_ran"], changed["n_reused"]) == (2, 4)
    assert (
        changed["cells"]["damped-mean"]["mse"]["mean"]
        > first["cells"]["damped-mean"]["mse"]["mean"] + 0.1
    )
    assert changed["cells"]["hdp-sum"] == first["cells"]["hdp-sum"]
    (folder / "damped.py").write_text(METHOD.replace("self.means_ = ", "self.means_ = 1 / 0 * "))
    broken = _experiment(folder, code=SOME_RUNS_FAILED)
    assert broken["ran"] == {"failed": 2}
    assert broken["cells"]["damped-mean"]["status"] == "failed"
    assert broken["cells"]["hdp-sum"]["status"] == "done"
    assert "ZeroDivisionError: division by zero (damped.py, line " in broken["said"]


def test_a_class_that_is_half_written_says_what_it_lacks() -> None:
    class Half(hdpmf.Estimator):
        """It neither learns nor expects."""

    train = hdpmf.synthetic_world(n_users=20, n_items=10, n_ratings=100, rng=0)
    with pytest.raises(ConfigError, match="Half does not say how it learns"):
        Half().fit(train)
    Half.learn = lambda self, train, weights: None  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="Half does not say what it expects"):
        Half().fit(train).predict(train.users.ids[:1], train.items.ids[:1])
    Half.expect = lambda self, users, items: [1.0]  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ConfigError, match="a finite number for each of 2 pairs"):
        Half().fit(train).predict(train.user_ids[:2], train.item_ids[:2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is no Python file"),
        ("x = 1\n", "adds no method"),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_plugin(tmp_path: Path, text: str | None, said: str) -> None:
    from hdpmf.common.methods.registry import load_plugin

    file = tmp_path / "no_plugin_of_mine.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_plugin(file)
    sys.modules.pop("no_plugin_of_mine", None)
