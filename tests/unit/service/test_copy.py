"""A lost folder comes back from its plain copy: everything but what begins with a dot."""

from __future__ import annotations

import shutil
from pathlib import Path

from hdpmf.common.protocol.catalogue import known_items
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from tests.world import table


def test_a_copied_folder_is_the_same_recommender_and_gives_no_token_twice(tmp_path: Path) -> None:
    folder = ServiceFolder.create(tmp_path / "r", Config(name="town"), table())
    run = folder.path / "runs" / "ab"
    run.mkdir()
    (run / ".tokens-ab.sqlite").touch()
    shutil.copytree(
        folder.path, tmp_path / "copy", ignore=shutil.ignore_patterns(".*"), symlinks=True
    )
    shutil.rmtree(folder.path)
    again = ServiceFolder(tmp_path / "copy")
    assert (again.config.name, again.known.fingerprint) == (
        "town",
        known_items(table()).fingerprint,
    )
    assert not list((again.path / "runs").rglob(".tokens-*"))
