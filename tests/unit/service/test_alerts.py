"""Alerts: each one is there when it should be, and not a day or a device earlier."""

from __future__ import annotations

import re
import urllib.request
from collections import namedtuple
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.errors import StorageError
from hdpmf.untrusted.service import health
from hdpmf.untrusted.service.folder import Config, RunRecord, ServiceFolder
from hdpmf.untrusted.service.health import (
    NAMES,
    RunHealth,
    alerts,
    inspect_folder,
)
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.participants import Admission
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Checkpoint, RunSettings, Trouble
from hdpmf.untrusted.service.telemetry import UNREADABLE, endpoint
from tests.unit.service.tables import table

NOW = 1_800_000_000.0
ROOMY = namedtuple("Usage", "total used free")(10**12, 0, 10**12)


AWAY = Trouble(cause="North cannot be reached", remedy="see that it runs", at=NOW)


def seen(**change: Any) -> RunHealth:
    usual = {
        "run": "ab" * 16,
        "ending": "done",
        "minimum": 50,
        "enrolled_now": 50,
    }
    return RunHealth(**(usual | change))


def names(**change: Any) -> list[str]:
    usual: dict[str, Any] = {
        "runs": [],
        "free": 10**12,
        "total": 10**12,
    }
    return [alert.name for alert in alerts(**(usual | change))]


def test_without_trouble_there_are_none() -> None:
    assert names() == []
    assert names(runs=[seen(), seen()]) == []


@pytest.mark.parametrize(
    ("before", "last", "expected"),
    [
        ({}, {"enrolled_now": 49}, ["devices"]),
        ({}, {"ending": "given up"}, ["run"]),
        ({}, {"ending": "stopped"}, ["run"]),
        ({}, {"ending": "under way"}, []),
        ({}, {"ending": "under way", "trouble": AWAY}, ["run"]),
        ({"ending": "given up"}, {}, []),  # the last one counts
    ],
)
def test_of_runs(before: dict[str, Any], last: dict[str, Any], expected: list[str]) -> None:
    assert names(runs=[seen(**before), seen(**last)]) == expected


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (9 * 10**8, 10**9, []),  # a small volume
        (6 * 10**7, 10**9, ["disk"]),
        (2 * 10**9, 10**10, []),
        (4 * 10**9, 10**11, ["disk"]),
        (2 * 10**10, 10**12, []),
    ],
)
def test_of_the_disk(free: int, total: int, expected: list[str]) -> None:
    assert names(free=free, total=total) == expected


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceFolder:
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: ROOMY)
    made = ServiceFolder.create(tmp_path / "r", Config(name="town"), table())
    with made.participants() as participants:
        participants.add([Admission(bytes([each]) * 32) for each in (1, 2)])
    return made


def begin(folder: ServiceFolder, number: int) -> bytes:
    run = bytes([number]) * 16
    record = RunRecord(settings=RunSettings(minimum=2), people=folder.people)
    folder.begin_run(run, record)
    return run


def test_a_folder_is_looked_at(folder: ServiceFolder) -> None:
    assert inspect_folder(folder).alerts == ()
    run = begin(folder, 1)
    with folder.serving():
        assert inspect_folder(folder).alerts == ()  # somebody is at it
    assert [alert.words for alert in inspect_folder(folder).alerts] == [
        f"run {run.hex()[:12]} has not ended, and nothing serves it"
    ]
    Service(folder).give_up(run)
    assert "was given up" in inspect_folder(folder).alerts[0].words
    folder.finish(begin(folder, 2), None, msgspec.json.encode({}))
    assert inspect_folder(folder).alerts == ()
    (folder.path / "participants.sqlite").unlink()
    assert [alert.name for alert in inspect_folder(folder).alerts] == ["devices"]


def test_a_run_that_cannot_go_on_says_why_until_it_goes_on(folder: ServiceFolder) -> None:
    run = begin(folder, 1)
    files = folder.run_files(run)
    files.keep_trouble(AWAY)
    with folder.serving():
        (alert,) = inspect_folder(folder).alerts
        assert alert.words == f"run {run.hex()[:12]} cannot go on: North cannot be reached"
        assert alert.todo == "see that it runs"
    (alert,) = inspect_folder(folder).alerts
    assert alert.words.endswith("nothing serves it. It could not go on: North cannot be reached")
    assert alert.todo.startswith("see that it runs. Then start serve again")
    files.save(Checkpoint())
    assert files.trouble() is None
    with folder.serving():
        assert inspect_folder(folder).alerts == ()
    (folder.path / "runs" / run.hex() / "trouble.json").write_text("{")
    with pytest.raises(StorageError, match="delete it"):
        files.trouble()


def test_looking_leaves_the_folder_to_whoever_wants_to_serve_it(folder: ServiceFolder) -> None:
    begin(folder, 1)
    with folder.serving():
        pass
    inspect_folder(folder)
    with folder.serving():
        pass


def _scraped(port: int) -> dict[str, float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return {
        name: float(value) for name, value in re.findall(r"^(hdpmf_\S+) (\S+)$", text, re.MULTILINE)
    }


def test_prometheus_gets_alerts(folder: ServiceFolder) -> None:
    begin(folder, 1)
    with endpoint(Metrics(), 0, inspect_folder=lambda: inspect_folder(folder)) as port:
        values = _scraped(port)
    assert {name: values[f'hdpmf_alert{{name="{name}"}}'] for name in (*NAMES, UNREADABLE)} == {
        name: float(name == "run") for name in (*NAMES, UNREADABLE)
    }
    assert values["hdpmf_recommender_free_bytes"] == 1e12


def test_a_folder_that_cannot_be_read_does_not_hide_the_counts() -> None:
    def broken() -> Any:
        raise StorageError("gone")

    with endpoint(Metrics(), 0, inspect_folder=broken) as port:
        values = _scraped(port)
    assert values[f'hdpmf_alert{{name="{UNREADABLE}"}}'] == 1
    assert "hdpmf_recommender_runs_total" in values
