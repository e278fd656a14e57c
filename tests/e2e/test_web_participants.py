"""People in browsers, and a company's Node service, from an invitation to a list, a report and a
second day; a real recommender and both servers, which count them.

All of them take part in one run: it is what takes long.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hdpmf.lab.simulate.deploy import free_port
from tests.e2e.world import PEOPLE, World

WEB = Path(__file__).parents[2] / "clients" / "web"
RATED = 5
SAYS_NO = "desktop"
BROWSERS = ["phone", "desktop", "firefox", "extension"]
EVERYBODY = PEOPLE + len(BROWSERS) + 1
Seen = dict[str, dict[str, Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.environ.get("CI") != "true"
        and not all(
            map(shutil.which, ("chromium", "firefox-esr", str(WEB / "node_modules/.bin/vite")))
        ),
        reason="needs Chromium, Firefox (apt-get install chromium firefox-esr), and make web",
    ),
]


class Browsers:
    """The people of ``clients/web/story``, all of whom do the same at once."""

    def __init__(self, port: int, folder: Path) -> None:
        subprocess.run(["node", "build.mjs"], cwd=WEB, check=True, stdout=subprocess.DEVNULL)
        self._process = subprocess.Popen(
            ["node_modules/.bin/vite-node", "story/story.ts", str(port), folder],
            cwd=WEB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Browsers:
        assert self.told() == BROWSERS
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # it ends the browsers
        self._process.communicate()

    def all(self, do: str, **how: object) -> Seen:
        """Let everybody do something; return what each of them saw."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **how}), file=self._process.stdin, flush=True)
        found: Seen = self.told()
        return found

    def told(self) -> Any:
        """What they said last."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the browsers' process has ended: see what it wrote"
        return json.loads(line)


@contextmanager
def node_service(world: World, folder: Path) -> Iterator[Path]:
    """The example as a company has it, beside the package as it is published; yields its output."""
    subprocess.run(["npm", "run", "package", "--silent"], cwd=WEB, check=True)
    shutil.copytree(WEB / "examples" / "node", folder)
    shutil.copytree(WEB / "core" / "dist", folder / "node_modules" / "@hdpmf" / "core")
    (folder / "node_modules" / "@noble").symlink_to(WEB / "node_modules" / "@noble")
    (folder / "ratings.json").write_text(json.dumps({"1": 5, "7": 4, "12": 2}))
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(world.authorities)}
    command = ["node", "participant.mjs", world.link(), "person", "ratings.json", "1"]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said)
    try:
        yield folder / "said"
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Story:
    """What everybody saw."""

    world: World
    joined: Seen
    reported: Seen
    later: Seen
    service: list[dict[str, Any]]
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder, port, stack = tmp_path_factory.mktemp("story"), free_port(), ExitStack()
    with stack:
        app = f"http://localhost:{port}/"
        world = stack.enter_context(World(folder / "world", app=app))
        world.begin_run(10)  # of other people alone: there is a list on the first day
        browsers = stack.enter_context(Browsers(port, folder))
        world.wait(lambda: world.summary(1))
        links = {name: world.link() for name in BROWSERS}
        joined = browsers.all("join", links=links, name="demo", count=RATED, no=[SAYS_NO])
        said = stack.enter_context(node_service(world, folder / "service"))
        world.wait(lambda: world.service.people == EVERYBODY)
        world.begin_run()
        reported: Seen = {}
        for count in (1, 2):
            world.wait_for_task()
            browsers.all("look")
            reported = browsers.all("reported", count=count)
        world.wait(lambda: world.summary(2))
        later = browsers.all("tomorrow")
        end = time.monotonic() + 60
        while said.read_text().count('"list"') < 2 and time.monotonic() < end:
            time.sleep(0.1)
        service = [json.loads(line) for line in said.read_text().splitlines()]
        yield Story(world, joined, reported, later, service, world.summary(2) or {})


def test_people_see_both_servers_and_a_list_before_anything_leaves(story: Story) -> None:
    servers = story.world.parties.servers
    hosts = [url.partition("://")[2] for url in (servers.leader.url, servers.helper.url)]
    for name, saw in story.joined.items():
        assert saw["servers"][1:] == hosts, name
        assert len(saw["titles"]) >= 10, name


def test_both_servers_and_the_recommender_count_everybody(story: Story) -> None:
    """Whoever has the extension has no page open meanwhile: `Away` in story.ts."""
    assert story.summary["reports"] == [EVERYBODY, EVERYBODY]
    first, second = slice(0, 2), slice(2, 4)
    for counted in story.world.counted().values():
        assert counted[second] == [EVERYBODY, EVERYBODY]
        assert max(counted[first]) <= PEOPLE


def test_what_has_left_is_one_line_and_one_sentence(story: Story) -> None:
    for name, saw in story.reported.items():
        (run,) = saw["runs"]
        assert run.endswith("zeros") == (name == SAYS_NO), name
        told = "Nothing you rated has left" if name == SAYS_NO else "right at most"
        assert told in saw["spent"][0], name


def test_on_the_second_day_something_is_new(story: Story) -> None:
    for name, saw in story.later.items():
        assert 1 <= len(saw["fresh"]) <= 3, name
        assert not set(saw["fresh"]) & set(story.joined[name]["titles"][:20]), name


def test_the_node_service_took_part_and_made_its_list(story: Story) -> None:
    joins, *others = story.service
    assert joins["digest"] == story.world.parties.servers.digest
    told = [each["what"] for each in others]
    assert told.count("enrolled") == 1
    steps = [each for each in told if each not in ("enrolled", "again")]
    assert steps == ["model", "list", *2 * ["asked", "token", "sent"], "model", "list"]
    listed = [each["item"] for each in others[-1]["items"]]
    assert len(set(listed) - {"1", "7", "12"}) == len(listed) == 5
