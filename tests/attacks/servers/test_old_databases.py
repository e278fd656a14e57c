"""Somebody brings back an old database of a server: nothing is released twice, whoever lies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareReq,
    BatchSelector,
    Interval,
    report_checksum,
)
from hdpmf.errors import PrivacyError, ProtocolError, TransportError
from hdpmf.untrusted.aggregator import release_log
from hdpmf.untrusted.aggregator.datastore import reports
from hdpmf.untrusted.aggregator.http import problem_response
from hdpmf.untrusted.aggregator.release_log import LogEntry, SignedEntry
from hdpmf.untrusted.aggregator.released_batches import LogMessage, OldDatabaseError
from tests.unit.aggregator.server_pair import BEGIN, HOUR, WHOLE, Pair, plain_sum

ROLES = ("leader", "helper")


def stop(pair: Pair) -> None:
    for database in pair.databases:
        database.close()


def copy(pair: Pair, to: Path, *roles: str, folders: bool = False) -> None:
    """Copy databases of a pair that is stopped, and what is beside them."""
    assert pair.folder is not None
    stop(pair)
    to.mkdir()
    for role in roles or ROLES:
        shutil.copy(pair.folder / f"{role}.sqlite", to)
        if folders:
            shutil.copytree(pair.folder / role, to / role)


def bring_back(pair: Pair, copies: Path) -> None:
    """Put copies in the place of what is there, and start both servers."""
    assert pair.folder is not None
    stop(pair)
    for file in pair.folder.glob("*.sqlite-*"):
        file.unlink()
    shutil.copytree(copies, pair.folder, dirs_exist_ok=True)
    pair.reopen()


def with_reports(pair: Pair, **task: Any) -> bytes:
    """A task with two reports, counted."""
    pair.clock.now = BEGIN + 10
    made = pair.add(pair.a_task(**task))
    pair.upload(made, [0, 1])
    pair.aggregate_all()
    return made


def ask(pair: Pair, role: str, task: bytes, interval: Interval = WHOLE) -> None:
    """Ask a server for its share of a batch."""
    if role == "leader":
        pair.ask(task, interval)
        return
    number = pair.helper.task(task).number
    with pair.databases[1].read() as connection:
        ids = connection.execute(sa.select(reports.c.id).where(reports.c.task == number))
        checksum = report_checksum(list(ids.scalars()))
    selector = BatchSelector(batch_interval=interval)
    pair.helper.aggregate_share(task, AggregateShareReq(selector, b"", 2, checksum).encode())


def server(pair: Pair, role: str) -> Any:
    return pair.leader if role == "leader" else pair.helper


@pytest.mark.parametrize("rotating", [True, False], ids=["signed", "cards of 1.0.0"])
@pytest.mark.parametrize("role", ROLES)
def test_an_old_database_keeps_closed_what_was_released_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, rotating: bool
) -> None:
    monkeypatch.setattr(release_log, "AT_ONCE", 1)  # several messages for three entries
    (tmp_path / "servers").mkdir()
    pair = Pair(tmp_path / "servers", rotating=rotating)
    tasks = [with_reports(pair, minimum=minimum) for minimum in (2, 3, 4, 5)]
    copy(pair, tmp_path / "old", role)
    pair.reopen()
    pair.upload(tasks[1], [2])
    pair.aggregate_all()
    first = pair.collect(tasks[0])
    pair.collect(tasks[1])
    third = with_reports(pair, minimum=6)  # which the copy has never heard of
    pair.upload(third, [2, 3, 4, 5])
    pair.aggregate_all()
    pair.collect(third)
    copy(pair, tmp_path / "newest", role)
    drawn = [noise.draws for noise in pair.noises]
    bring_back(pair, tmp_path / "old")
    assert server(pair, role).releases() == 0
    for interval in (WHOLE, Interval(BEGIN, HOUR)):
        with pytest.raises(PrivacyError, match=r"was closed before.*newest copy"):
            ask(pair, role, tasks[0], interval)
    assert [noise.draws for noise in pair.noises] == drawn
    assert (server(pair, role).releases(), server(pair, role).forgotten_releases()) == (3, 3)
    pair.clock.now = BEGIN + 10
    pair.upload(tasks[2], [2, 3])
    pair.aggregate_all()
    assert pair.numbers(tasks[2], pair.collect(tasks[2])) == plain_sum([0, 1, 2, 3])
    assert server(pair, role).releases() == 4
    bring_back(pair, tmp_path / "newest")
    assert pair.collect(tasks[0]) == first
    server(pair, role).confirm_releases()
    # What the old copy has released meanwhile.
    assert (server(pair, role).releases(), server(pair, role).forgotten_releases()) == (4, 1)


@pytest.mark.parametrize("role", ROLES)
def test_two_old_databases_are_noticed_by_the_folders(tmp_path: Path, role: str) -> None:
    (tmp_path / "servers").mkdir()
    pair = Pair(tmp_path / "servers", rotating=True)
    task = with_reports(pair)
    copy(pair, tmp_path / "old")
    pair.reopen()
    pair.collect(task)
    drawn = [noise.draws for noise in pair.noises]
    bring_back(pair, tmp_path / "old")
    with pytest.raises(OldDatabaseError, match=r"an old copy.*lacks 1 entries.*newest copy") as old:
        ask(pair, role, task)
    assert server(pair, role).forgotten_releases() == 1
    assert [noise.draws for noise in pair.noises] == drawn
    answer = problem_response(old.value, 7, task)
    details = json.loads(bytes(answer.body))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert "is an old copy" in details["detail"]
    assert str(tmp_path) not in details["detail"]


@pytest.mark.parametrize("before", [1, 2])
def test_a_log_that_was_continued_from_an_old_copy_is_noticed(tmp_path: Path, before: int) -> None:
    """Everything of both was brought back, a batch closed; then the helper gets its newest.

    ``before`` releases are not in the copies. The second of them does not continue the new log.
    """
    (tmp_path / "servers").mkdir()
    pair = Pair(tmp_path / "servers", rotating=True)
    tasks = [with_reports(pair, minimum=minimum) for minimum in (2, 3, 4, 5)]
    pair.upload(tasks[1], [2])
    pair.upload(tasks[3], [2, 3, 4])
    pair.aggregate_all()
    copy(pair, tmp_path / "old", folders=True)
    pair.reopen()
    for task in (tasks[0], tasks[3])[:before]:
        pair.collect(task)
    copy(pair, tmp_path / "newest", "helper")
    shutil.rmtree(tmp_path / "servers")
    bring_back(pair, tmp_path / "old")
    pair.collect(tasks[1])
    bring_back(pair, tmp_path / "newest")
    with pytest.raises(
        OldDatabaseError, match=["continues another one", "lacks 1 entries"][before - 1]
    ):
        pair.leader.confirm_releases()
    assert pair.leader.releases() == 1
    with pytest.raises(OldDatabaseError):
        ask(pair, "leader", tasks[2])


class Liar:
    """The helper, which says about the logs what a test likes."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.lie: Callable[[LogMessage], LogMessage] = lambda message: message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._helper, name)

    def exchange_logs(self, body: bytes) -> bytes:
        answer = msgspec.msgpack.decode(self._helper.exchange_logs(body), type=LogMessage)
        return msgspec.msgpack.encode(self.lie(answer))


