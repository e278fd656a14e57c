"""The threat model names tests that exist, and says that the noise protects."""

from __future__ import annotations

import re

from tests.docs.doc_pages import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def test_every_test_that_it_names_exists() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    functions = {
        name
        for path in files
        for name in re.findall(r"def (test_\w+)", (ROOT / path).read_text(encoding="utf-8"))
    }
    named = re.findall(r"`(test_\w+)`", PAGE)
    paths = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE)
    assert len(named) > 15
    assert len(paths) > 15
    assert set(named) <= functions
    assert [path for path in paths if not (ROOT / path).exists()] == []
