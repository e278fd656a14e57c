"""Makes what version 0.2.0 left on disks, by running its own commands, and its page's thread that
answers.

::

    git archive d9891d2 | tar -x -C OLD
    PYTHONPATH=OLD/src python tests/upgrade/make_fixture_0_2_0.py tests/upgrade/fixtures/0.2.0.tar.xz

Version 0.2.0 began with commit 2e91a60. Commit d9891d2 is the last one before each recommender had
a place of its own in a device's store: there is the owner's page, with several recommenders that
share one catalogue.

A shop and a club have the same 12 films and the same two servers. Three devices have joined both:
ana on her page, where she is asked; ben (encrypted) and a school on the command line. Both
recommenders have ended a run; then the shop has two more films. In ``killed`` the shop's next run
is under way, and all were killed before anybody reported: what ben's and the school's ratings pay
is held, and ana has not answered. Everything is made up, and the keys in it are nobody's. Keys,
times and noise differ from one making to the next.
"""  # noqa: E501

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from old_commands import (
    DEVICES,
    FILMS,
    PASSPHRASE,
    WAIT,
    copy,
    facts,
    hdpmf,
    key_of,
    models,
    pack,
    start,
    told,
    until,
)

PUPILS = 2
NAMED = ("pupil-0", "pupil-1")
POLICY = "min_participants = 3\n"
SHOP, CLUB = "recommender", "other"
SERVERS = ("leader", "helper")
# Two hosts: for the ledger, two ports of one host are one recommender.
ADDRESSES = {SHOP: "https://localhost:29443", CLUB: "https://127.0.0.1:29444"}
PERIOD = ("--period", "40s", "--precision", "5s", "--minimum", PUPILS + 2)
ALSO = ("recommenders", "consent", "everything")


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "made" / "hdpmf"
        folder.mkdir(parents=True)
        print(f"making it in {folder}", flush=True)
        try:
            models(folder, PUPILS)
            bits = ("--train", folder / "more.csv", "--epsilon", 0.5, "--seed", 3)
            hdpmf("release", "hdp-bit", *bits, "--out", folder / "bits.release")
            _set_up(folder)
            _two_runs(folder)
            _killed(folder)
        except BaseException:
            print((folder.parent.parent / "log.txt").read_text())
            raise
        pack(folder, target)


def answer(store: Path) -> None:
    """What the owner's page does while it is open (``page.answering``), without a browser."""
    from hdpmf.private.page.owner import BackgroundReports

    BackgroundReports(store, print, every=1.0).begin(None)
    threading.Event().wait()


def join(store: Path, *invitations: Path) -> None:
    """What the owner's page does when the digest was compared."""
    from hdpmf.common.protocol.invitation import Invitation
    from hdpmf.private.device.joined import join as join_one
    from hdpmf.private.device.store.device_store import DeviceStore

    with DeviceStore.open(store) as opened:
        for invitation in invitations:
            join_one(opened, Invitation.read(invitation.read_bytes()))


def _set_up(folder: Path) -> None:
    (folder / "films.csv").write_text(
        "item,title\n" + "".join(f"f{k:02},Film {k:02}\n" for k in range(FILMS))
    )
    (folder / "new.csv").write_text("item,title\nf12,Film 12\nf13,Film 13\n")
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "asks.toml").write_text(POLICY + "ask = true\n")
    for port, (role, name) in enumerate(zip(SERVERS, ("North", "South"), strict=True), start=29445):
        server = folder / role
        named = ("--role", role, "--organisation", name, "--name", "localhost", "--port", port)
        hdpmf("aggregator", "init", server, *named)
        config = (server / "config.toml").read_text().splitlines()
        rules = {"minimum = ": "minimum = 3", "lease = ": "lease = 2.0"}
        lines = [
            next((new for old, new in rules.items() if line.startswith(old)), line)
            for line in config
        ]
        (server / "config.toml").write_text("\n".join([*lines, ""]))
    for role, partner in zip(SERVERS, reversed(SERVERS), strict=True):
        hdpmf("aggregator", "pair", folder / role, folder / partner / "card.json")

    policy = ("--policy", folder / "policy.toml", "--scale", 1, 5)
    hdpmf(
        "device",
        "init",
        folder / "ana.sqlite",
        "--name",
        "ana",
        "--policy",
        folder / "asks.toml",
        "--scale",
        1,
        5,
    )
    hdpmf(
        "device",
        "init",
        folder / "ben.sqlite",
        "--name",
        "ben",
        *policy,
        "--encrypt",
        *key_of("ben", folder),
    )
    hdpmf(
        "device", "init", folder / "school.sqlite", "--name", "school", "--users", PUPILS, *policy
    )
    for film, stars, weight in (("f00", 5, 1), ("f01", 2, 0.5), ("f02", 4, 0.25)):
        for name in ("ana", "ben"):
            rated = (
                folder / f"{name}.sqlite",
                film,
                stars,
                "--weight",
                weight,
                *key_of(name, folder),
            )
            hdpmf("device", "rate", *rated)
    hdpmf("device", "rate", folder / "school.sqlite", "--from", folder / "loans.csv")

    for name, address in ADDRESSES.items():
        shop, port = folder / name, address.rpartition(":")[2]
        hdpmf(
            "recommender",
            "init",
            shop,
            "--name",
            name,
            "--items",
            folder / "films.csv",
            "--port",
            port,
        )
        hdpmf(
            "recommender",
            "enroll",
            shop,
            *(folder / f"{device}.sqlite.card.json" for device in DEVICES),
        )
        hdpmf("recommender", "servers", shop, folder / "leader" / "servers.json")
        hdpmf("recommender", "invite", shop, "--address", address)
        for role in SERVERS:
            hdpmf("aggregator", "admit", folder / role, shop / "collector-card.json")
    join(folder / "ana.sqlite", *(folder / name / "invitation.json" for name in ADDRESSES))


