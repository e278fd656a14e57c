"""``hdpmf doctor`` and ``hdpmf demo``."""

from __future__ import annotations

import importlib.metadata as packages
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hdpmf.cli import doctor as doctor_module
from hdpmf.cli.options.common import DATASET_NAMES
from hdpmf.common.methods import METHODS
from hdpmf.lab.plots import accuracy_png

from .conftest import Call


def test_doctor(call: Call) -> None:
    result = call("doctor", "--json")
    assert result.code == 0
    found = result.json
    assert found["versions"]["numba"] == packages.version("numba")
    assert found["cores"] >= 1
    assert found["kernels"].keys() == {"cache", "compiled", "writable"}
    assert found["datasets"].keys() == set(DATASET_NAMES)
    assert found["environment"]["HDPMF_CACHE"]
    assert {"bench", "dev"} <= found["extras"].keys()
    shown = call("doctor")
    assert shown.code == 0
    assert "kernel cache" in shown.out


@pytest.mark.slow
def test_doctor_knows_which_kernels_are_compiled(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: tuple[Path, Path]
) -> None:
    # In processes of their own: Numba decides where its cache is when the kernels are imported.
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def compiled() -> dict[str, bool]:
        return json.loads(_in_a_process("doctor", "--json"))["kernels"]["compiled"]

    assert set(compiled().values()) == {False}
    _in_a_process("evaluate", "hdpmf", "--train", files[0], "--test", files[1], "--epochs", "2")
    after = compiled()
    assert after["compiled.item_gradients_of"] is True
    assert after["sequential.pass"] is False
    ready = sum(after.values())
    assert f"{ready} of {len(after)} compiled: the first training" in _in_a_process("doctor")


def _in_a_process(*arguments: object) -> str:
    code = "from hdpmf.cli.main import run; run()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
def test_demo(call: Call, tmp_path: Path) -> None:
    result = call("demo", "--quick", "--out", tmp_path / "a" / "b", "--json")
    assert result.code == 0
    found = result.json
    assert {row["method"] for row in found["methods"]} == {
        name for name, method in METHODS.items() if not method.lists_only
    }
    errors = [row["mse"] for row in found["methods"]]
    assert errors == sorted(errors)
    assert len(found["recommendations"]["items"]) == 5
    assert all(one["title"] for one in found["recommendations"]["items"])
    assert Path(found["plot"]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_demo_for_people(call: Call, tmp_path: Path) -> None:
    result = call("demo", "--quick", "--out", tmp_path)
    assert result.code == 0
    for expected in ("HDPMF-W", "User mean", "0 (proved)", "NOMINAL", "For user 1", "accuracy.png"):
        assert expected in result.out


@pytest.mark.slow
def test_demo_where_it_cannot_write(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert call("demo", "--quick", "--out", tmp_path / "file" / "below").code == 8


def test_the_plot_has_one_size_per_number_of_methods() -> None:
    row = {
        "method": "user-mean",
        "label": "User mean",
        "mse": 1.0,
        "mse_sd": 0.0,
        "epsilon": 0.0,
        "epsilon_status": "proved",
    }
    assert accuracy_png([row], "one method") != accuracy_png([row, row | {"mse": 2.0}], "two")
