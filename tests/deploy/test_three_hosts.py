"""docs/deploy.md as it is written, on hosts of their own: two servers, a recommender, devices, and
what befalls them.

``python -m tests.deploy.test_three_hosts`` prints what happens when; with a number, so many times
(``make soak``).
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.net.certificates import ensure_certificates
from tests.aggregator.postgres import running, unavailable
from tests.deploy.hosts import DELAY, DISK, LOSS, Hosts, lacking
from tests.deploy.page import PAGE, ROOT, Line, file_of, section, unit_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = {
    "library": ("sums.library.example",),
    "university": ("sums.university.example",),
    "shop": ("shop.example",),
    "homes": ("ana.example", "ben.example", "eva.example"),
}
PEOPLE = ("ana", "ben", "eva")  # the page has Ana's lines only
PROMPTS = dict.fromkeys(PEOPLE, "homes")
TRIAL = {
    "--period 7d": "--period 90s --precision 5s",
    "--minimum 1000": "--minimum 3",
    "--every 300": "--every 2",
    "/opt/hdpmf/bin/hdpmf": "hdpmf",
}
"""What the page says for a small trial, instead of what it says for a real run."""

SHORT = "--period 40s --precision 5s"

FILMS = 30
LEADER, HELPER, SHOP = "library-aggregator", "university-aggregator", "shop-recommender"
PROCESSES = {
    "library": (LEADER,),
    "university": (HELPER,),
    "shop": (SHOP,),
    "homes": PEOPLE,
}
REPORTED = "the report is there"
LOG = ROOT / "out" / "three-hosts.log"
"""Where the test leaves what happened when, for CI to show."""

FULL_SECONDS = 12.0
"""That the leader's disk is full, at most: who was turned away tries again after 8 to 23 s,
before the period ends.
"""


class Rehearsal:
    """Runs the page's lines on hosts, and says when."""

    def __init__(self, hosts: Hosts, log: Path, trial: Mapping[str, str] = TRIAL) -> None:
        self.hosts = hosts
        self._trial = trial
        self._begun = time.monotonic()
        self._used: set[str] = set()
        self._log = log
        log.parent.mkdir(exist_ok=True)
        log.write_text("")

    def say(self, words: str) -> None:
        line = f"{time.monotonic() - self._begun:6.1f} s  {words}"
        print(line, flush=True)
        with self._log.open("a") as log:
            log.write(line + "\n")

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
            case ["sudo", "systemctl", "enable", "--now", unit]:
                self.start_unit(host, unit)
            case ["hdpmf", "device", "join", *_, "--look"] as words:
                return self.hosts.call(host, *words, "--yes")
            case ["hdpmf", "device", "join", *_] as words:
                self.hosts.start(line.prompt, host, *words)
            case words:
                return self.hosts.call(host, *words)
        return ""

    def start_unit(self, host: str, unit: str) -> None:
        """What systemd does at a start, and after a crash."""
        name = f"{host}-{unit.removeprefix('hdpmf-')}"
        self.hosts.start(name, host, *shlex.split(self._for_trial(unit_command(unit))))

    def wait(self, what: str, reached: Callable[[], bool], seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not reached():
            failed = self.hosts.failed()
            assert not failed, f"{failed} failed: {self.hosts.log(failed)[-2000:]}"
            assert time.monotonic() < end, f"no sign of this after {seconds:g} s: {what}"
            time.sleep(0.2)
        self.say(what)

    def restart(self, host: str) -> None:
        """Everything on a host is killed (``kill -9``), and started as it would be when the host
        starts.
        """
        self.crash(host)
        self.boot(host)
        self.say(f"{host} was killed and has started again")

    def crash(self, host: str) -> None:
        self.hosts.kill(*PROCESSES[host])

    def boot(self, host: str) -> None:
        for name in PROCESSES[host]:
            if host == "homes":  # all that was given the first time is pinned
                self.hosts.start(
                    name, host, "hdpmf", "device", "join", f"{name}.sqlite", "--every", "2"
                )
            else:
                self.start_unit(host, f"hdpmf-{name.removeprefix(f'{host}-')}")

    def check_trial(self) -> None:
        """The page still has everything that a trial replaces."""
        assert self._used == set(TRIAL)

    def _for_trial(self, text: str) -> str:
        for written, tried in self._trial.items():
            if written in text:
                self._used.add(written)
                text = text.replace(written, tried)
        return text

    def _copy(self, host: str, file: str, target: str) -> None:
        name, _, path = target.partition(":")
        other = next(known for known, names in NAMES.items() if name in names)
        source, copy = self.hosts.home(host) / file, self.hosts.home(other) / path
        copy.write_bytes(source.read_bytes())


def _everybody(line: Line) -> list[Line]:
    """Ana's lines are everybody's."""
    if not re.search(r"\bana\b", " ".join(line)):
        return [line]
    return [Line(*(re.sub(r"\bana\b", person, part) for part in line)) for person in PEOPLE]


def rehearse(folder: Path, log: Path) -> None:
    """The whole page, and in the middle of the period everything that befalls hosts; then old
    copies come back.
    """
    with Hosts(folder, NAMES, {"HDPMF_DEVICE_PASSPHRASE": "only for this test"}) as hosts:
        on = Rehearsal(hosts, log)
        on.say(
            f"links with {DELAY * 1000:g} ms and {LOSS:.0%} loss each way, disks of "
            f"{DISK >> 20} MiB"
        )
        _write_inputs(hosts)
        subprocess.run([sys.executable, "-c", COMPILE], check=True, timeout=300)
        on.section(2)
        for server in ("library", "university"):
            _allow_few(hosts, server)
        on.section(3)
        assert _servers(hosts, "library") == _servers(hosts, "university")
        for number in (4, 5):
            on.section(number)
        _copy_shop(hosts, "before")
        shutil.copyfile(hosts.home("homes") / "ben.sqlite", folder / "ben.sqlite")
        on.section(6)
        on.check_trial()
        shop = hosts.home("shop") / "recommender"
        on.wait("the task is at both servers, and published", lambda: _task(shop) is not None)
        _befall(on)
        on.wait("the run has ended", lambda: _ended(shop), 180)
        for name in PEOPLE:
            on.wait(
                f"{name} has the model", lambda name=name: "a new model is here" in hosts.log(name)
            )
        printed = [on.run(line) for line in section(7)]
        _check(hosts, shop, printed)
        on.say(f"recommended to Ana:\n{printed[0]}")
        _put_back_a_store(on, folder / "ben.sqlite")
        _put_back_a_database(on, shop)
        _put_back_a_shop(on, shop)
        on.say(f"{hosts.router.carried} packets were carried, {hosts.router.lost} lost")


def rehearse_installation(folder: Path, log: Path) -> None:
    """The page from a wheel, where nothing else is installed than what it says: the leader has
    PostgreSQL on a host of its own, and all services are behind the page's proxies.
    """
    programs, authorities = _installed(folder / "installed"), folder / "authorities.pem"
    names = {**NAMES, "database": ("db.library.example",)}
    given = {
        "HDPMF_DEVICE_PASSPHRASE": "only for this test",
        "SSL_CERT_FILE": str(authorities),  # stands for the public ones
    }
    with Hosts(folder, names, given, programs=programs) as hosts:
        on = Rehearsal(hosts, log, PROXIED)
        _write_inputs(hosts)
        authorities.write_text("".join(_serve_proxy(hosts, host) for host in PROXIES))
        with running(
            "hdpmf",
            "-c listen_addresses=*",
            lambda command: hosts.entered("database", command),
            "10.77.0.0/24",
        ) as postgres:
            (init, _) = section("Several workers for one server")
            said = hosts.call("library", *shlex.split(init.text), fails=True)
            assert "sums" in said, said  # the database is not there yet
            postgres("createdb", "sums")
            for line in section(2):
                on.run(init if line.prompt == init.prompt else line)
            for server in ("library", "university"):
                _allow_few(hosts, server)
            for number in (3, 4):
                on.section(number)
            for line in section(5):
                if "authority.pem ana" not in line.text:
                    for each in _everybody(line):
                        on.run(each)
            (run, take_part) = section(6)
            on.run(Line(run.prompt, run.text.replace("--period 7d", SHORT)))
            for line in _everybody(take_part):
                on.run(line)
            shop = hosts.home("shop") / "recommender"
            on.wait("the run has ended", lambda: _ended(shop), 300)
            for name in PEOPLE:
                on.wait(
                    f"{name} has the model",
                    lambda name=name: "a new model is here" in hosts.log(name),
                )
            _check(hosts, shop, [on.run(line) for line in section(7)])
            said = hosts.call("homes", str(programs / "python"), "-c", RUDE)
            on.say(f"what nginx does with who is slow, and with a flood: {said.strip()}")
            closed, statuses = json.loads(said)
            assert closed < 20
            assert statuses[:3] == [422, 422, 422]
            assert 429 in statuses


PROXIED = TRIAL | {
    " --listen 0.0.0.0:9444": " --behind-proxy",
    " --listen 0.0.0.0:9443": " --behind-proxy",
    " --authority authority.pem": "",
}
PROXIES = {"library": "library-caddy", "university": "university-caddy", "shop": "shop-nginx"}
RUDE = """
import http.client, json, socket, ssl, time
context = ssl.create_default_context()
plain = socket.create_connection(("shop.example", 443))
slow = context.wrap_socket(plain, server_hostname="shop.example")
slow.settimeout(30)
slow.send(b"GET /index.json HTTP/1.1\\r\\nHost:")
begun = time.monotonic()
slow.recv(1)
closed = time.monotonic() - begun
statuses = []
for _ in range(40):
    connection = http.client.HTTPSConnection("shop.example", context=context)
    connection.request("POST", "/participants", b"{}")
    statuses.append(connection.getresponse().status)
print(json.dumps([closed, statuses]))
"""
"""A client that does not finish its header, and one that floods."""


def _serve_proxy(hosts: Hosts, host: str) -> str:
    """Start the page's proxy of a host; return the authority of its certificate."""
    (name,), home = NAMES[host], hosts.home(host)
    made = ensure_certificates(home / "proxy", [name])
    certificate, key = (f"/srv/hdpmf/proxy/{path.name}" for path in (made.server, made.key))
    if host == "shop":
        text = file_of("Public certificates", "limit_conn_zone")
        text = re.sub(r"(ssl_certificate ).*;", rf"\1{certificate};", text)
        text = re.sub(r"(ssl_certificate_key ).*;", rf"\1{key};", text)
        (home / "nginx.conf").write_text(
            "daemon off; master_process off; pid /srv/hdpmf/nginx.pid; error_log stderr;\n"
            f"events {{}}\nhttp {{\n{text}}}\n"
        )
        hosts.start(PROXIES[host], host, "nginx", "-c", "/srv/hdpmf/nginx.conf")
    else:
        text = file_of("Public certificates", "Caddyfile").replace(*NAMES["library"], name)
        text = text.replace("reverse_proxy", f"tls {certificate} {key}\n    reverse_proxy")
        (home / "Caddyfile").write_text(text)
        hosts.start(PROXIES[host], host, "caddy", "run", "--config", "/srv/hdpmf/Caddyfile")
    return made.authority.read_text()


def _installed(folder: Path) -> Path:
    """The programs of a new environment, with what pip installs by the page's line from a wheel."""
    (line,) = re.findall(r"pip install '\.(\[.*?\])'", PAGE.read_text("utf-8"))

    def pip(*words: object) -> None:
        subprocess.run(
            [sys.executable, "-m", "pip", *map(str, words)], check=True, timeout=500, cwd=ROOT
        )

    pip("wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", folder / "wheel", ".")
    (wheel,) = (folder / "wheel").iterdir()
    venv.create(folder / "venv", with_pip=False)
    programs = folder / "venv" / "bin"
    pip("--python", programs / "python", "install", "-qq", f"{wheel}{line}")
    subprocess.run([programs / "python", "-c", COMPILE], check=True, timeout=300, cwd=folder)
    return programs


def _allow_few(hosts: Hosts, host: str) -> None:
    config = hosts.home(host) / "aggregator" / "config.toml"
    text, changed = re.subn(r"(?m)^#? *minimum = \d+", "minimum = 3", config.read_text())
    assert changed == 1, text
    config.write_text(text)


def _befall(on: Rehearsal) -> None:
    """In the middle of the period: a lost link, full disks, a restart of every host, and a
    copy that is put back.
    """
    hosts, began = on.hosts, time.monotonic()
    hosts.link("university", "down")
    on.say("the helper's link is down")
    _copy_shop(hosts, "middle")
    _fill_the_leader(on)
    on.restart("shop")
    on.restart("homes")
    on.wait("somebody has reported", lambda: _confirmed(hosts) > 0)
    assert _waiting(hosts) > 0, "the helper was reached although its link is down"
    on.crash("library")
    _copy_database(hosts, "old")
    on.boot("library")
    on.say("the leader was killed and has started again; its database was copied in between")
    hosts.fill_disk("university")
    time.sleep(max(0.0, began + 5 - time.monotonic()))
    hosts.link("university", "up")
    on.say("the helper's link is up, and its disk is full")
    on.wait("the helper says that its disk is full", lambda: "disk is full" in hosts.log(HELPER))
    assert _waiting(hosts) > 0, "the helper's disk was full, and it confirmed something"
    hosts.free_disk("university")
    on.say("the helper's disk has room again")
    on.restart("university")
    # A shop that has forgotten who has a token gives no more: who asks later does not report.
    on.wait(
        "everybody has a token",
        lambda: all("a token is here" in hosts.log(name) for name in PEOPLE),
        120,
    )
    _restore(on, "middle")


def _fill_the_leader(on: Rehearsal) -> None:
    """Nothing is confirmed while its disk is full, and both sides say so. Whether anybody
    reports then is chance.
    """
    hosts = on.hosts
    hosts.fill_disk("library")
    on.say("the leader's disk is full")
    confirmed, end = _confirmed(hosts), time.monotonic() + FULL_SECONDS
    turned_away = ""
    while not turned_away and time.monotonic() < end:
        time.sleep(0.2)
        turned_away = next(
            (name for name in PROCESSES["homes"] if "its answer was 503" in hosts.log(name)), ""
        )
    assert _confirmed(hosts) == confirmed
    hosts.free_disk("library")
    if turned_away:
        assert "disk is full" in hosts.log(LEADER)
    words = (
        f"{turned_away} was turned away, and tries again"
        if turned_away
        else "nobody has reported meanwhile"
    )
    on.say(f"the leader's disk has room again; {words}")


def _put_back_a_store(on: Rehearsal, old: Path) -> None:
    """A device's store of before the run forgets what was spent: its counter knows."""
    store, newest = on.hosts.home("homes") / "ben.sqlite", old.with_name("newest.sqlite")
    on.hosts.kill("ben")
    shutil.copyfile(store, newest)
    shutil.copyfile(old, store)
    said = on.hosts.call("homes", "hdpmf", "device", "join", "ben.sqlite", fails=True)
    assert "is an old copy" in said, said
    shutil.copyfile(newest, store)
    on.hosts.start("ben", "homes", "hdpmf", "device", "join", "ben.sqlite", "--every", "2")
    on.say(f"Ben's store of before the run is refused: {said.strip()}")


def _put_back_a_database(on: Rehearsal, shop: Path) -> None:
    """The leader's database of before the sum is refused; the newest one answers as it did. In the
    old one an epoch begins, and the task is over at the helper, too.
    """
    hosts, before = on.hosts, _tasks(shop)
    on.crash("library")
    _copy_database(hosts, "newest")
    _copy_database(hosts, "old", back=True)
    said = hosts.call("library", "hdpmf", "aggregator", "serve", "aggregator", fails=True)
    assert "is an old copy" in said, said
    on.say(f"the leader's database of before the sum is refused: {said.strip()}")
    _copy_database(hosts, "newest", back=True)
    on.boot("library")
    _restore(on, "middle")
    on.wait(
        "with the newest database the run ends again, and its model is published",
        lambda: _ended(shop) and _index(shop)["model"],
        300,
    )
    # The copy had the first task only: the second one is asked again, and paid again.
    first, second = _tasks(shop)
    assert first == before[0]
    assert second != before[1]
    on.crash("library")
    _copy_database(hosts, "old", back=True)
    on.run(Line("library", "hdpmf aggregator epoch aggregator"))
    on.boot("library")
    on.wait(
        "the leader has begun an epoch, and the helper has ended the task",
        lambda: "partner-began-an-epoch" in hosts.log(HELPER),
    )


def _put_back_a_shop(on: Rehearsal, shop: Path) -> None:
    """The shop knows nothing of the run. Devices keep their model, and what is spent stays
    spent.
    """
    _restore(on, "before")
    on.wait("the shop of before the run serves", lambda: not _index(shop)["model"])
    assert not list(shop.glob("runs/*"))
    before, reports = _spent(on.hosts), on.hosts.log("ana").count(REPORTED)
    (line,) = (line for line in section(6) if "recommender run" in line.text)
    # Long enough for a device that has to find the shop again first, on a busy machine, too.
    on.run(Line(line.prompt, line.text.replace("--period 7d", SHORT)))
    on.wait("a second run takes reports", lambda: _task(shop) is not None)
    on.wait("Ana reports in it", lambda: on.hosts.log("ana").count(REPORTED) > reports)
    assert _spent(on.hosts) >= before
    on.run(section(7)[0])


def _check(hosts: Hosts, shop: Path, printed: list[str]) -> None:
    """Every confirmed report is in the sum, none twice; Ana has her list."""
    (summary,) = (json.loads(path.read_bytes()) for path in shop.glob("runs/*/summary.json"))
    assert _confirmed(hosts) <= summary["users"] <= len(PEOPLE)
    assert summary["privacy"]["status"] == "proved"
    assert len(re.findall(r"(?m)^ +\d .*Film \d+", printed[0])) == 5
    assert "shop.example" in printed[1]
    assert str(summary["users"]) in printed[2]


def _confirmed(hosts: Hosts) -> int:
    """Devices that were told that their report for the task under way is taken, at least."""
    return sum(REPORTED in hosts.log(name) for name in PROCESSES["homes"])


def _waiting(hosts: Hosts) -> int:
    """Reports that the leader has, and the helper has not."""
    (task,) = json.loads(
        hosts.call("library", "hdpmf", "aggregator", "status", "aggregator", "--json")
    )["tasks"]
    return int(task["waiting"])


def _spent(hosts: Hosts) -> float:
    ledger = json.loads(hosts.call("homes", "hdpmf", "device", "ledger", "ana.sqlite", "--json"))
    return float(ledger["person"]["squared_mu"])


def _copy_database(hosts: Hosts, name: str, *, back: bool = False) -> None:
    """The leader's, while it is down, without the counter beside it."""
    place = hosts.home("library")
    source, target = (
        (place / name, place / "aggregator") if back else (place / "aggregator", place / name)
    )
    target.mkdir(exist_ok=True)
    for name in ("data.sqlite", "data.sqlite-wal", "data.sqlite-shm"):
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def _copy_shop(hosts: Hosts, name: str) -> None:
    """Copy the shop's folder as documented: everything but what begins with a dot."""
    home = hosts.home("shop")
    ignored = shutil.ignore_patterns(".*")
    shutil.copytree(home / "recommender", home / name, ignore=ignored, symlinks=True)


def _restore(on: Rehearsal, copy: str) -> None:
    on.crash("shop")
    home = on.hosts.home("shop")
    shutil.rmtree(home / "recommender")
    shutil.copytree(home / copy, home / "recommender", symlinks=True)
    on.boot("shop")
    on.say(f"the shop's folder is lost, and put back from the copy {copy}")


def _ended(shop: Path) -> bool:
    return any(shop.glob("runs/*/summary.json"))


def _index(shop: Path) -> dict[str, Any]:
    try:
        return json.loads((shop / "public" / "index.json").read_bytes())
    except FileNotFoundError:
        return {"task": "", "model": "not published yet"}


def _tasks(shop: Path) -> list[str]:
    """The tasks of the one run that has ended."""
    (summary,) = (json.loads(path.read_bytes()) for path in shop.glob("runs/*/summary.json"))
    return list(summary["tasks"])


def _write_inputs(hosts: Hosts) -> None:
    films = "".join(f"{film},Film {film}\n" for film in range(FILMS))
    (hosts.home("shop") / "films.csv").write_text("item,title\n" + films)


COMPILE = f"""
import numpy as np
from hdpmf.common.aggregation.two_servers.prio import prio3_bounded_vector
prio = prio3_bounded_vector({2 * FILMS + 1}, 255, 2 * ((1 << 20) - 1), True, b"")
report = prio.shard(prio.circuit.encode(np.zeros({2 * FILMS + 1}, np.int64)), bytes(16))
both = [
    prio.prepare(bytes(32), at, bytes(16), report.public_share, share)
    for at, share in enumerate(report.input_shares)
]
message = prio.verify([part for _, part in both])
prio.unshard([prio.field.encode(prio.finish(state, message)) for state, _ in both])
"""
"""What a new installation compiles at the first report: a period of seconds has no time for it."""


def _servers(hosts: Hosts, host: str) -> bytes:
    return (hosts.home(host) / "aggregator" / "servers.json").read_bytes()


def _task(shop: Path) -> str | None:
    return str(_index(shop)["task"]) or None


def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    if reason := lacking():
        unavailable(reason)
    rehearse(tmp_path, LOG)


def test_the_page_works_from_a_wheel_with_postgresql_behind_proxies(tmp_path: Path) -> None:
    absent = [f"needs {name}" for name in ("nginx", "caddy") if shutil.which(name) is None]
    if reason := lacking() or ", ".join(absent):
        unavailable(reason)
    rehearse_installation(tmp_path, LOG.with_name("installation.log"))


if __name__ == "__main__":
    if lacking():
        sys.exit(lacking())
    for _ in range(int(sys.argv[1]) if sys.argv[1:] else 1):
        with tempfile.TemporaryDirectory() as place:
            rehearse(Path(place), LOG)
