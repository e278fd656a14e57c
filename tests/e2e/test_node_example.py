"""The example of a company's Node service takes part: a real recommender, and both servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import PEOPLE, World

WEB = Path(__file__).parents[2] / "clients" / "web"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        os.environ.get("CI") != "true" and not (WEB / "node_modules").exists(),
        reason="make web installs what this runs",
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example as a company has it: beside the package as it is published."""
    subprocess.run(["npm", "run", "package", "--silent"], cwd=WEB, check=True)
    folder = tmp_path / "service"
    shutil.copytree(WEB / "examples" / "node", folder)
    shutil.copytree(WEB / "core" / "dist", folder / "node_modules" / "@hdpmf" / "core")
    (folder / "node_modules" / "@noble").symlink_to(WEB / "node_modules" / "@noble")
    return folder


def test_a_node_service_reports_and_both_servers_count_it(world: World, example: Path) -> None:
    (example / "ratings.json").write_text(json.dumps({"1": 5, "7": 4, "12": 2}))
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(world.authorities)}
    command = ["node", "participant.mjs", world.link(), "person", "ratings.json", "1"]
    world.begin_run()
    said: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, cwd=example, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(json.loads(line))
                if said[-1]["what"] == "list":
                    break
        finally:
            process.kill()
    assert said[0]["digest"] == world.parties.servers.digest
    told = [each["what"] for each in said[1:]]
    assert told.count("enrolled") == 1
    steps = [each for each in told if each not in ("enrolled", "again")]
    assert steps == [*2 * ["asked", "token", "sent"], "model", "list"]
    listed = [each["item"] for each in said[-1]["items"]]
    assert len(set(listed) - {"1", "7", "12"}) == len(listed) == 5
    summary = world.summary()
    assert summary is not None
    everybody = [PEOPLE + 1, PEOPLE + 1]
    assert summary["reports"] == everybody
    assert world.counted() == {"leader": everybody, "helper": everybody}
