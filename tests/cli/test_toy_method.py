"""A method that is defined here, by one value and one estimator, is a method everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.methods import METHODS, Claim, Form, Method, check, option
from hdpmf.models import UserMean

from .conftest import Call

pytestmark = pytest.mark.slow


@dataclass(eq=False, repr=False)
class ShiftOptions:
    """What can be chosen."""

    shift: float = option(0.0, "Added to every prediction.", least=0)


@dataclass(eq=False, repr=False)
class ShiftedMean(ShiftOptions, UserMean):
    """The user's mean, and a little more."""

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        check(self)
        return super()._predict_codes(users, items) + self.shift


SILENT = Claim(
    status="proved",
    against="all messages",
    reason="nothing leaves",
    sees="nothing",
    value=0.0,
    presence=0.0,
)
TOY = Method(
    name="toy",
    label="Toy mean",
    summary="the user's mean, shifted",
    family="local",
    estimator=ShiftedMean,
    configuration=ShiftOptions,
    accounting="nothing",
    plain=Form(
        claims={"messages": SILENT, "sums": SILENT},
        sent="Nothing, says the toy.",
        stays_open="Nothing is left to protect, says the toy.",
        rounds=0,
        sums=0,
    ),
)

EXPERIMENT = """
name = "with-toy"
title = "A toy beside the rest"
datasets = ["mine"]
methods = ["toy", "user-mean", "hdp-bit"]
seeds = [0, 1]
params = { shift = 0.25 }
data.mine.file = "train.csv"
split.per_user = 2
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    METHODS.add(TOY)
    yield
    METHODS.discard("toy")


def test_it_is_evaluated(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1])
    shown = call("evaluate", "toy", *source)
    assert (shown.code, shown.err) == (0, "")
    assert "Toy mean" in shown.out
    assert "epsilon 0 per rating, AUTHOR'S CLAIM: hdpmf has not checked it" in shown.out
    found = call("evaluate", "toy", *source, "--json").json
    assert (found["method"], found["mse"], found["epsilon"]) == ("toy", found["user_mean_mse"], 0.0)


def test_it_is_explained(call: Call) -> None:
    page = call("privacy", "explain", "toy")
    assert page.code == 0
    assert "Nothing, says the toy." in page.out
    assert "AUTHOR'S CLAIM" in page.out
    assert "PROVED" not in page.out


def test_it_is_in_an_experiment_and_in_its_report(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_bytes(files[0].read_bytes())
    (tmp_path / "toy.toml").write_text(EXPERIMENT)
    out = tmp_path / "out"
    ran = call("experiment", "run", tmp_path / "toy.toml", "--out", out, "--jobs", 1, "--json")
    assert ran.code == 0, ran.err
    cells = {cell["method"]: cell for cell in ran.json["cells"]}
    assert cells["toy"]["mse"]["mean"] > cells["user-mean"]["mse"]["mean"]
    written = call("experiment", "report", tmp_path / "report", "--results", out)
    assert written.code == 0, written.err
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Toy mean" in page
    assert "A toy beside the rest" in page
