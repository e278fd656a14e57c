"""Wheel and sdist: what is in them, and that the wheel works where nothing of the source is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUILD = "import sys; out = sys.argv[1]; from setuptools import build_meta as b; b.build_wheel(out); b.build_sdist(out)"


def source_files() -> set[str]:
    """What belongs into a wheel: every module, and the data beside them."""
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "hdpmf").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built from a copy: building leaves things behind."""
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "source"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=copy,
        check=True,
        capture_output=True,
        timeout=300,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


def test_the_wheel_needs_no_compiler_and_runs_on_any_system(wheel: Path) -> None:
    assert wheel.name == f"hdpmf-{PROJECT['version']}-py3-none-any.whl"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        inside = {
            name for name in names if not name.startswith(f"hdpmf-{PROJECT['version']}.dist-info/")
        }
        assert inside == source_files()
        assert {
            "hdpmf/py.typed",
            "hdpmf/lab/report/assets/report.js",
            "hdpmf/lab/report/templates/page.html",
            "hdpmf/lab/paper/table3.toml",
        } <= inside
        assert f"hdpmf-{PROJECT['version']}.dist-info/licenses/LICENSE" in names
        head = HeaderParser().parsestr(
            archive.read(f"hdpmf-{PROJECT['version']}.dist-info/METADATA").decode()
        )
        whole = b"".join(archive.read(name) for name in sorted(names))
    assert head["Version"] == PROJECT["version"]
    assert head["License-Expression"] == "Apache-2.0"
    assert head["Requires-Python"] == PROJECT["requires-python"]
    for place in (str(ROOT), str(Path.home()) + "/", sys.prefix):
        assert place.encode() not in whole, "a path of the machine that built it"


def test_the_sdist_can_be_built_from_and_holds_no_data(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in source_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert not [
        name
        for name in names
        if name.startswith(("tests", "docs", "shared")) or name.endswith((".zip", ".gz"))
    ]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    found = folder / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(found),
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    (site,) = folder.glob("lib/python*/site-packages")
    # What is in a folder that a .pth file names is found, but its own .pth files, as of our source, are not.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return found


def call(python: Path, *arguments: str) -> str:
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, timeout=300, cwd=python.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_is_there(python: Path) -> None:
    assert PROJECT["version"] in call(python, "-I", str(python.parent / "hdpmf"), "--version")
    assert "hdp-sum" in call(python, "-I", str(python.parent / "hdpmf"), "methods")


FIT = """
import hdpmf
from pathlib import Path
world = hdpmf.synthetic_world(40, 30, 600, rng=0)
train, test = world.hold_out(per_user=3, rng=0)
model = hdpmf.HDPSum(epsilon=1.0, rng=0).fit(train)
assert 0 < model.score(test)["mse"] < 9
print(hdpmf.__version__, Path(hdpmf.__file__).parent)
"""


def test_a_model_is_fitted_by_what_was_installed(python: Path) -> None:
    version, place = call(python, "-I", "-c", FIT).split()
    assert version == PROJECT["version"]
    assert Path(place).is_relative_to(python.parents[1])


def test_the_versions_agree() -> None:
    said = [
        line
        for line in (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
        if line.startswith("version:")
    ]
    assert said == [f"version: {PROJECT['version']}"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
