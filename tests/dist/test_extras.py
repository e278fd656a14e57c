"""Each extra brings all that its commands import: nothing else can be imported here."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FINDER = """
import importlib.abc, sys

class OnlyThese(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, OnlyThese())
"""
IMPORTS = {
    "federation": (
        "hdpmf.untrusted.service.daemon",
        "hdpmf.untrusted.service.website",
        "hdpmf.cli.recommender",
        "hdpmf.private.device.participant",
        "hdpmf.cli.device",
    ),
    "servers": (
        "hdpmf.untrusted.aggregator.http",
        "hdpmf.untrusted.aggregator.server",
        "hdpmf.untrusted.aggregator.serve",
    ),
}


def closure(requirements: Iterable[str], extras: tuple[str, ...] = ()) -> set[str]:
    """Names of all distributions that installing these brings along."""
    found: set[str] = set()
    for text in requirements:
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        if wanted.marker is not None and not any(
            wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")
        ):
            continue
        found.add(name)
        try:
            needed = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        found |= closure(needed, tuple(wanted.extras))
    return found


def absent_with(extra: str) -> str:
    """Modules that are installed here, and would not be after ``pip install hdpmf[extra]``."""
    present = closure([f"hdpmf[{extra}]"]) | {"setuptools", "pip"}
    return ",".join(
        module
        for module, owners in packages_distributions().items()
        if not present & set(map(canonicalize_name, owners))
    )


def command(extra: str, code: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", FINDER + code, absent_with(extra), str(folder)]


def run_with(extra: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(extra, code, folder), capture_output=True, text=True, timeout=120)


def test_what_an_extra_does_not_bring_is_absent(tmp_path: Path) -> None:
    assert "torch" in absent_with("servers").split(",")
    assert "ModuleNotFoundError" in run_with("servers", "import torch", tmp_path).stderr


@pytest.mark.parametrize("extra", sorted(IMPORTS))
def test_the_programs_of_an_extra_find_what_they_import(extra: str, tmp_path: Path) -> None:
    code = "".join(f"import {module}\n" for module in IMPORTS[extra])
    done = run_with(extra, code, tmp_path)
    assert done.returncode == 0, done.stderr
