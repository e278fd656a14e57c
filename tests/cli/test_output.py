"""Results as text and as JSON, from one value."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest

from hdpmf.cli import output
from hdpmf.cli.output import Paragraph, Result, Table
from hdpmf.common.base.progress import progress_bar

TABLE = Table(("a", "b"), [("[red]x", "1")], numeric=("b",), title="t")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_taken_out() -> None:
    assert output.clean("a\x1b[31mb\nc\r\u202ed") == "a [31mb c  d"


def test_one_value_is_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result({"n": 1}, ["a\nb", Paragraph("c d", "  "), TABLE], notes=["after"])
    output.emit(result)
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "a b",
        "  c d",
        "t",
        "a       b",
        "[red]x  1",
    ]
    assert said.err == "after\n"
    with output.json_output(True):
        output.emit(result)
    assert not output.wants_json()
    document = {"n": 1, "hdpmf_version": output.hdpmf_version()}
    said = capsys.readouterr()
    assert said.out == f"{json.dumps(document, indent=2)}\n"
    assert said.err == "after\n"


def test_only_the_form_that_is_printed_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    def text() -> Iterator[str]:
        made.append("text")
        yield "x"

    def fields() -> dict[str, int]:
        made.append("fields")
        return {}

    for wanted, expected in ((False, ["text"]), (True, ["fields"])):
        made: list[str] = []
        with output.json_output(wanted):
            output.emit(Result(fields, text()))
        assert made == expected


def test_progress_shows_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, shows in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("training", 10) as advance:
            advance(5, 10)
        assert ("training" in stream.getvalue()) is shows


def test_json_refuses_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.print_json({"mse": float("nan")})
