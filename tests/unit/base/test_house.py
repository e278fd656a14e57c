"""The ceiling of src lines, which tools/house.py holds."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def held(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "house.py", "--check", root]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(("lines", "code"), [(7, 0), (8, 1)])
def test_a_tree_above_its_ceiling_is_refused(tmp_path: Path, lines: int, code: int) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.hdpmf.house]\nsrc-lines = 7\n")
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "one.py").write_text("# a comment\n\n1\n")
    (tmp_path / "src" / "inner" / "two.py").write_text("2\n" * (lines - 3))
    answer = held(tmp_path)
    assert (answer.returncode, "docs/adr" in answer.stderr) == (code, bool(code))


def test_the_house_is_under_its_ceiling() -> None:
    answer = held(ROOT)
    assert answer.returncode == 0, answer.stderr
