"""``hdpmf doctor``."""

from __future__ import annotations

import importlib.metadata as packages
import tomllib
from pathlib import Path

import pytest

from hdpmf.cli import doctor as doctor_module

from .conftest import Call


def test_doctor(call: Call) -> None:
    result = call("doctor", "--json")
    assert result.code == 0
    found = result.json
    assert found["versions"]["numba"] == packages.version("numba")
    assert found["cores"] >= 1
    assert {"bench", "dev"} <= found["extras"].keys()
    shown = call("doctor")
    assert shown.code == 0
    assert "data cache" in shown.out


def test_doctor_gives_the_command_for_a_missing_extra(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "_version", lambda name: None if name == "libmf" else "1.0")
    found = call("doctor", "--json").json["extras"]["bench"]
    assert found["missing"] == ["libmf"]
    assert "-m pip install" in found["command"]
    assert found["command"].rstrip("'").endswith("[bench]")
    assert found["command"] in call("doctor").out


def test_every_extra_says_what_it_is_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert doctor_module._PURPOSES.keys() == project["project"]["optional-dependencies"].keys()
