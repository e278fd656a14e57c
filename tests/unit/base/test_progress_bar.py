"""Bars of fit, compare and recommend: in notebooks, on terminals if asked for, and nowhere else."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from hdpmf import MF, HDPBit, compare
from hdpmf.common.base.progress import progress_bar, stage
from hdpmf.common.data import synthetic_world

WORLD = synthetic_world(n_users=40, n_items=30, n_ratings=600, rng=0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is a kernel, where every line is due at once."""
    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setattr("hdpmf.common.base.progress._LINE_EVERY", 0.0)


@pytest.mark.usefixtures("notebook")
def test_a_notebook_has_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> str:
        return capsys.readouterr().err

    model = HDPBit(rng=0).fit(WORLD)
    shown = said()
    assert "fitting HDPBit (training the model for lists (ease)): 0\n" in shown
    assert "fitting 40 users" in shown
    model.recommend(WORLD.users.ids)
    assert "recommending: 40 of 40, 0:00 left\n" in said()
    compare(["hdp-sum", "most-popular"], WORLD, per_user=2)
    shown = said()
    assert "comparing (HDP-Sum)" in shown
    assert "fitting HDPSum" not in shown, "a bar within a bar"
    HDPBit(rng=0).fit(WORLD, progress=False).recommend(WORLD.users.ids, progress=False)
    model.recommend(int(WORLD.users.ids[0]))
    assert said() == ""


def test_a_terminal_shows_it_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, progress, shows in (
        (Terminal(), True, True),
        (Terminal(), None, False),
        (io.StringIO(), True, False),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        MF(epochs=3, rng=0).fit(WORLD, progress=progress)
        assert ("fitting MF" in stream.getvalue()) is shows


@pytest.mark.usefixtures("notebook")
def test_what_ends_in_an_error_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    def divide() -> None:
        with progress_bar("dividing"):
            stage("by zero")
            print(1 / 0)

    with pytest.raises(ZeroDivisionError):
        divide()
    assert capsys.readouterr().err == "dividing (by zero): 0\n"
    stage("nobody listens")
    assert capsys.readouterr().err == ""
