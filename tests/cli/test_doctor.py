"""``hdpmf doctor`` and ``hdpmf demo``."""

from __future__ import annotations

import importlib.metadata as packages
import tomllib
from pathlib import Path

import pytest

from hdpmf.cli import doctor as doctor_module
from hdpmf.cli.options import DATASET_NAMES
from hdpmf.common.methods import METHODS

from .conftest import Call


def test_doctor(call: Call) -> None:
    result = call("doctor", "--json")
    assert result.code == 0
    found = result.json
    assert found["versions"]["numba"] == packages.version("numba")
    assert found["cores"] >= 1
    assert found["datasets"].keys() == set(DATASET_NAMES)
    assert found["environment"]["HDPMF_CACHE"]
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


def test_doctor_says_what_is_missing_for_what_somebody_wants(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert doctor_module._PURPOSES.keys() == extras.keys()  # a new extra says what it is for
    monkeypatch.setattr(doctor_module, "_version", lambda name: None if name == "torch" else "1.0")
    missing = call("doctor", "gpu", "flower")
    assert missing.code == 9
    assert 'training on a GPU (on="gpu")' in missing.out
    assert "missing torch; run: " in missing.out
    assert call("doctor", "flower", "--json").json["extras"].keys() == {"flower"}
    assert call("doctor", "flower").code == 0
    unknown = call("doctor", "magic")
    assert (unknown.code, "no extra 'magic'; choose from bench" in unknown.err) == (2, True)


@pytest.mark.slow
def test_demo(call: Call) -> None:
    result = call("demo", "--quick", "--json")
    assert result.code == 0
    found = result.json
    assert len(found["methods"]) == sum(not method.lists_only for method in METHODS.values())
    errors = [row["mse"] for row in found["methods"]]
    assert errors == sorted(errors)
    assert len(found["recommendations"]["items"]) == 5
    assert all(one["title"] for one in found["recommendations"]["items"])


@pytest.mark.slow
def test_demo_for_people(call: Call) -> None:
    result = call("demo", "--quick")
    assert result.code == 0
    for expected in ("HDPMF", "User mean", "proved", "NOMINAL", "For user 1"):
        assert expected in result.out
