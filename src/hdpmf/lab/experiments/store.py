"""Results in one append-only SQLite file.

``results.sqlite`` in an output folder has two tables; triggers refuse any change to a row that is
in:

``runs``
    One row per finished run: ``run_id`` (see `runs.Run.id`), ``run`` (the description, JSON),
    ``status``, ``metrics`` (JSON), ``claim`` (what the method's epsilon stands on, JSON),
    ``message`` (why it failed), ``version`` (of hdpmf), ``started``, ``finished`` (UTC, ISO 8601),
    ``host`` (JSON; no names, no paths). ``failed`` ones are tried again next time. One that is
    ``done`` is there a second time only where a later version measured more; the last row counts.
``events``
    What happened around them: ``kind``, ``at``, ``data`` (JSON). Kinds: ``start`` of a command (its
    experiments, environment), ``end`` (how, seconds, runs), ``dataset`` (counts of a data set).

Each row is a transaction of its own that has reached the disk before the next begins. Killing the
command at any moment loses the runs in flight and nothing else.

Metrics: ``mse``, ``mae``, ``n`` as the paper measures (test ratings whose user and item were in
training; the model's own factors even for an item that sampling left without ratings); ``mse_all``,
``mae_all``, ``n_all`` over every test rating with the library's fallbacks; ``n_cold`` (left out of
the first three); ``fit_seconds``. Runs on a test set also have, where an experiment shows lists,
``n_listed``, the users that lists of ten were made for, and, where there are any, ``ndcg_at_10``
and all else that `hdpmf.models.ranking_metrics` measures, with intervals over users
(``ndcg_margin_at_10``). There are none where a method cannot rank, and where it would take more
than 200 million scores. Results without lists, or without these intervals (early versions), are
measured again where lists are shown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from math import inf, nan
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from hdpmf.common.base.sqlite import FileKind, count_tables, keep_on_disk
from hdpmf.errors import ConfigError, StorageError
from hdpmf.lab.experiments.runs import Run
from hdpmf.lab.experiments.spec import Experiment

FILE_NAME = "results.sqlite"

LISTED = "ndcg_margin_at_10"
"""A metric of every run whose lists were measured."""

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
CREATE TABLE runs (
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
CREATE INDEX runs_by_id ON runs (run_id);
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL, data TEXT NOT NULL);
CREATE TRIGGER runs_stay BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER runs_kept BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER events_kept BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
PRAGMA application_id = {_KIND.application};
PRAGMA user_version = {_KIND.schema};
COMMIT;
"""  # noqa: E501

# In version 1 a run could be finished only once, so that nothing could be measured later.
_FROM_1 = """
BEGIN IMMEDIATE;
DROP INDEX IF EXISTS finished_once;
CREATE INDEX IF NOT EXISTS runs_by_id ON runs (run_id);
PRAGMA user_version = 2;
COMMIT;
"""


class StoredClaim(msgspec.Struct, frozen=True):
    """What the method's epsilon is worth (see `hdpmf.common.privacy.claims`).

    ``honest`` is the accountant's sentence at the time of the run; early versions did not write it
    down. Reports do not read it: they ask the accountant about the run's parameters, so that a
    better one corrects old results.
    """

    epsilon: float | None
    status: str
    view: str
    reason: str
    honest: str = ""


