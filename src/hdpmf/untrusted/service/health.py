"""Alerts for the operator, and a look at how the service and its runs are."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hdpmf.common.base.files import storage_errors
from hdpmf.common.protocol.task import read_task, task_id
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.settings import METHOD, Part, Trouble

LITTLE, FEW_PERCENT, PLENTY = 64 << 20, 0.05, 10**10
"""A disk is nearly full below LITTLE bytes, or FEW_PERCENT of it unless PLENTY are left."""

DEVICES, RUN, DISK = NAMES = "devices", "run", "disk"


@dataclass(frozen=True)
class RunHealth:
    """A run, as far as alerts are about it.

    Attributes:
        ending: ``done``, ``given up``, ``under way``, or ``stopped`` where it has not ended and no
            process serves.
        minimum: Reports that it needed.
        enrolled_now: People who are enrolled today.
        trouble: Why it cannot go on, while that is so.
        cause: Why it was given up, where nobody asked for it.
        ended: Unix time; 0 if it has not.
        users: Reports in it; 0 if it has not ended.
    """

    run: str
    ending: str
    minimum: int
    enrolled_now: int
    trouble: Trouble | None = None
    cause: str = ""
    ended: float = 0.0
    users: int = 0


@dataclass(frozen=True)
class Alert:
    """An alert: one of ``NAMES``, the problem, and the remedy."""

    name: str
    words: str
    todo: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def alerts(
    *,
    runs: Sequence[RunHealth],
    free: int,
    total: int,
    not_begun: str = "",
) -> list[Alert]:
    """Return all current alerts.

    Args:
        runs: The last ones, the newest last.
        free: Free bytes on the disk of its folder.
        total: Bytes of that disk.
        not_begun: Why the serving process could not begin a run.
    """
    found: list[Alert | None] = []
    if runs:
        found += [_devices(runs[-1]), _ended_badly(runs[-1])]
    if not_begun:
        found.append(Alert(RUN, not_begun, "when its reason is gone, ask for the run again"))
    found.append(_disk(free, total))
    return [alert for alert in found if alert is not None]


def _devices(last: RunHealth) -> Alert | None:
    if last.enrolled_now >= last.minimum:
        return None
    return Alert(
        DEVICES,
        f"{last.enrolled_now} people are enrolled, and a run like the last one needs "
        f"{last.minimum} reports",
        "invite more people, or begin the next run with a lower --minimum",
    )


_WAIT = (
    "wait, because it is tried again by itself; if that does not help, give it up: "
    "hdpmf recommender run FOLDER --give-up"
)


def _ended_badly(last: RunHealth) -> Alert | None:
    name = last.run[:12]
    trouble = last.trouble
    if last.ending == "stopped":
        why = "" if trouble is None else f". It could not go on: {trouble.cause}"
        remedy = "" if trouble is None or not trouble.remedy else f"{trouble.remedy}. Then "
        return Alert(
            RUN,
            f"run {name} has not ended, and nothing serves it{why}",
            f"{remedy}start serve again: it continues where it was; or give it up (run --give-up)",
        )
    if last.ending == "under way" and trouble is not None:
        return Alert(RUN, f"run {name} cannot go on: {trouble.cause}", trouble.remedy or _WAIT)
    if last.ending == "given up":
        why = f": {last.cause}" if last.cause else ""
        return Alert(
            RUN,
            f"the last run, {name}, was given up{why}",
            "begin a new one when its reason is gone",
        )
    return None


def _disk(free: int, total: int) -> Alert | None:
    if free >= LITTLE and (free >= PLENTY or free >= FEW_PERCENT * total):
        return None
    return Alert(
        DISK,
        f"the disk is nearly full: {free / 1e9:.1f} of {total / 1e9:.1f} GB are free",
        "make room: a run stops where it cannot write",
    )


@dataclass(frozen=True)
class FolderHealth:
    """The state of a folder at one time.

    Attributes:
        free: Free bytes on the disk.
        alerts: Problems to solve.
        last_run: Unix time at which the last run that was not given up ended; 0 if there is none.
        last_users: Reports in that run.
        under_way: A run has begun and has not ended.
    """

    free: int
    alerts: tuple[Alert, ...]
    devices: int = 0
    last_run: float = 0.0
    last_users: int = 0
    under_way: bool = False


def inspect_folder(folder: ServiceFolder) -> FolderHealth:
    """Look at a folder; nothing in it is changed."""
    with storage_errors(f"cannot look at the disk of {folder.path}"):
        disk = shutil.disk_usage(folder.path)
    runs = []
    for run in reversed(folder.runs()):  # the last one, and back to one that has ended well
        runs.append(_seen(folder, run))
        if runs[-1].ending == "done":
            break
    state = folder.state() if folder.is_serving() else None
    found = alerts(
        runs=runs[::-1],
        free=disk.free,
        total=disk.total,
        not_begun=str((state or {}).get("not_begun", "")),
    )
    last = next((run for run in runs if run.ending == "done"), None)
    return FolderHealth(
        free=disk.free,
        alerts=tuple(found),
        devices=folder.people,
        last_run=0.0 if last is None else last.ended,
        last_users=0 if last is None else last.users,
        under_way=bool(runs) and runs[0].ending in ("under way", "stopped"),
    )


def _seen(folder: ServiceFolder, run: bytes) -> RunHealth:
    record = folder.record(run)
    summary = folder.summary(run)
    if summary is None:
        ending = "under way" if folder.is_serving() else "stopped"
    else:
        ending = "given up" if summary.get("given_up") else "done"
    return RunHealth(
        run=run.hex(),
        ending=ending,
        minimum=record.settings.minimum,
        enrolled_now=folder.people,
        trouble=folder.run_files(run).trouble() if summary is None else None,
        cause=str((summary or {}).get("cause", "")),
        ended=0.0 if summary is None else folder.summary_path(run).stat().st_mtime,
        users=int((summary or {}).get("users", 0) or 0),
    )


def run_facts(service: ServiceFolder, run: bytes) -> dict[str, Any]:
    """A run as far as it is, for people and JSON."""
    record = service.record(run)
    part = service.run_files(run).load().current
    summary = service.summary(run)
    if summary is None:
        stage = "not begun" if not part.document else _stage(part)
    else:
        stage = "given up" if summary.get("given_up") else "done"
    facts: dict[str, Any] = {
        "run": run.hex(),
        "method": METHOD,
        "catalogue_version": record.catalogue,
        "stage": stage,
        "enrolled": record.people,
        "reports": part.reports,
        "task": None,
    }
    if part.document:
        task = read_task(part.document)
        facts["task"] = {
            "id": task_id(part.document).hex(),
            "begin": task.begin,
            "end": task.end,
            "minimum": task.minimum,
            "servers": task.servers.names,
        }
    return facts


def _stage(part: Part) -> str:
    task, now = read_task(part.document), time.time()
    if part.collection:
        return "collected"
    if not part.placed:
        return "not at both servers yet"
    if now >= task.end:
        return "its sum is asked for"
    return "takes reports" if now >= task.begin else "not begun"
