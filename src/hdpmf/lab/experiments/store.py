"""Results in one append-only SQLite file.

``results.sqlite`` in an output folder has two tables; triggers refuse any change to a row:

``runs``
    One row per finished run: ``run_id`` (see `runs.Run.id`), ``run`` (the description, JSON),
    ``status``, ``metrics`` (JSON), ``claim`` (the method's privacy claim, JSON), ``message`` (why
    it failed), ``version`` (of hdpmf), ``started``, ``finished`` (UTC, ISO 8601), ``host`` (JSON;
    no names, no paths). Of several rows of a run the first one counts, but what failed, or has no
    lists yet, is tried again.
``events``
    Events around the runs: ``kind``, ``at``, ``data`` (JSON). Kinds: ``start`` of a command (its
    experiments, environment), ``end`` (reason, seconds, runs), ``dataset`` (counts of a data set).

The folder ``users`` beside it has the errors of each user of a run that a table shows, in the order
of the data set's index, for tests between methods. They are about people: do not publish them.

Each row is a transaction of its own, on the disk before the next begins. Killing the command at
any moment loses the runs in flight and nothing else.

Metrics: ``mse``, ``mae``, ``n`` as the paper measures (test ratings whose user and item were in
training; the model's own factors even for an item that sampling left without ratings); ``mse_all``,
``mae_all``, ``n_all`` over every test rating with the library's fallbacks; ``n_cold`` (left out of
the first three); ``fit_seconds``. A method for lists alone has only ``n``, all test
ratings, and ``fit_seconds``: it predicts none. Runs on a test set also have, if an experiment shows
lists, ``n_listed``, the users that lists of ten were made for, and, if there are any,
``ndcg_at_10`` and all else that `hdpmf.models.ranking_metrics` measures, with intervals over users
(``ndcg_margin_at_10``). There are none if a method cannot rank, or if it would take more than 200
million scores.
"""

import sqlite3
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from io import BytesIO
from math import inf, nan
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import msgspec
import numpy as np

from hdpmf.common.base.files import (
    FileKind,
    atomic_write,
    count_tables,
    make_durable,
    storage_errors,
)
from hdpmf.errors import ConfigError, StorageError
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import Experiment

FILE_NAME = "results.sqlite"

METRICS = ("mse", "mae", "mse_all", "mae_all")
"""Errors: metrics of every run that predicts ratings."""

_KIND = FileKind(
    name="a results file",
    application=0x6864706D,  # "hdpm"
    schema=2,
    safe="What was finished is safe; free space or permissions, then run the same command again",
    remedy="move it away and start again",
)

Status = Literal["done", "diverged", "failed"]

_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    run TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'diverged', 'failed')),
    metrics TEXT NOT NULL,
    claim TEXT NOT NULL,
    message TEXT NOT NULL,
    version TEXT NOT NULL,
    started TEXT NOT NULL,
    finished TEXT NOT NULL,
    host TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    at TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS runs_UPDATE BEFORE UPDATE ON runs
BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER IF NOT EXISTS runs_DELETE BEFORE DELETE ON runs
BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER IF NOT EXISTS events_UPDATE BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER IF NOT EXISTS events_DELETE BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
PRAGMA application_id = {_KIND.application};
PRAGMA user_version = {_KIND.schema};
COMMIT;
"""


class StoredClaim(msgspec.Struct, frozen=True):
    """A method's privacy claim (see `hdpmf.common.methods.method`)."""

    epsilon: float | None
    status: str
    view: str
    reason: str
    unit: str = "rating"  # earlier rows lack it; reports take it from the method

    @property
    def standing(self) -> str:
        """As ``PrivacyClaim.standing``."""
        return self.status if self.unit == "rating" else f"{self.status}, per {self.unit}"


class Result(msgspec.Struct, frozen=True):
    """A finished run.

    Attributes:
        status: ``done``, ``diverged`` (training ran away: infinite error) or ``failed``.
        metrics: See the module's docstring; empty unless done.
        message: Why it failed or diverged.
        started: UTC, ISO 8601; so is ``finished``.
        users: Measures of each user of the test, where a table shows the run; see `Store.users`.
    """

    run: Run
    status: Status
    metrics: dict[str, float | int]
    claim: StoredClaim | None
    message: str = ""
    version: str = ""
    started: str = ""
    finished: str = ""
    host: dict[str, str | int] = {}
    users: dict[str, np.ndarray] = {}

    def metric(self, name: str) -> float:
        """Return a metric: infinite for a run that is not done, NaN if it was not measured."""
        if self.status != "done":
            return inf
        return float(self.metrics.get(name, nan))

    def suffices(self, *, lists: bool) -> bool:
        """Return whether the run need not be done again; ``lists`` if its lists are needed."""
        return self.status == "diverged" or (
            self.status == "done" and (not lists or self.has_lists)
        )

    @property
    def has_lists(self) -> bool:
        """True if lists were measured, or cannot be."""
        return self.metrics.get("n_listed") == 0 or "ndcg_margin_at_10" in self.metrics