class Result(msgspec.Struct, frozen=True):
    """A finished run.

    Attributes:
        run: What was run; ``run.id`` is its identity.
        status: ``done``, ``diverged`` (training ran away: infinite error) or ``failed``.
        metrics: See the module's docstring; empty unless done.
        claim: What the method's epsilon is worth.
        message: Why it did not end well.
        started: UTC, ISO 8601.
        finished: UTC, ISO 8601.
        host: Facts about the machine.
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

    def metric(self, name: str) -> float:
        """A metric: infinite for a run that did not end well, NaN where it was not measured."""
        return float(self.metrics.get(name, nan)) if self.status == "done" else inf

    def suffices(self, *, lists: bool) -> bool:
        """Whether the run need not be done again; ``lists``: not even to see how good its lists
        are.
        """
        return self.status == "diverged" or (
            self.status == "done" and (not lists or self.has_lists)
        )

    @property
    def has_lists(self) -> bool:
        """Whether it says how good lists are, or that there are none."""
        return self.metrics.get("n_listed") == 0 or LISTED in self.metrics


class StoreEvent(msgspec.Struct, frozen=True):
    """Something that happened around the runs."""

    kind: str
    at: str
    data: dict[str, Any]


_COLUMNS = ", ".join(Result.__struct_fields__)


def now() -> str:
    """The time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store(AbstractContextManager["Store"]):
    """The results of a folder; use it as a context manager.

    Args:
        folder: Where ``results.sqlite`` is.
        create: Make the folder and the file where they are absent.

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
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"cannot make the folder {self.folder}: {error.strerror}"
                ) from error
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=60)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def add(self, result: Result) -> None:
        """Write a result down for good. A finished one stays as it is, unless this one has lists
        and that has not.
        """
        values = (getattr(result, name) for name in Result.__struct_fields__)
        row = (
            result.run.id,
            *(value if isinstance(value, str) else _text(value) for value in values),
        )
        with _KIND.errors(self.path):
            # One statement, so that two commands in one folder cannot both find nothing there.
            self._connection.execute(
                f"INSERT INTO runs (run_id, {_COLUMNS})"  # noqa: S608  # names of ours
                " SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM runs "
                "WHERE run_id = ?"
                " AND status <> 'failed' AND (json_extract(metrics, '$.n_listed') IS 0"
                f" OR json_type(metrics, '$.{LISTED}') IS NOT NULL OR NOT ?))",
                (*row, result.run.id, result.has_lists),
            )

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Write an event down for good."""
        with _KIND.errors(self.path):
            self._connection.execute(
                "INSERT INTO events (kind, at, data) VALUES (?, ?, ?)", (kind, now(), _text(data))
            )

    def results(self) -> dict[str, Result]:
        """The last result of every run, by its id; a failed one only where no attempt ended
        better.
        """
        with _KIND.errors(self.path):
            rows = self._connection.execute(
                f"SELECT run_id, {_COLUMNS} FROM runs ORDER BY status <> 'failed', number"  # noqa: S608  # names of ours
            ).fetchall()
        return {row[0]: self._result(row[1:]) for row in rows}

    def events(self, kind: str) -> list[StoreEvent]:
        """The events of a kind, oldest first."""
        with _KIND.errors(self.path):
            rows = self._connection.execute(
                "SELECT kind, at, data FROM events WHERE kind = ? ORDER BY number", (kind,)
            ).fetchall()
        return [StoreEvent(kind, at, msgspec.json.decode(data)) for kind, at, data in rows]

    def experiments(self) -> dict[str, Experiment]:
        """The experiments that were started here, by name, as they were last asked for."""
        asked = [written for event in self.events("start") for written in event.data["experiments"]]
        return {
            experiment.name: experiment for experiment in msgspec.convert(asked, list[Experiment])
        }

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Counts and such of the data sets that were used here, by name (see
        `facts.dataset_facts`).
        """
        return {event.data["name"]: event.data for event in self.events("dataset")}

    def _prepare(self) -> None:
        connection = self._connection
        # In this order: another process may be making the tables, and what has tables has its id by
        # then.
        tables = count_tables(connection)
        ours = _KIND.is_ours(connection)
        if tables and not ours:
            raise ConfigError(
                f"{self.path} is an SQLite file of something else; choose another folder with --out"
            )
        schema = _KIND.check(connection, self.path) if ours else 0
        keep_on_disk(connection)
        if not tables:
            self._create()
        elif schema < _KIND.schema:
            connection.executescript(_FROM_1)

    def _create(self) -> None:
        try:
            self._connection.executescript(_TABLES)
        except sqlite3.OperationalError:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            # Another process may have made the tables between our look and our lock.
            if not _KIND.is_ours(self._connection):
                raise

    def _result(self, row: Iterable[str]) -> Result:
        named = dict(zip(Result.__struct_fields__, row, strict=True))
        try:
            documents = {
                name: msgspec.json.decode(named[name])
                for name in ("run", "metrics", "claim", "host")
            }
            return msgspec.convert(named | documents, Result)
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"{self.path} holds a row that this version cannot read ({error})"
            ) from error


def set_aside(folder: str | PathLike[str]) -> Path | None:
    """Give the results of a folder another name, so that the next command begins anew; None
    where there are none.
    """
    path = Path(folder) / FILE_NAME
    if not path.exists():
        return None
    with _KIND.errors(path), sqlite3.connect(path) as connection:
        connection.execute(
            "PRAGMA wal_checkpoint(TRUNCATE)"
        )  # what is beside the file goes into it
    connection.close()
    number = 1
    while (kept := path.with_name(f"results.{number}.sqlite")).exists():
        number += 1
    path.rename(kept)
    return kept


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
