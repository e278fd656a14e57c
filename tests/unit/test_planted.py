"""Faults of ``make mutants ARGS=--planted`` can be planted: code and tests that move take them
along.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def _faults() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "planted", ROOT / "tests" / "mutants" / "planted.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_planted_fault_has_its_place_and_its_tests() -> None:
    """One whose text had moved to another file was left out, and the rest counted as all."""
    faults = _faults().PLANTED
    assert len({fault.name for fault in faults}) == len(faults)
    for fault in faults:
        source = (ROOT / "src" / "hdpmf" / fault.path).read_text()
        assert source.count(fault.old) == 1, (
            f"{fault.name}: {fault.path} does not have its text once"
        )
        assert fault.new != fault.old
        for test in fault.tests:
            file, _, name = test.partition("::")
            written = (ROOT / file).read_text()
            assert f"def {name.partition('[')[0]}" in written, f"{fault.name}: there is no {test}"
            assert name or "pytestmark = pytest.mark.slow" not in written, (
                f"{fault.name}: of {file}, whose tests are slow, only those named are run"
            )
