"""Options in groups, and methods' options: what a method does not have is refused, and what ran
is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from hdpmf.cli.options import command, option
from hdpmf.cli.output import Result
from hdpmf.common.methods import METHODS

from .conftest import Call


@dataclass(frozen=True)
class Size:
    width: Annotated[int, option("", None, "--width", "-w", min=1)]
    height: Annotated[int, option("")] = 3


def test_a_group_becomes_options_and_a_value_again() -> None:
    app, seen = typer.Typer(), []

    @app.command()
    @command
    def draw(
        name: Annotated[str, typer.Argument()],
        size: Size,
        thick_lines: Annotated[bool, option("Wide.")] = False,
    ) -> Result:
        """Draw."""
        seen.append((name, size, thick_lines))
        return Result({"name": name}, ["drawn"], exit_code=3)

    run = CliRunner().invoke
    done = run(app, ["box", "-w", "2", "--thick-lines"])
    assert (done.exit_code, done.stdout) == (3, "drawn\n")
    assert seen == [("box", Size(2, 3), True)]
    assert '"name": "box"' in run(app, ["box", "-w", "2", "--height", "3", "--json"]).stdout
    assert run(app, ["box", "-w", "2", "--no-thick-lines"]).exit_code == 2  # a flag has no opposite
    assert run(app, ["box"]).exit_code == 2  # a field without a default is required
    assert run(app, ["box", "-w", "0"]).exit_code == 2
    assert draw.__doc__ == "Draw."


def test_two_groups_with_one_option_are_a_mistake_of_ours() -> None:
    def draw(size: Size, width: int = 0) -> None:
        pass

    with pytest.raises(TypeError, match="'width' twice"):
        command(draw)


def test_a_default_in_help_is_one(call: Call) -> None:
    shown = " ".join(call("evaluate", "--help").out.replace("│", " ").split())
    assert "(default: 10 with --data)" in shown
    assert "[default: (" not in shown
    # with a file there is none
    refused = call("evaluate", "user-mean", "--train", "ratings.csv")
    assert (refused.code, "--hold-out N" in refused.err) == (2, True)


SOURCE = ("--data", "synthetic", "--hold-out", 2)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("evaluate", "hdp-sum", "--set", "learning_rate=123", *SOURCE), "--set learning_rate"),
        (("evaluate", "mf", "--epsilon", 1, *SOURCE), "--epsilon"),
        (("evaluate", "hdpmf-paid", "--set", "solver=sequential", *SOURCE), "--set solver"),
        (("evaluate", "user-mean", "--epochs", 3, *SOURCE), "--epochs"),
        (("train", "hdp-bit", "--set", "solver=batch", *SOURCE[:2], "--out", "m"), "--set solver"),
        (("federate", "simulate", "--method", "hdp-sum", "--set", "reg=3", *SOURCE), "--set reg"),
        (("privacy", "explain", "hdp-bit", "--set", "noise=once"), "--set noise"),
        (("audit", "run", "--method", "hdp-sum", "--epochs", 3), "--epochs"),
    ],
)
def test_a_parameter_that_the_method_does_not_have_is_an_error_that_lists_those_it_has(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    refused: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    method = METHODS[next(str(word) for word in arguments if word in METHODS)]
    assert result.code == 2
    assert result.err.startswith(f"error: {method.name} has ")
    assert refused in result.err
    assert all(option.flag in result.err for option in method.options.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "n_threads=many"), "--set n_threads takes a whole number, not 'many'"),
        (("--set", "n_threads=0"), "--set n_threads must be a whole number from 1"),
        (("--set", "reg=much"), "--set reg takes a number, not 'much'"),
        (("--set", "scale_steps=perhaps"), "--set scale_steps takes true or false, not 'perhaps'"),
        (("--set", "solver=magic"), "--set solver must be one of batch, sequential, not 'magic'"),
        (("--set", "solver"), "--set takes NAME=VALUE, as --set coding=linear"),
        (("--set", "solver="), "--set takes NAME=VALUE"),
        (("--set", "h=item", "--set", "h=auto"), "--set gives the same name twice"),
        (("--epochs", 3, "--set", "epochs=4"), "--epochs and --set epochs=... say the same twice"),
        (("--set", "rng=3"), "--seed gives the seed"),
        (("--set", "early_stopping=3"), "early_stopping needs ratings to validate on"),
    ],
)
def test_a_parameter_that_cannot_be_set_is_said(
    call: Call, words: tuple[object, ...], said: str
) -> None:
    result = call("evaluate", "hdpmf", *SOURCE, *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert said in result.err


def test_a_command_takes_what_it_does_not_choose_itself(call: Call) -> None:
    result = call("audit", "run", "--method", "hdpmf", "--set", "reg=0.1")
    assert result.code == 2
    assert "--set reg is not for this command; it takes epsilon, n_factors, epochs" in result.err


def test_what_is_recorded_is_what_ran(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1], "--json")
    paid = call("evaluate", "hdpmf-paid", "--epochs", 50, *source).json
    assert (paid["epochs"], paid["learning_rate"], paid["solver"]) == (50, 0.1, "batch")
    assert paid["mse"] != call("evaluate", "hdpmf-paid", *source).json["mse"]
    assert paid["mse"] == call("evaluate", "hdpmf-paid", "--set", "epochs=50", *source).json["mse"]
    sums = call("evaluate", "hdp-sum", "--set", "features=off", *source).json
    assert sums["features"] is False
    assert not {"n_factors", "learning_rate", "reg", "epochs", "solver", "h", "noise"} & sums.keys()
    once = call("evaluate", "hdpmf", "--epochs", 1, "--set", "noise=once", *source).json
    assert (once["noise"], once["epsilon_noise"]) == ("once", "simulated")
