"""Running the command in this process, on small data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hdpmf.cli import main
from hdpmf.common.data import synthetic_world


@dataclass(frozen=True)
class Result:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Result]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Call ``hdpmf`` with arguments."""

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main.run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        code = end.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A training and a test file."""
    folder = tmp_path_factory.mktemp("ratings")
    train, test = synthetic_world(60, 40, 1_200, rng=3).hold_out(3, rng=0)
    train.write(folder / "train.csv")
    test.write(folder / "test.csv")
    return folder / "train.csv", folder / "test.csv"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Path:
    """A saved model."""
    folder = tmp_path_factory.mktemp("models") / "one"
    with pytest.raises(SystemExit) as end:
        main.run(
            ["train", "hdpmf", "--train", str(files[0]), "--out", str(folder), "--epochs", "5"]
        )
    assert end.value.code == 0
    return folder
