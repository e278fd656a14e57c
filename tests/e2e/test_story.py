"""From an invitation to a list, a report and a second day: people in browsers, a real recommender,
and both servers, which count them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hdpmf.lab.simulate.deploy import free_port
from tests.e2e.world import PEOPLE, World

WEB = (
    Path(os.environ["WEB"])
    if "WEB" in os.environ
    else Path(__file__).parents[2] / "clients" / "web"
)
RATED = 5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.environ.get("CI") != "true" and not (WEB / "node_modules").exists(),
        reason="make web installs what this runs",
    ),
]


class Browsers:
    """The people of ``clients/web/story``, all of whom do the same at once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.names: list[str] = self._told()

    def all(self, do: str, **how: object) -> dict[str, dict[str, Any]]:
        """Let everybody do something; return what each of them saw."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **how}), file=self._process.stdin, flush=True)
        found: dict[str, dict[str, Any]] = self._told()
        return found

    def _told(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the browsers' process has ended: see what it wrote"
        return json.loads(line)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world"), app=f"http://localhost:{port}/") as made:
        yield made


@pytest.fixture(scope="module")
def browsers(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsers]:
    subprocess.run(["node", "build.mjs"], cwd=WEB, check=True, stdout=subprocess.DEVNULL)
    shots = tmp_path_factory.mktemp("shots")
    command = ["node_modules/.bin/vite-node", "story/story.ts", str(port), str(shots)]
    with subprocess.Popen(
        command, cwd=WEB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Browsers(process)
        finally:
            process.terminate()  # which ends the browsers, too


def test_from_an_invitation_to_a_second_day(world: World, browsers: Browsers) -> None:
    world.begin_run(10)
    world.wait(lambda: world.summary(1))
    links = {name: world.link() for name in browsers.names}
    joined = browsers.all("join", links=links, name="demo", count=RATED)
    servers = world.parties.servers
    hosts = [url.partition("://")[2] for url in (servers.leader.url, servers.helper.url)]
    for name, saw in joined.items():
        assert saw["servers"][1:] == hosts, name
        assert len(saw["titles"]) >= 10, name
    everybody = PEOPLE + len(links)
    assert world.service.people == everybody
    counted = [PEOPLE, PEOPLE]
    assert world.counted() == {"leader": counted, "helper": counted}
    world.begin_run()
    for part in (1, 2):
        world.wait_for_task()
        browsers.all("look")
        told = browsers.all("reported", count=part)
    for name, saw in told.items():
        assert len(saw["runs"]) == 1, name
    world.wait(lambda: world.summary(2))
    summary = world.summary(2)
    assert summary is not None
    assert summary["reports"] == [everybody, everybody]
    counted += [everybody, everybody]
    assert world.counted() == {"leader": counted, "helper": counted}
    later = browsers.all("tomorrow")
    for name, saw in later.items():
        assert 1 <= len(saw["fresh"]) <= 3, name
        assert saw["titles"] != joined[name]["titles"], name
