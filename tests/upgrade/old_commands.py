"""Running an older version's own commands, to make what it left on disks; nothing of hdpmf is
imported here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PASSPHRASE = "made up"  # of ben's store
DEVICES = ("ana", "ben", "school")  # plain, with a passphrase, several people
FILMS = 12
WAIT = 240.0

_EXPERIMENT = """
name = "small"
title = "A small one"
kind = "table"
datasets = ["mine"]
methods = ["user-mean"]

[data.mine]
file = "more.csv"
"""


def hdpmf(*words: object) -> str:
    """What a command prints; it has to end well."""
    command = [sys.executable, "-m", "hdpmf", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def told(*words: object) -> Any:
    """The same as JSON."""
    return json.loads(hdpmf(*words, *(() if "everything" in words else ("--json",))))


def start(log: Path, *words: object) -> subprocess.Popen[bytes]:
    """A command, or (from ``-`` on) other words for Python, that goes on."""
    module = words[1:] if words[0] == "-" else ("-m", "hdpmf", *words)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *map(str, module)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )


def until(ready: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + WAIT
    while not ready():
        if time.monotonic() > end:
            raise SystemExit("it took too long")
        time.sleep(0.2)


def key_of(device: str, root: Path) -> tuple[object, ...]:
    """How a command is told the passphrase."""
    return ("--passphrase-file", root / "passphrase") if device == "ben" else ()


def models(folder: Path, pupils: int) -> None:
    """What the library's own commands leave: models and results of experiments."""
    loans = "".join(
        f"pupil-{k},f{(k + n) % FILMS:02},{1 + (k + n) % 5}\n"
        for k in range(pupils)
        for n in range(3)
    )
    (folder / "loans.csv").write_text("user,item,rating\n" + loans)
    for method in ("hdp-sum", "hdpmf"):
        extra = ("--epochs", 3, "--factors", 2) if method == "hdpmf" else ()
        hdpmf(
            "train",
            method,
            "--train",
            folder / "loans.csv",
            *extra,
            "--out",
            folder / "models" / method,
        )
    many = [f"u{k},f{n % FILMS:02},{1 + (k * n) % 5}\n" for k in range(30) for n in range(k, k + 8)]
    (folder / "more.csv").write_text("user,item,rating\n" + "".join(many))
    (folder / "small.toml").write_text(_EXPERIMENT)
    hdpmf("experiment", "run", folder / "small.toml", "--out", folder / "results")


def facts(folder: Path, pupils: Sequence[str], keys: Path, also: Sequence[str] = ()) -> None:
    """What every device says of itself, to compare with what a newer version says (``also``:
    further commands).
    """
    said = {}
    for device in DEVICES:
        key, store = key_of(device, keys), folder / f"{device}.sqlite"
        people = pupils if device == "school" else ("me",)
        said[device] = {
            "status": told("device", "status", store, *key),
            "ledger": told("device", "ledger", store, *key),
            "ratings": {
                person: told("device", "rate", store, "--list", *_of(person), *key)
                for person in people
            },
        } | {command: told("device", command, store, *key) for command in also}
    (folder / "before.json").write_text(json.dumps(said, indent=1))


def _of(person: str) -> tuple[str, ...]:
    return () if person == "me" else ("--user", person)


def copy(source: Path, target: Path) -> None:
    """A folder, or a store with what is beside it."""
    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        for path in source.parent.glob(source.name + "*"):
            shutil.copy(path, target.parent / path.name)


def pack(folder: Path, target: Path) -> None:
    """All of a folder as one small file."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(folder, ".", filter=_plain)
    print(f"{target}: {target.stat().st_size} bytes")


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without names of this machine's people, and without logs."""
    if entry.name.endswith((".log", ".lock", ".serving", "-shm")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
