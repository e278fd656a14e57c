"""docs/deploy.md on several hosts for one server, as it is written: two hosts of the leader and
their database, each in a network namespace.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.aggregator.postgres import running, unavailable
from tests.deploy.hosts import Hosts, lacking
from tests.deploy.page import ROOT, Line, section
from tests.deploy.test_three_hosts import PUPILS, Rehearsal, _compile, _task, _write_inputs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = {
    "library": ("sums.library.example",),  # two addresses of one name, as in the DNS
    "second": ("sums.library.example", "second.library.example"),
    "db": ("db.library.example",),
    "university": ("sums.university.example",),
    "shop": ("shop.example",),
    "homes": ("school.example",),
}
TRIAL = {
    "--workers 4": "--workers 1",
    "--period 7d": "--period 90s --precision 5s",
    "--minimum 1000": "--minimum 16",
    "--every 300": "--every 2",
    "/opt/hdpmf/bin/hdpmf": "hdpmf",
}
READY = "listens on 0.0.0.0:9444"


def test_the_page_sets_up_two_hosts_of_one_server(tmp_path: Path) -> None:
    if lacking():
        unavailable(lacking())
    log = ROOT / "out" / "hosts-of-one-server.log"
    with (
        Hosts(tmp_path, NAMES, {}, delay=0.001, loss=0.0) as hosts,
        running(
            "postgres",
            "-c listen_addresses=*",
            lambda command: hosts.entered("db", command),
            "10.77.0.0/24",
        ) as postgres,
    ):
        on = Rehearsal(hosts, log, NAMES, TRIAL)
        _write_inputs(hosts)
        _compile()
        *set_up, card, admit = section("Several hosts for one server")
        serve = {line.prompt: line for line in set_up if " serve " in line.text}
        helper, pair = _of("university", 2), _of("university", 3)
        for line in (*helper, pair[0], *set_up):
            match line.words:
                case ["sudo", "-u", "postgres", program, *given]:
                    on.say(f"{line.prompt}$ {line.text}")
                    postgres(program, *given)
                case _:
                    on.run(line)
        for line in pair[1:]:
            on.run(line)
        for name in ("library", "second", "university"):
            on.wait(f"{name} listens", lambda name=name: READY in hosts.log(f"{name}-aggregator"))
        for line in section(4):
            if line.prompt != "library" or line.words[0] == "scp":
                on.run(line)
        for line in section(5):
            if "school" in line.text:
                on.run(line)
        (hosts.home("homes") / "trial.toml").write_text("min_period = 10\n")
        hosts.call("homes", "hdpmf", "device", "policy", "school.sqlite", "--set", "trial.toml")
        on.run(card)
        assert "shop" in on.run(admit)
        assert not list((hosts.home("library") / "aggregator" / "collectors").iterdir())

        hosts.kill("second-aggregator")
        on.say("the host on which the shop was admitted is killed")
        (run,) = (line for line in section(6) if "recommender run" in line.text)
        on.run(run)
        shop = hosts.home("shop") / "recommender"
        on.wait("the other host has its task", lambda: _task(shop) is not None)

        on.run(serve["second"])
        on.wait("second listens again", lambda: hosts.log("second-aggregator").count(READY) == 2)
        hosts.kill("library-aggregator")
        on.say("the host that took the task is killed")
        for line in section(6):
            if "school" in line.text or line.prompt == "school":
                on.run(line)
        on.wait(
            "both servers have counted the school; the leader is its second host",
            lambda: _counted(hosts, "second") == _counted(hosts, "university") == PUPILS,
        )
        on.check_trial()


def _of(prompt: str, number: int) -> list[Line]:
    return [line for line in section(number) if line.prompt == prompt]


def _counted(hosts: Hosts, host: str) -> int:
    status = hosts.call(host, "hdpmf", "aggregator", "status", "aggregator", "--json")
    return sum(int(task["counted"]) for task in json.loads(status)["tasks"])
