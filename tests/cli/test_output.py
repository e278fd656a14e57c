from __future__ import annotations

import io
import sys

import pytest

from hdpmf.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_taken_out() -> None:
    assert output.clean("a\x1b[31mb\nc\r\u202ed") == "a [31mb c  d"


def test_a_terminal_gets_a_table_and_no_colour_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for no_color in (False, True):
        monkeypatch.setattr(sys, "stdout", Terminal())
        if no_color:
            monkeypatch.setenv("NO_COLOR", "1")
        output.print_table(("a", "b"), [("[red]x", "1")], numeric=("b",), title="t", strong=(0,))
        shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
        assert "[red]x" in shown
        assert ("36m" in shown) is not no_color


def test_progress_shows_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, shows in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with output.progress_bar("training", 10) as advance:
            advance(5, 10)
        assert ("training" in stream.getvalue()) is shows


def test_json_refuses_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.print_json({"mse": float("nan")})
