"""Every sentence of a page is in its one file, so that it can be translated."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from hdpmf.common.web.templates import Wording


@pytest.mark.parametrize("package", ["hdpmf.private.page"])
def test_every_sentence_is_in_the_one_file_and_used(package: str):
    known = set(Wording(package).sentences)
    places = [Path(str(files(name))) for name in (package, "hdpmf.common.web")]
    text = "".join(
        path.read_text("utf-8")
        for place in places
        for path in (*place.glob("*.py"), *place.glob("templates/*.html"))
    )
    used, begun = set(), set()
    for name, more in re.findall(r"""\b_?t(?:\.count)?\(\s*f?["']([a-z_.{}]+)["']\s*(~?)""", text):
        before, brace, _ = name.partition("{")
        if brace or more:
            begun.add(before)
        else:
            used.add(name)
    for first, second in re.findall(
        r"""t(?:\.count)?\(\s*"([a-z_.]+)" if [^"]+ else "([a-z_.]+)\"""", text
    ):
        used |= {first, second}
    missing = {name for name in used if name not in known and f"{name}.one" not in known}
    assert missing == set()
    plural = {f"{name}.{number}" for name in used for number in ("one", "many")}
    unused = {
        name
        for name in known - used - plural
        if not any(name.startswith(part) for part in begun if part)
    }
    assert unused == set()