class StoreEvent(msgspec.Struct, frozen=True):
    """An event around the runs."""

    kind: str
    at: str
    data: dict[str, Any]


_FIELDS = tuple(name for name in Result.__struct_fields__ if name != "users")
_COLUMNS = ", ".join(_FIELDS)
_DOCUMENTS = ("run", "metrics", "claim", "host")


def now() -> str:
    """Return the current time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store(AbstractContextManager["Store"]):
    """The results of a folder; use it as a context manager.

    With ``create`` the folder and its ``results.sqlite`` are made if they are absent.

    Raises:
        ConfigError: There are no results here, or the file is something else or of a newer hdpmf.
        StorageError: The file is damaged, or the disk refused.
    """

    def __init__(self, folder: str | PathLike[str], *, create: bool = False) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE_NAME
        if not create and not self.path.exists():
            raise ConfigError(
                f"there are no results in {self.folder}; 'experiment run' and 'paper run' put "
                "them where --out says"
            )
        with _KIND.errors(self.path):
            with storage_errors(f"cannot make the folder {self.folder}"):
                self.folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=60)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, result: Result) -> None:
        """Append a result."""
        if result.users:
            archive = BytesIO()
            np.savez(archive, allow_pickle=False, **result.users)
            self._users.mkdir(exist_ok=True)
            atomic_write(self._users / f"{result.run.id}.npz", archive.getvalue(), mode=0o600)
        values = {name: getattr(result, name) for name in _FIELDS}
        values |= {name: _text(values[name]) for name in _DOCUMENTS}
        with _KIND.errors(self.path):
            self._connection.execute(
                f"INSERT INTO runs (run_id, {_COLUMNS}) "  # names of ours  # noqa: S608
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (result.run.id, *values.values()),
            )

    def users(self, run_id: str) -> dict[str, np.ndarray]:
        """Return the measures of each user in a run; empty if they were not kept."""
        path = self._users / f"{run_id}.npz"
        if not path.exists():
            return {}
        try:
            with np.load(path, allow_pickle=False) as archive:
                return dict(archive)
        except (OSError, ValueError, BadZipFile) as error:
            raise StorageError(f"cannot read {path} ({error}); delete it") from error

    @property
    def _users(self) -> Path:
        return self.folder / "users"

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Append an event."""
        with _KIND.errors(self.path):
            self._connection.execute(
                "INSERT INTO events (kind, at, data) VALUES (?, ?, ?)", (kind, now(), _text(data))
            )

    def results(self) -> dict[str, Result]:
        """Return the result of every run that counts, by id."""
        with _KIND.errors(self.path):
            rows = self._connection.execute(
                f"SELECT run_id, {_COLUMNS} FROM runs ORDER BY number"  # noqa: S608
            ).fetchall()
        found: dict[str, Result] = {}
        for run, *row in rows:
            result = self._result(row)
            earlier = found.get(run)
            if (
                earlier is None
                or earlier.status == "failed"
                or (result.has_lists and not earlier.has_lists)
            ):
                found[run] = result
        return found

    def events(self, kind: str) -> list[StoreEvent]:
        """Return the events of a kind, oldest first."""
        with _KIND.errors(self.path):
            rows = self._connection.execute(
                "SELECT kind, at, data FROM events WHERE kind = ? ORDER BY number", (kind,)
            ).fetchall()
        return [StoreEvent(kind, at, msgspec.json.decode(data)) for kind, at, data in rows]

    def experiments(self) -> dict[str, Experiment]:
        """Return the experiments that were started here, by name, as last specified."""
        asked = [written for event in self.events("start") for written in event.data["experiments"]]
        return {
            experiment.name: experiment for experiment in msgspec.convert(asked, list[Experiment])
        }

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Return counts of the data sets that were used here, by name."""
        return {event.data["name"]: event.data for event in self.events("dataset")}

    def _prepare(self) -> None:
        connection = self._connection
        if _KIND.is_ours(connection):
            _KIND.check(connection, self.path)
        elif count_tables(connection) and not _KIND.is_ours(connection):
            # Asked again: another process may have made the tables in between.
            raise ConfigError(
                f"{self.path} is an SQLite file of something else; choose another folder with --out"
            )
        make_durable(connection)
        if not count_tables(connection):
            connection.executescript(_TABLES)

    def _result(self, row: list[str]) -> Result:
        named: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
        try:
            documents = {name: msgspec.json.decode(named[name]) for name in _DOCUMENTS}
            return msgspec.convert(named | documents, Result)
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"{self.path} holds a row that this version cannot read ({error})"
            ) from error


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
