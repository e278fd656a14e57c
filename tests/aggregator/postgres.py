"""A PostgreSQL of our own for tests: made, run and removed with them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hdpmf.lab.simulate.deploy import free_port


def programs() -> Path | None:
    """The folder with PostgreSQL's programs, which are seldom on the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4)
    )
    return versions[-1].parent if versions else None


def unavailable(reason: str) -> None:
    """Without PostgreSQL a test is skipped, but on CI it fails instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def cluster() -> Iterator[str]:
    """A PostgreSQL on a port of its own; yields its URL up to the name of a database: ``url +
    "template1"`` exists.
    """
    place = programs()
    if place is None:
        unavailable("needs PostgreSQL: apt-get install postgresql, or run .ci/run")
        return
    folder = Path(
        tempfile.mkdtemp(prefix="hdpmf-postgres-", dir="/tmp")
    )  # the server's user must reach it
    start: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            unavailable("PostgreSQL does not run as root, and there is no user postgres")
            return
        os.chown(folder, user.pw_uid, user.pw_gid)
        start = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data, port = folder / "data", free_port()

    def run(*command: object) -> None:
        done = subprocess.run(
            [*start, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run(
            place / "initdb",
            "-D",
            data,
            "-U",
            "hdpmf",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        )
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        )
        run(place / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://hdpmf@127.0.0.1:{port}/"
        finally:
            run(place / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_database(url: str, name: str) -> str:
    """An empty database; its URL."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "") + "template1", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url + name
