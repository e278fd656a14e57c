"""``hdpmf doctor``."""

from __future__ import annotations

import importlib.metadata as packages
import re
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


def test_citations_are_those_of_the_repository(call: Call) -> None:
    bibtex = call("cite", "--json").json["bibtex"]
    assert call("cite").out == bibtex
    assert f"version = {{{packages.version('hdpmf')}}}" in bibtex
    about = (Path(__file__).parents[2] / "CITATION.cff").read_text("utf-8")
    paper, software = bibtex.split("@software")
    for field in ("title", "doi", "collection-title", "year"):
        (said,) = re.findall(rf"^    {field}: (.+)$", about, re.MULTILINE)
        assert f"{{{said}}}" in paper
    for field in ("title", "license"):
        assert re.findall(rf"^{field}: \"?([^\"\n]+)", about, re.MULTILINE)[0] in software
    for doi in re.findall(r"^doi: (.+)$", about, re.MULTILINE):
        assert f"doi     = {{{doi}}}" in software


def test_every_extra_says_what_it_is_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert doctor_module._PURPOSES.keys() == project["project"]["optional-dependencies"].keys()
