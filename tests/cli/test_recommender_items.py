"""``hdpmf recommender items``: versions of the catalogue, and the same digest on a device."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.untrusted.service.folder import ServiceFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text(
        "item,title,genres,year\n7,Seven,Crime|Drama,1995\n3,Three,Drama,\n5,Five,,2001\n"
    )
    (tmp_path / "more.csv").write_text("item,title,genres,year\n4,Four,Drama,2026\n1,One,,\n")
    assert (
        call("recommender", "init", tmp_path / "shop", "--items", tmp_path / "items.csv").code == 0
    )
    return tmp_path / "shop"


def test_versions_are_shown_and_made(call: Call, folder: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE((folder / "catalogue.key").stat().st_mode) == 0o600
    first = call("recommender", "items", folder, "--json").json
    assert (first["version"], first["items"], first["retired"]) == (1, 3, 0)
    made = call(
        "recommender", "items", folder, "--add", tmp_path / "more.csv", "--retire", "3", "--json"
    ).json
    assert (made["version"], made["items"], made["retired"], made["shown"]) == (2, 5, 1, 2)
    assert made["digest"] != first["digest"]
    assert ServiceFolder(folder).catalogue.ids == ("3", "5", "7", "1", "4")
    words = call("recommender", "items", folder).out
    assert "version 2, 5 items, 1 retired" in words
    assert made["digest"] in words
    status = call("recommender", "status", folder, "--json").json["catalogue"]
    assert status == {"version": 2, "items": 5, "retired": 1, "digest": made["digest"]}
    assert "catalogue: version 2, 5 items, 1 retired" in call("recommender", "status", folder).out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--retire", "9"], "no item '9'"),
        (["--add", "items.csv"], "3 of the 3 items are in the catalogue already (such as '3')"),
        (["--add", "none.csv"], "none.csv"),
        (["--retire", "3", "--retire", "3"], "twice"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_changes(
    call: Call, folder: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    before = (folder / "catalogue.json").read_bytes()
    given = [str(tmp_path / option) if option.endswith(".csv") else option for option in options]
    done = call("recommender", "items", folder, *given, "--json")
    assert done.code != 0
    assert words in done.json["error"]["message"]
    assert (folder / "catalogue.json").read_bytes() == before


def test_a_plain_copy_of_the_folder_goes_on_as_the_first(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    call("recommender", "items", folder, "--retire", "3")
    # as documented: everything but what begins with a dot, such as who has tokens
    shutil.copytree(folder, tmp_path / "again", ignore=shutil.ignore_patterns(".*"), symlinks=True)
    more = [
        call("recommender", "items", where, "--add", tmp_path / "more.csv", "--json").json
        for where in (folder, tmp_path / "again")
    ]
    assert more[0] == more[1]
