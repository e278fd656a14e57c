"""What is really loaded when one side is imported: a package's ``__init__`` can bring in what no
import line names.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROBE = """
import json, pkgutil, sys
from importlib import import_module
for name in sys.argv[1:]:
    package = import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""

PRIVATE = {"hdpmf.private"}
UNTRUSTED = {"hdpmf.untrusted"}
BOTH_SIDES = {"hdpmf.models", "hdpmf.lab", "hdpmf.cli", "hdpmf.private.kernels.gpu"}
# What one person's device can do without, so that the download leaves it out (packaging).
HEAVY = {
    *("dask", "flwr", "joblib", "llvmlite", "matplotlib", "narwhals", "numba", "pandas", "polars"),
    *("pooch", "pyarrow", "ray", "rich", "scipy", "sklearn", "sqlalchemy", "torch", "typer"),
}


def loaded(*packages: str) -> set[str]:
    """What a fresh interpreter has loaded with every module of these packages."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *packages], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("package", ["client", "device", "page"])
def test_the_private_side_loads_nothing_of_the_recommender(package: str) -> None:
    assert not loaded(f"hdpmf.private.{package}") & (UNTRUSTED | BOTH_SIDES)


def test_a_device_and_its_page_load_nothing_heavy() -> None:
    assert not loaded("hdpmf.private.device", "hdpmf.private.page") & HEAVY


@pytest.mark.parametrize("package", ["aggregator", "recommender", "service"])
def test_the_untrusted_side_loads_nothing_private(package: str) -> None:
    assert not loaded(f"hdpmf.untrusted.{package}") & (PRIVATE | BOTH_SIDES)


@pytest.mark.parametrize(
    "package",
    ["aggregation", "base", "data", "methods", "model", "net", "privacy", "protocol", "web"],
)
def test_what_both_sides_use_knows_neither(package: str) -> None:
    assert not loaded(f"hdpmf.common.{package}") & (PRIVATE | UNTRUSTED | BOTH_SIDES)


def test_the_probe_sees_what_a_package_brings_along() -> None:
    """A wall that nothing can hit would pass, too."""
    expected = {
        "hdpmf.models",
        "hdpmf.untrusted.recommender",
        "hdpmf.private.client",
        "hdpmf.private.kernels.gpu",
    }
    found = loaded("hdpmf.models")
    assert expected <= found
    assert {"joblib", "numba"} & found
