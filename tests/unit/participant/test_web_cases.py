"""The vectors of rows and decisions are what this device does."""

from __future__ import annotations

import json

import pytest

from tests.unit.participant.web_cases import FOLDER, row_in, rows, written


@pytest.mark.parametrize("name", ["rows.json", "decide.json"])
def test_the_vectors_of_the_specification_are_what_this_device_does(name: str) -> None:
    assert (FOLDER / name).read_text() == written()[name]


def test_rows_of_the_vectors_are_of_all_kinds() -> None:
    cases = json.loads((FOLDER / "rows.json").read_text())["cases"]
    assert [row_in(case) for case in cases] == [row_in(case) for case in rows()]
    full = [case for case in cases if case["row"]]
    assert len(full) > 30
    assert len(full) < len(cases)
    assert any(entry < 0 for case in full for entry in case["row"].values())
