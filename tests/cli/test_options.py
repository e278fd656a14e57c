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

from hdpmf.cli.options.common import command, option
from hdpmf.cli.options.methods import ModelOptions, known_options
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


def test_every_option_of_a_method_is_on_the_command_line_and_in_help(call: Call) -> None:
    shown = call("train", "--help").out
    for method in METHODS.values():
        assert all(
            flag.split("/")[0] in shown
            for option in method.options.values()
            for flag in option.flags
        )
    assert {parameter.default for parameter in ModelOptions.parameters()} == {None}  # not given


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
        (
            ("evaluate", "hdp-sum", "--solver", "bogus", "--lr", 123, "--factors", 77, *SOURCE),
            "--factors",
        ),
        (("evaluate", "hdp-sum", "--lr", 0.1, *SOURCE), "--lr"),
        (("evaluate", "mf", "--epsilon", 1, *SOURCE), "--epsilon"),
        (("evaluate", "hdpmf-paid", "--solver", "sequential", *SOURCE), "--solver"),
        (("evaluate", "user-mean", "--epochs", 3, *SOURCE), "--epochs"),
        (("train", "hdp-bit", "--labels", "--data", "synthetic", "--out", "m"), "--labels"),
        (("train", "hdp-bit", "--patience", 2, "--data", "synthetic", "--out", "m"), "--patience"),
        (("tune", "mf", "--epsilon", 1, "--data", "synthetic"), "--epsilon"),
        (("federate", "simulate", "--method", "hdp-sum", "--factors", 3, *SOURCE), "--factors"),
        (("privacy", "explain", "hdp-bit", "--noise", "once"), "--noise"),
        (("audit", "run", "--method", "hdp-sum", "--epochs", 3), "--epochs"),
    ],
)
def test_an_option_that_the_method_does_not_have_is_an_error(
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
    assert all(option.flag in result.err for option in method.options.values() if option.flags)
    assert list(tmp_path.iterdir()) == []


def test_what_is_recorded_is_what_ran(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1], "--json")
    paid = call("evaluate", "hdpmf-paid", "--epochs", 50, *source).json
    assert (paid["epochs"], paid["lr"], paid["solver"]) == (50, 0.1, "batch")
    assert paid["mse"] != call("evaluate", "hdpmf-paid", *source).json["mse"]
    sums = call("evaluate", "hdp-sum", "--design", "S", *source).json
    assert sums["design"] == "S"
    assert not {"factors", "lr", "reg", "epochs", "solver", "h", "noise"} & sums.keys()
    once = call("evaluate", "hdpmf", "--epochs", 1, "--noise", "once", *source).json
    assert (once["noise"], once["epsilon_noise"]) == ("once", "simulated")


def test_known_options_have_one_flag_each() -> None:
    flags = [flag for option in known_options().values() for flag in option.flags]
    assert len(set(flags)) == len(flags)
