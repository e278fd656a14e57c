from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hdpmf import errors
from hdpmf.cli import options as shared_options
from hdpmf.cli import rating_options
from hdpmf.cli.experiment import SOME_RUNS_FAILED
from hdpmf.cli.main import EPILOG
from hdpmf.common.data import dataset_names

from .conftest import Call

pytestmark = pytest.mark.slow

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.HdpmfError)
]
COMMANDS = ("data", "train", "evaluate", "recommend", "doctor")


def loaded_by(arguments: list[str], names: str) -> set[str]:
    """Return the modules that a call of hdpmf loads, of those whose name begins so."""
    code = f"""
import sys
from hdpmf.cli.main import run
try:
    run({arguments!r})
finally:
    print(*(name for name in sys.modules if name.startswith({names!r})), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_of_all_commands_loads_nothing_heavy() -> None:
    heavy = ("numba", "polars", "scipy", "pandas", "numpy", "torch", "httpx")
    assert loaded_by(["--help"], "hdpmf.cli") >= {"hdpmf.cli.train"}
    assert not loaded_by(["--help"], "").intersection(heavy)


def test_a_call_loads_the_module_of_its_command_alone() -> None:
    start = {"hdpmf.cli", "hdpmf.cli.main", "hdpmf.cli.output"}
    assert loaded_by(["--version"], "hdpmf.cli") == start
    options = {"hdpmf.cli.options"}
    called = start | options | {"hdpmf.cli.aggregator"}
    assert loaded_by(["aggregator", "--help"], "hdpmf.cli") == called


def test_the_names_known_without_loading_are_the_real_ones() -> None:
    assert tuple(dataset_names()) == shared_options.DATASET_NAMES


def test_help_names_every_command_and_every_exit_code(call: Call) -> None:
    shown = call("--help")
    assert shown.code == 0
    assert all(name in shown.out for name in COMMANDS)
    codes = {kind.exit_code for kind in ERRORS}
    assert all(f" {code} " in EPILOG for code in codes | {0, SOME_RUNS_FAILED, 130})
    assert call().out == shown.out


@pytest.mark.parametrize("command", [*COMMANDS, "data get", "data info"])
def test_every_command_has_help(call: Call, command: str) -> None:
    assert call(*command.split(), "--help").code == 0


def test_version(call: Call) -> None:
    assert call("--version").out.startswith("hdpmf ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such command"),
        (["data"], "Missing command"),
        (["evaluate"], "Missing argument"),
        (["evaluate", "mf", "--unknown"], "No such option"),
        (["evaluate", "mf", "--data", "synthetic", "--epochs", "many"], "--epochs"),
        (["train", "mf", "--data", "synthetic"], "--out"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    call: Call, arguments: list[str], said: str
) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert said in result.err


def test_wrong_usage_with_json_is_a_document_too(call: Call) -> None:
    result = call("evaluate", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == "UsageError"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in ERRORS if kind is not errors.HdpmfError],
)
def test_every_error_of_ours_ends_with_its_own_code(
    call: Call, monkeypatch: pytest.MonkeyPatch, kind: type[errors.HdpmfError]
) -> None:
    def fail(self: object) -> None:
        raise kind("first line\nsecond \x1b[31mline")

    monkeypatch.setattr(rating_options.RatingsOptions, "__post_init__", fail)
    result = call("evaluate", "mf", "--data", "synthetic", "--json")
    assert result.code == kind.exit_code
    assert result.err == "error: first line second  [31mline\n"
    assert result.json["error"] == {
        "type": kind.__name__,
        "message": "first line second  [31mline",
        "exit_code": kind.exit_code,
    }


def test_an_interrupt_ends_with_130_and_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rating_options.RatingsOptions, "__post_init__", interrupt)
    result = call("evaluate", "mf", "--data", "synthetic")
    assert (result.code, result.out) == (130, "")
    assert result.err == "error: interrupted; nothing was half-written\n"


def test_a_bug_keeps_its_traceback_but_shows_no_variables() -> None:
    code = (
        "from hdpmf.cli import main\nfrom hdpmf.cli import rating_options\n"
        "def bug(self):\n"
        "    secret = 'rating 4.25'\n"
        "    raise RuntimeError('a bug')\n"
        "rating_options.RatingsOptions.__post_init__ = bug\n"
        "main.run(['evaluate', 'mf', '--data', 'synthetic'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "RuntimeError: a bug" in done.stderr
    assert "4.25" not in done.stderr


@pytest.mark.parametrize(
    ("words", "position", "offered"),
    [
        (
            "hdpmf evaluate hd",
            2,
            {"hdpmf", "hdpmf-w", "hdpmf-r", "hdpmf-paid", "hdp-sum", "hdp-pairs", "hdp-bit"},
        ),
        ("hdpmf evaluate mf --split ti", 4, {"time"}),
        ("hdpmf federate simulate --method hdp-", 4, {"hdp-pairs"}),
        ("hdpmf data info ml", 3, {"ml-100k", "ml-1m"}),
        ("hdpmf evaluate mf --data sy", 4, {"synthetic"}),
    ],
)
def test_tab_completion(words: str, position: int, offered: set[str]) -> None:
    surroundings = os.environ | {
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
        "_HDPMF_COMPLETE": "complete_bash",
    }
    code = "from hdpmf.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == offered


def test_a_reader_that_leaves_early_is_no_error(files: tuple[Path, Path]) -> None:
    code = "from hdpmf.cli.main import run; run(['data', 'info'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("option", [(), ("--json",)])
def test_output_that_cannot_be_written_is_one_line(option: tuple[str, ...]) -> None:
    code = f"from hdpmf.cli.main import run; run(['data', 'info', *{option!r}])"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 8
    assert done.stderr.startswith("error: could not write the output")
    assert done.stderr.count("\n") == 1