def _two_runs(folder: Path) -> None:
    """First the shop's run, then the club's, so that the model on every device is the club's."""
    ana = folder / "ana.sqlite"
    with _processes(folder, folder, *SERVERS, SHOP, CLUB) as processes:
        for name, epsilon, said, other in ((SHOP, 0.4, "always", CLUB), (CLUB, 0.3, "once", SHOP)):
            hdpmf("device", "recommenders", ana, ADDRESSES[other], "--pause")
            hdpmf("device", "recommenders", ana, ADDRESSES[name], "--resume")
            _begin(folder, name, epsilon)
            joins = _join(folder, folder, name, processes)
            until(lambda: _asks(ana))
            hdpmf("device", "consent", ana, 1, said)
            until(lambda name=name: _received(ana, ADDRESSES[name]))  # type: ignore[misc]
            joins.pop(0).send_signal(signal.SIGINT)
            for process in joins:
                if process.wait(WAIT):
                    raise SystemExit("a process failed")
    # One rating that no run has asked about, and films that no run knew.
    for name in ("ana", "ben"):
        hdpmf("device", "rate", folder / f"{name}.sqlite", "f07", 3, *key_of(name, folder))
    hdpmf("device", "rate", folder / "school.sqlite", "f07", 3, "--user", "pupil-0")
    hdpmf("recommender", "items", folder / SHOP, "--add", folder / "new.csv")
    hdpmf("recommender", "backup", folder / SHOP, folder / "shop.backup")
    facts(folder, NAMED, folder, ALSO)


def _killed(folder: Path) -> None:
    """The shop's second run: all are killed when the task is public and nobody has reported."""
    place = folder / "killed"
    for name in (SHOP, CLUB, *SERVERS, *(f"{name}.sqlite" for name in DEVICES)):
        copy(folder / name, place / name)
    hdpmf("device", "recommenders", place / "ana.sqlite", ADDRESSES[SHOP], "--resume")
    hdpmf("device", "recommenders", place / "ana.sqlite", ADDRESSES[CLUB], "--pause")
    with _processes(place, folder, *SERVERS, SHOP) as processes:
        _begin(place, SHOP, 0.2)
        processes[0].send_signal(signal.SIGSTOP)  # devices wait for it, and are killed meanwhile
        ana, ben, school = _join(place, folder, SHOP, processes)
        until(lambda: _asks(place / "ana.sqlite"))
        ana.kill()
        waiting = {"ben": ben, "school": school}
        while waiting:
            time.sleep(0.5)
            for name in list(waiting):
                if _agreed(place / f"{name}.sqlite", *key_of(name, folder)) == 3:
                    waiting.pop(name).kill()
        for process in processes:
            process.kill()
            process.wait()
    facts(place, NAMED, folder, ALSO)


def _begin(folder: Path, name: str, epsilon: float) -> None:
    """Begin a run; until its task is public."""
    hdpmf("recommender", "run", folder / name, *PERIOD, "--epsilon", epsilon)
    index = folder / name / "public" / "index.json"
    until(lambda: index.exists() and json.loads(index.read_bytes())["task"] is not None)


def _join(
    folder: Path, root: Path, name: str, processes: list[subprocess.Popen[bytes]]
) -> list[subprocess.Popen[bytes]]:
    """Every device answers this recommender, ana first."""
    log = root.parent.parent / "log.txt"
    made = [start(log, "-", __file__, "--answer", folder / "ana.sqlite")]
    for device in DEVICES[1:]:
        pins = (
            "--invitation",
            folder / name / "invitation.json",
            "--new-authority",
            "--every",
            1,
            "--once",
        )
        made.append(
            start(log, "device", "join", folder / f"{device}.sqlite", *pins, *key_of(device, root))
        )
    processes += made
    return made


def _asks(store: Path) -> bool:
    return any(
        question["answer"] is None for question in told("device", "consent", store)["questions"]
    )


def _received(store: Path, recommender: str) -> bool:
    entries = told("device", "ledger", store)["entries"]
    return any(
        (entry["action"], entry["recommender"]) == ("received", recommender) for entry in entries
    )


def _agreed(store: Path, *key: object) -> int:
    """How many runs a device has agreed to."""
    entries = told("device", "ledger", store, *key)["entries"]
    return sum(entry["action"] == "agreed" for entry in entries)


@contextmanager
def _processes(folder: Path, root: Path, *names: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    log = root.parent.parent / "log.txt"
    running = []
    try:
        for name in names:
            kind = "aggregator" if name in SERVERS else "recommender"
            running.append(start(log, kind, "serve", folder / name))
        for name in names:
            until(lambda name=name: _well(folder / name))  # type: ignore[misc]
        yield running
    finally:
        for child in reversed(running):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(30)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def _well(path: Path) -> bool:
    command = [sys.executable, "-m", "hdpmf", "health", str(path)]
    return subprocess.run(command, capture_output=True, timeout=WAIT).returncode == 0


if __name__ == "__main__":
    os.umask(0o077)
    if sys.argv[1] == "--answer":
        answer(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]).resolve())