def liars(tmp_path: Path) -> tuple[Pair, Liar]:
    made: list[Liar] = []

    def between(helper: Any) -> Any:
        lie = made[-1].lie if made else None
        made.append(Liar(helper))
        if lie is not None:
            made[-1].lie = lie
        return made[-1]

    pair = Pair(tmp_path, rotating=True, between=between)
    return pair, made[-1]


def test_a_partner_that_hides_what_it_remembers_releases_nothing(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    pair, liar = liars(tmp_path / "servers")
    task = with_reports(pair)
    copy(pair, tmp_path / "old", "leader")
    pair.reopen()
    pair.collect(task)
    liar.lie = lambda message: msgspec.structs.replace(message, memory=None, returned=())
    pair.between = lambda helper: _follow(liar, helper)
    bring_back(pair, tmp_path / "old")
    with pytest.raises(OldDatabaseError, match="lacks 1 entries"):
        pair.ask(task)
    assert pair.noises[0].draws == 3


def _follow(liar: Liar, helper: Any) -> Any:
    liar._helper = helper
    return liar


@pytest.mark.parametrize("lie", ["unsigned", "its own", "of the helper's log"])
def test_a_partner_cannot_invent_a_release(tmp_path: Path, lie: str) -> None:
    """It would keep a batch closed that was never released. It can stop this server at most."""
    pair, liar = liars(tmp_path)
    task = with_reports(pair)
    entry = LogEntry(
        number=1, before=bytes(32), task=task, start=BEGIN, duration=4 * HOUR, share=bytes(32)
    )
    statement = msgspec.msgpack.encode(entry)
    log = pair.leader._batches.released
    signature = bytes(64)
    if lie == "its own":
        signature = pair.signing[1].sign(log._own._first + statement)
    elif lie == "of the helper's log":  # the leader did sign it, for something else
        signature = pair.signing[0].sign(log._partner._first + statement)
    forged = SignedEntry(statement=statement, signature=signature)
    liar.lie = lambda message: msgspec.structs.replace(message, memory=forged, returned=(forged,))
    with pytest.raises(ProtocolError, match="never signed"):
        pair.ask(task)
    assert pair.leader.releases() == 0
    assert pair.noises[0].draws == 0
    liar.lie = lambda message: message
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])


