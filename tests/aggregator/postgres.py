"""A PostgreSQL of our own for tests: made, run and removed with them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
    port = free_port()
    with running("hdpmf", f"-c listen_addresses=127.0.0.1 -c port={port}"):
        yield f"postgresql+psycopg://hdpmf@127.0.0.1:{port}/"


@contextmanager
def running(
    superuser: str,
    settings: str,
    enter: Callable[[Sequence[str]], Sequence[str]] = lambda command: command,
    callers: str = "",
) -> Iterator[Callable[..., None]]:
    """A PostgreSQL; yields what runs one of its programs, as its user.

    Args:
        superuser: Its name.
        settings: Options of ``postgres``.
        enter: Makes a command that runs elsewhere of a command.
        callers: Addresses that may connect, besides those of this host.
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
    data = folder / "data"

    def run(program: str, *given: object) -> None:
        done = subprocess.run(
            enter([*start, str(place / program), *map(str, given)]),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PGHOST": str(folder), "PGUSER": superuser},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run("initdb", "-D", data, "-U", superuser, "--auth=trust", "--encoding=UTF8", "--no-sync")
        if callers:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {callers} trust\n")
        options = f"{settings} -c unix_socket_directories={folder}"
        run("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield run
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_database(url: str, name: str) -> str:
    """An empty database; its URL."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "") + "template1", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url + name
