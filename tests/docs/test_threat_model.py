"""The table of attacks names tests that exist."""

from __future__ import annotations

import re

from tests.docs.doc_pages import ROOT

TABLE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:[\w/]+/)?test_\w+\.py)?(?:::)?(test_\w+)?(\.\.\.)?`")


def test_every_test_in_the_table_of_attacks_exists() -> None:
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    paths = ["/" + path.relative_to(ROOT).as_posix() for path in tests]
    functions = {
        name
        for path in tests
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = [found.groups() for found in NAMED.finditer(TABLE) if found[1] or found[2]]
    assert len(named) > 100
    for file, function, is_cut in named:
        assert not file or any(path.endswith("/" + file) for path in paths), file
        begins = function or "test_"
        assert any(
            name.startswith(begins) if is_cut else name == begins or not function
            for name in functions
        ), function
