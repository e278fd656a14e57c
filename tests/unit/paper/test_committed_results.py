"""What is committed in docs/results is what the runs committed beside it say."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from hdpmf.lab.paper import NAMES
from hdpmf.lab.paper.report import paper_csv, paper_latex
from hdpmf.lab.report.content import read_content

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PLACE = (
    "experiment",
    "experiments",
    "dataset",
    "method",
    "factors",
    "x",
    "nominal_epsilon",
    "learning_rate",
    "reg",
)


def rows(text: str) -> dict[tuple[str | None, ...], dict[str, str]]:
    return {
        tuple(row.get(name) for name in PLACE): row for row in csv.DictReader(io.StringIO(text))
    }


def test_the_committed_numbers_are_those_of_the_committed_runs(tmp_path: Path) -> None:
    shutil.copy(RESULTS / "results.sqlite", tmp_path)  # opening a store may write to it
    content = read_content(tmp_path, NAMES)
    made = paper_csv(content)
    for path in sorted((RESULTS / "csv").iterdir()):
        committed, again = rows(path.read_text("utf-8")), rows(made[path.name].decode())
        assert committed
        for place, row in committed.items():
            assert again.get(place) == row, (path.name, place)
        # A method that is new since then has not been run yet.
        assert {
            row.get("status", "missing") for place, row in again.items() if place not in committed
        } <= {"missing"}
    assert set(paper_latex(content)) == {path.name for path in (RESULTS / "latex").iterdir()}
