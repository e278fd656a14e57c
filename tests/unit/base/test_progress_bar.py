"""Bars of fit, compare and recommend: in notebooks, on terminals if asked for, and nowhere else."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hdpmf import MF, HDPBit, compare
from hdpmf.common.base.progress import progress_bar, stage
from hdpmf.common.data import synthetic_world

WORLD = synthetic_world(n_users=40, n_items=30, n_ratings=600, rng=0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a cell of a notebook shows, one picture after the other."""
    shown: list[str] = []

    def display(thing: Any, display_id: bool) -> SimpleNamespace:
        shown.append(thing._repr_html_())
        return SimpleNamespace(update=lambda new: shown.append(new._repr_html_()))

    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    fake = SimpleNamespace(get_ipython=lambda: kernel, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    return shown


def test_a_notebook_shows_a_bar_and_takes_it_away(cell: list[str]) -> None:
    model = HDPBit(rng=0).fit(WORLD)
    assert any("fitting HDPBit: training the model for lists (ease)" in each for each in cell)
    assert any("fitting 40 users" in each for each in cell)
    assert cell[-1] == ""
    cell.clear()
    model.recommend(WORLD.users.ids)
    assert 'recommending <progress max="40" value="40"></progress> 40 of 40' in cell
    cell.clear()
    MF(epochs=3, rng=0).fit(WORLD)
    assert 'fitting MF <progress max="3" value="3"></progress> 3 of 3' in cell
    cell.clear()
    compare(["hdp-sum", "most-popular"], WORLD, per_user=2)
    assert any("comparing: HDP-Sum" in each for each in cell)
    assert not any("fitting HDPSum" in each for each in cell), "a bar within a bar"
    cell.clear()
    HDPBit(rng=0).fit(WORLD, progress=False).recommend(WORLD.users.ids, progress=False)
    model.recommend(int(WORLD.users.ids[0]))
    assert cell == []


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


def test_what_ends_in_an_error_takes_its_bar_away(cell: list[str]) -> None:
    def divide() -> None:
        with progress_bar("dividing"):
            stage("by <zero>")
            print(1 / 0)

    with pytest.raises(ZeroDivisionError):
        divide()
    assert "dividing: by &lt;zero&gt;" in cell[-2]
    assert cell[-1] == ""
    stage("nobody listens")
    assert cell[-1] == ""
