"""A lost folder comes back from its plain copy: everything but what begins with a dot."""

from __future__ import annotations

import shutil
from pathlib import Path

from hdpmf.untrusted.service.folder import ServiceFolder

from .test_two_servers import make_service, service_at
from .two_servers_world import SETTINGS, World


def test_a_copied_folder_goes_on_as_the_same_recommender_and_gives_no_token_twice(
    tmp_path: Path,
) -> None:
    world = World()
    service = make_service(world, tmp_path / "shop")
    first = service.conduct(service.begin(SETTINGS))
    under_way = service.begin(SETTINGS)
    (tmp_path / "shop" / "runs" / under_way.hex() / ".tokens-ab.sqlite").touch()
    shutil.copytree(
        tmp_path / "shop", tmp_path / "copy", ignore=shutil.ignore_patterns(".*"), symlinks=True
    )
    shutil.rmtree(tmp_path / "shop")
    again = ServiceFolder(tmp_path / "copy")
    assert not list((again.path / "runs").rglob(".tokens-*"))
    assert again.people == len(world.devices)
    model = again.model()
    assert model is not None
    assert model.about["run"] == first.run.hex()
    assert again.unfinished() == under_way
    second = service_at(world, again).conduct(under_way)
    assert second.summary["users"] == 4
