"""Makes what version 0.1.0 left on disks, by running its own commands.

::

    git archive 9950a1b | tar -x -C OLD
    PYTHONPATH=OLD/src python tests/upgrade/make_fixture.py tests/upgrade/fixtures/0.1.0.tar.xz

Everything is made up: 12 films, three devices, passphrase "made up". The keys in it are nobody's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
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
    until,
)

PUPILS = 6
NAMED = ("pupil-0", "pupil-5")
POLICY = """
methods = ["hdp-sum", "hdpmf-paid"]
min_participants = 3
min_devices = 3
min_neighbours = 2
"""


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "made" / "hdpmf"
        folder.mkdir(parents=True)
        print(f"making it in {folder}")
        models(folder, PUPILS)
        _federation(folder)
        pack(folder, target)


def _federation(folder: Path) -> None:
    (folder / "films.csv").write_text(
        "item,title\n" + "".join(f"f{k:02},Film {k:02}\n" for k in range(FILMS))
    )
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    (folder / "policy.toml").write_text(POLICY)
    shop = folder / "recommender"
    port = _free_port()
    hdpmf(
        "recommender",
        "init",
        shop,
        "--name",
        "shop",
        "--items",
        folder / "films.csv",
        "--port",
        port,
    )
    config = (shop / "config.toml").read_text().replace("gather = 30.0", "gather = 5.0")
    (shop / "config.toml").write_text(config)
    policy = ("--policy", folder / "policy.toml")
    hdpmf("device", "init", folder / "ana.sqlite", "--name", "ana", *policy)
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
    hdpmf("recommender", "enroll", shop, *(folder / f"{name}.sqlite.card.json" for name in DEVICES))

    with _running(
        folder, folder, "--method", "hdp-sum", "--epsilon", 0.4, "--minimum", PUPILS + 2
    ) as processes:
        for process in processes:
            if process.wait(WAIT):
                raise SystemExit("a process failed")
    # One rating that no run has asked about.
    for name in ("ana", "ben"):
        hdpmf("device", "rate", folder / f"{name}.sqlite", "f07", 3, *key_of(name, folder))
    facts(folder, NAMED, folder)
    for name in ("recommender", *(f"{name}.sqlite" for name in DEVICES)):
        copy(folder / name, folder / "killed" / name)
    paid = ("--method", "hdpmf-paid", "--epsilon", 0.2, "--rounds", 150, "--minimum", PUPILS + 2)
    with _running(folder / "killed", folder, *paid) as processes:
        until(
            lambda: (
                json.loads((folder / "killed/recommender/state.json").read_text())["number"] >= 3
            )
        )
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
    assert len(list((folder / "killed/recommender/runs").glob("*/summary.json"))) == 1
    facts(folder / "killed", NAMED, folder)


@contextmanager
def _running(folder: Path, keys: Path, *options: object) -> Iterator[list[subprocess.Popen[bytes]]]:
    shop, log = folder / "recommender", keys.parent.parent / "log.txt"
    address = f"localhost:{_port(shop)}"
    children = [start(log, "recommender", "serve", shop, *options)]
    try:
        for name in DEVICES:
            pins = ("--ca", shop / "flower/tls/authority.pem", "--roster", shop / "roster.json")
            store = folder / f"{name}.sqlite"
            children.append(
                start(log, "device", "join", store, address, "--once", *pins, *key_of(name, keys))
            )
        yield children
    finally:
        for child in reversed(children):
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                try:
                    child.wait(30)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _port(shop: Path) -> int:
    (line,) = [
        line
        for line in (shop / "config.toml").read_text().splitlines()
        if line.startswith("port =")
    ]
    return int(line.split("=")[1])


if __name__ == "__main__":
    os.umask(0o077)
    main(Path(sys.argv[1]).resolve())
