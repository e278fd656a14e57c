"""docs/deploy.md as it is written, on hosts of their own: two servers, a recommender, devices, and what befalls them.

``python tests/deploy/test_three_hosts.py`` prints what happens when.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hosts import Hosts, lacking
from page import Line, section, unit_command

from hdpmf.prio import NONCE_SIZE, prio3_one_rating

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = {
    "library": ("sums.library.example",),
    "university": ("sums.university.example",),
    "shop": ("shop.example",),
    "homes": ("school.example", "ana.example", "ben.example", "eva.example"),
}
PEOPLE = ("ana", "ben", "eva")  # the page has Ana's lines only
PROMPTS = {"school": "homes", **dict.fromkeys(PEOPLE, "homes")}
TRIAL = {
    "--period 7d": "--period 40s --precision 5s",
    "--minimum 1000": "--minimum 20",
    "--every 300": "--every 2",
    "/opt/hdpmf/bin/hdpmf": "hdpmf",
}
"""What the page says for a small trial, instead of what it says for a real run."""

PUPILS, FILMS = 20, 30
LEADER, SHOP = "library-aggregator", "shop-recommender"
REPORTED = "reported to the servers of City Library and University"


class Rehearsal:
    """Runs the page's lines on hosts, and says when."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._begun = time.monotonic()
        self._used: set[str] = set()

    def say(self, words: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {words}", flush=True)

    def section(self, number: int) -> None:
        """Run a section's lines."""
        for line in [line for written in section(number) for line in _everybody(written)]:
            self.run(line)

    def run(self, line: Line) -> str:
        host = PROMPTS.get(line.prompt, line.prompt)
        text = self._for_trial(line.text)
        self.say(f"{line.prompt}$ {text}")
        match shlex.split(text):
            case ["scp", file, target]:
                self._copy(host, file, target)
            case ["sudo", "systemctl", "enable", "--now", unit] | ["sudo", "systemctl", "start", unit]:
                self.start_unit(host, unit)
            case ["hdpmf", "device", "join", *_] as words:
                self.hosts.start(line.prompt, host, *words)
            case words:
                return self.hosts.call(host, *words)
        return ""

    def start_unit(self, host: str, unit: str) -> None:
        """What systemd does at a start, and after a crash."""
        name = f"{host}-{unit.removeprefix('hdpmf-')}"
        self.hosts.start(name, host, *shlex.split(self._for_trial(unit_command(unit))))

    def wait(self, what: str, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not reached():
            failed = [name for name in (SHOP, "school", *PEOPLE) if self.hosts.status(name) not in (None, 0)]
            assert not failed, f"{failed[0]} failed: {self.hosts.log(failed[0])[-2000:]}"
            assert time.monotonic() < end, f"no sign of this after {seconds:g} s: {what}"
            time.sleep(0.2)
        self.say(what)

    def check_trial(self) -> None:
        """The page still has everything that a trial replaces."""
        assert self._used == set(TRIAL)

    def _for_trial(self, text: str) -> str:
        for written, tried in TRIAL.items():
            if written in text:
                self._used.add(written)
                text = text.replace(written, tried)
        return text

    def _copy(self, host: str, file: str, target: str) -> None:
        name, _, path = target.partition(":")
        (other,) = (known for known, names in NAMES.items() if name in names)
        (self.hosts.home(other) / path).write_bytes((self.hosts.home(host) / file).read_bytes())


def _everybody(line: Line) -> list[Line]:
    """Ana's lines are everybody's."""
    if not re.search(r"\bana\b", " ".join(line)):
        return [line]
    return [Line(*(re.sub(r"\bana\b", person, part) for part in line)) for person in PEOPLE]


def rehearse(folder: Path) -> None:
    """The whole page, with a helper that is cut off and a leader that is killed in the middle of a period."""
    with Hosts(folder, NAMES, {"HDPMF_DEVICE_PASSPHRASE": "only for this test"}) as hosts:
        on = Rehearsal(hosts)
        on.say("links with 20 ms and 1 % loss" if hosts.netem else "no netem in this kernel: links without loss")
        _write_inputs(hosts)
        _compile()
        on.section(2)
        _shorter_lease(hosts.home("library") / "aggregator" / "config.toml")
        on.section(3)
        assert _servers(hosts, "library") == _servers(hosts, "university")
        for number in (4, 5, 6):
            on.section(number)
        on.check_trial()
        shop = hosts.home("shop") / "recommender"
        on.wait("the task is at both servers, and published", lambda: _task(shop) is not None)
        hosts.link("university", "down")
        on.say("the helper's link is down")
        down = time.monotonic()
        on.wait("the school has reported", lambda: REPORTED in hosts.log("school"))
        (held,) = json.loads(hosts.call("library", "hdpmf", "aggregator", "status", "aggregator", "--json"))["tasks"]
        assert held["waiting"] >= PUPILS, "the helper was reached although its link is down"
        hosts.kill(LEADER)
        on.say("kill -9 of the leader")
        on.start_unit("library", "hdpmf-aggregator")
        time.sleep(max(0.0, down + 5 - time.monotonic()))
        hosts.link("university", "up")
        on.say("the helper's link is up")
        on.wait("the run has ended", lambda: any(shop.glob("runs/*/summary.json")), 120)
        for name in ("school", *PEOPLE):
            on.wait(f"{name} has the model", lambda name=name: "A model of run" in hosts.log(name))
        printed = [on.run(line) for line in section(7)]
        _check(hosts, shop, printed)
        on.say(f"recommended to Ana:\n{printed[0]}")


def _check(hosts: Hosts, shop: Path, printed: list[str]) -> None:
    """Every confirmed report is in the sum, none twice; Ana has her list."""
    (summary,) = (json.loads(path.read_bytes()) for path in shop.glob("runs/*/summary.json"))
    confirmed = PUPILS + sum(REPORTED in hosts.log(person) for person in PEOPLE)
    assert confirmed <= summary["users"] <= PUPILS + len(PEOPLE)
    assert summary["privacy"]["status"] == "proved"
    assert len(re.findall(r"Film \d+", printed[0])) == 5
    assert "City Library" in printed[1]
    assert str(summary["users"]) in printed[2]


def _write_inputs(hosts: Hosts) -> None:
    drawn = random.Random(7)
    films = "".join(f"{film},Film {film}\n" for film in range(FILMS))
    (hosts.home("shop") / "films.csv").write_text("item,title\n" + films)
    loans = [
        f"pupil{pupil},{film},{drawn.randint(1, 5)}\n"
        for pupil in range(PUPILS)
        for film in drawn.sample(range(FILMS), 6)
    ]
    (hosts.home("homes") / "loans.csv").write_text("reader,film,rating\n" + "".join(loans))


def _compile() -> None:
    """What a new installation compiles at the first report: a period of seconds has no time for it."""
    prio = prio3_one_rating(FILMS, codes=(-2, -1, 0, 1, 2), rulers=(-2, -1, 0, 1, 2), task=b"")
    key, nonce, nobody = bytes(prio.seed_size), bytes(NONCE_SIZE), np.zeros(FILMS, dtype=np.int64)
    report = prio.shard(prio.circuit.encode(nobody, nobody), nonce)
    both = [prio.prepare(key, at, nonce, report.public_share, share) for at, share in enumerate(report.input_shares)]
    message = prio.verify([part for _, part in both])
    prio.unshard([prio.field.encode(prio.finish(state, message)) for state, _ in both])


def _shorter_lease(config: Path) -> None:
    """A minute's wait after a kill is too long here."""
    text, changed = re.subn(r"(?m)^lease = .*$", "lease = 2.0", config.read_text("utf-8"))
    assert changed == 1
    config.write_text(text)


def _servers(hosts: Hosts, host: str) -> bytes:
    return (hosts.home(host) / "aggregator" / "servers.json").read_bytes()


def _task(shop: Path) -> str | None:
    task = json.loads((shop / "public" / "index.json").read_bytes())["task"]
    return None if task is None else str(task["id"])


def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    reason = lacking()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    rehearse(tmp_path)


if __name__ == "__main__":
    if lacking():
        sys.exit(lacking())
    with tempfile.TemporaryDirectory() as place:
        rehearse(Path(place))