def test_nothing_leaves_that_the_partner_has_not_confirmed(tmp_path: Path) -> None:
    pair, liar = liars(tmp_path)
    task = with_reports(pair)
    held: list[bytes] = []

    def away(message: LogMessage) -> LogMessage:
        raise TransportError("away")

    def later(message: LogMessage) -> LogMessage:
        held.append(b"asked")
        if len(held) > 1:
            raise TransportError("away")
        return message

    liar.lie = away
    with pytest.raises(TransportError):
        pair.ask(task)
    assert pair.noises[0].draws == 0  # nothing was drawn either
    liar.lie = later
    with pytest.raises(TransportError):
        pair.ask(task)
    assert [noise.draws for noise in pair.noises] == [3, 0]  # drawn, and stayed
    liar.lie = lambda message: message
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    assert [noise.draws for noise in pair.noises] == [3, 3]


# The file of older versions


def to_old_version(pair: Pair) -> dict[str, bytes]:
    """As a version with a log file has left both servers; the files."""
    assert pair.folder is not None
    files = {}
    for role, database in zip(ROLES, pair.databases, strict=True):
        with database.write() as connection:
            rows = connection.execute(sa.text("SELECT * FROM released WHERE server = 0")).all()
            connection.execute(sa.text("DROP TABLE released"))
            connection.execute(sa.text("DROP TABLE keys"))
            connection.execute(sa.text("ALTER TABLE tasks ADD COLUMN devices BLOB"))
            connection.execute(sa.text("CREATE TABLE devices (task INTEGER)"))
            connection.execute(sa.text("UPDATE facts SET value = '3' WHERE name = 'schema'"))
        database.close()
        lines = [f"{row.task.hex()} {row.start} {row.duration} {row.share.hex()}\n" for row in rows]
        (pair.folder / role / "released-head").unlink(missing_ok=True)
        files[role] = "".join(lines).encode()
        (pair.folder / role / "closed-batches").write_bytes(files[role] + b"00ff 12")
    return files


def test_a_batch_of_an_older_version_that_died_before_its_line_gets_its_entry(
    tmp_path: Path,
) -> None:
    (tmp_path / "servers").mkdir()
    pair = Pair(tmp_path / "servers", rotating=True)
    task = with_reports(pair)
    first = pair.collect(task)
    to_old_version(pair)
    for role in ROLES:
        (tmp_path / "servers" / role / "closed-batches").write_bytes(b"")
    pair.restart()
    assert pair.collect(task) == first
    ask(pair, "helper", task)
    assert pair.helper.releases() == 1
