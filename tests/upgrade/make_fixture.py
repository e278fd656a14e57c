"""Makes what an older version left on disks, by running that version's own commands.

::

    git archive 9950a1b | tar -x -C OLD
    PYTHONPATH=OLD/src python tests/upgrade/make_fixture.py tests/upgrade/fixtures/0.1.0.tar.xz

It needs nothing of hdpmf but its commands, so that it runs with any version. Everything is made up: 12 films, three
devices, passphrase "made up". The keys in it are nobody's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PASSPHRASE = "made up"
FILMS = 12
PUPILS = 6
POLICY = """
methods = ["hdp-sum", "hdpmf-paid"]
min_participants = 3
min_devices = 3
min_neighbours = 2
"""
DEVICES = ("ana", "ben", "school")  # plain, with a passphrase, several people
WAIT = 240.0

EXPERIMENT = """
name = "small"
title = "A small one"
kind = "table"
datasets = ["mine"]
methods = ["user-mean"]

[data.mine]
file = "more.csv"
"""


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "made" / "hdpmf"
        folder.mkdir(parents=True)
        print(f"making it in {folder}")
        _models(folder)
        _federation(folder)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            archive.add(folder, ".", filter=_plain)
    print(f"{target}: {target.stat().st_size} bytes")


def _federation(folder: Path) -> None:
    (folder / "films.csv").write_text("item,title\n" + "".join(f"f{k:02},Film {k:02}\n" for k in range(FILMS)))
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    (folder / "policy.toml").write_text(POLICY)
    shop = folder / "recommender"
    port = _free_port()
    _hdpmf("recommender", "init", shop, "--name", "shop", "--items", folder / "films.csv", "--port", port)
    config = (shop / "config.toml").read_text().replace("gather = 30.0", "gather = 5.0")
    (shop / "config.toml").write_text(config)
    policy = ("--policy", folder / "policy.toml")
    _hdpmf("device", "init", folder / "ana.sqlite", "--name", "ana", *policy)
    _hdpmf("device", "init", folder / "ben.sqlite", "--name", "ben", *policy, "--encrypt", *_key(folder, "ben"))
    _hdpmf("device", "init", folder / "school.sqlite", "--name", "school", "--users", PUPILS, *policy)
    for film, stars, weight in (("f00", 5, 1), ("f01", 2, 0.5), ("f02", 4, 0.25)):
        for name in ("ana", "ben"):
            rated = (folder / f"{name}.sqlite", film, stars, "--weight", weight, *_key(folder, name))
            _hdpmf("device", "rate", *rated)
    _hdpmf("device", "rate", folder / "school.sqlite", "--from", folder / "loans.csv")
    _hdpmf("recommender", "enroll", shop, *(folder / f"{name}.sqlite.card.json" for name in DEVICES))

    with _running(folder, "--method", "hdp-sum", "--epsilon", 0.4, "--minimum", PUPILS + 2) as processes:
        for process in processes:
            if process.wait(WAIT):
                raise SystemExit("a process failed")
    # One rating that no run has asked about.
    for name in ("ana", "ben"):
        _hdpmf("device", "rate", folder / f"{name}.sqlite", "f07", 3, *_key(folder, name))
    _facts(folder, "before.json")
    for name in ("recommender", *(f"{name}.sqlite" for name in DEVICES)):
        _copy(folder / name, folder / "killed" / name)
    paid = ("--method", "hdpmf-paid", "--epsilon", 0.2, "--rounds", 150, "--minimum", PUPILS + 2)
    with _running(folder / "killed", *paid, keys=folder) as processes:
        _until(lambda: json.loads((folder / "killed/recommender/state.json").read_text())["number"] >= 3)
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
    assert len(list((folder / "killed/recommender/runs").glob("*/summary.json"))) == 1
    _facts(folder / "killed", "before.json", keys=folder)


def _models(folder: Path) -> None:
    loans = "".join(f"pupil-{k},f{(k + n) % FILMS:02},{1 + (k + n) % 5}\n" for k in range(PUPILS) for n in range(3))
    (folder / "loans.csv").write_text("user,item,rating\n" + loans)
    for method in ("hdp-sum", "hdpmf"):
        extra = ("--epochs", 3, "--factors", 2) if method == "hdpmf" else ()
        _hdpmf("train", method, "--train", folder / "loans.csv", *extra, "--out", folder / "models" / method)
    many = [f"u{k},f{n % FILMS:02},{1 + (k * n) % 5}\n" for k in range(30) for n in range(k, k + 8)]
    (folder / "more.csv").write_text("user,item,rating\n" + "".join(many))
    (folder / "small.toml").write_text(EXPERIMENT)
    _hdpmf("experiment", "run", folder / "small.toml", "--out", folder / "results")


def _facts(folder: Path, name: str, keys: Path | None = None) -> None:
    """What every device says of itself, to compare with what a newer version says."""
    said = {}
    for device in DEVICES:
        key = _key(keys or folder, device)
        store = folder / f"{device}.sqlite"
        people = ("pupil-0", "pupil-5") if device == "school" else ("me",)
        said[device] = {
            "status": json.loads(_hdpmf("device", "status", store, *key, "--json")),
            "ledger": json.loads(_hdpmf("device", "ledger", store, *key, "--json")),
            "ratings": {
                person: json.loads(
                    _hdpmf("device", "rate", store, "--list", *_of(person), *key, "--json")
                )
                for person in people
            },
        }  # fmt: skip
    (folder / name).write_text(json.dumps(said, indent=1))


def _of(person: str) -> tuple[str, ...]:
    return () if person == "me" else ("--user", person)


@contextmanager
def _running(folder: Path, *options: object, keys: Path | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
    shop = folder / "recommender"
    address = f"localhost:{_port(shop)}"
    children = [_start(folder, "recommender", "serve", shop, *options)]
    try:
        for name in DEVICES:
            pins = ("--ca", shop / "flower/tls/authority.pem", "--roster", shop / "roster.json")
            store = folder / f"{name}.sqlite"
            children.append(
                _start(folder, "device", "join", store, address, "--once", *pins, *_key(keys or folder, name))
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


def _key(folder: Path, name: str) -> tuple[object, ...]:
    return ("--passphrase-file", folder / "passphrase") if name == "ben" else ()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        for path in source.parent.glob(source.name + "*"):
            shutil.copy(path, target.parent / path.name)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without names of this machine's people, and without logs."""
    if entry.name.endswith((".log", ".lock", ".serving")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _start(folder: Path, *words: object) -> subprocess.Popen[bytes]:
    log = (folder.parent.parent / "log.txt").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "hdpmf", *map(str, words)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
    )


def _hdpmf(*words: object) -> str:
    command = [sys.executable, "-m", "hdpmf", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not ready():
        if time.monotonic() > end:
            raise SystemExit("it took too long")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _port(shop: Path) -> int:
    (line,) = [line for line in (shop / "config.toml").read_text().splitlines() if line.startswith("port =")]
    return int(line.split("=")[1])


if __name__ == "__main__":
    os.umask(0o077)
    main(Path(sys.argv[1]).resolve())
