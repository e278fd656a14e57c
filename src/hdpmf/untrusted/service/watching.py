"""Looks at a recommender's folder for what its operator should know: certificates, the disk,
alerts.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from hdpmf.errors import StorageError
from hdpmf.untrusted.service.alerts import Alert, CertificateEnd, RunSeen, alerts
from hdpmf.untrusted.service.folder import ServiceFolder


@dataclass(frozen=True)
class FolderLook:
    """What one look found.

    Attributes:
        certificates: When they end.
        free: Bytes that the disk still takes.
        alerts: What to do something about.
        now: When it was (Unix time).
    """

    certificates: tuple[CertificateEnd, ...]
    free: int
    alerts: tuple[Alert, ...]
    now: float


def look(folder: ServiceFolder, now: float | None = None) -> FolderLook:
    """Look at a folder; nothing in it is changed."""
    now = time.time() if now is None else now
    try:
        disk = shutil.disk_usage(folder.path)
    except OSError as error:
        raise StorageError(f"cannot look at the disk of {folder.path}: {error.strerror}") from error
    ends = certificate_ends(folder)
    runs, done = [], 0
    for run in reversed(folder.runs()):  # the last one, and back to the two that are compared
        if done == 2:
            break
        seen = _seen(folder, run)
        runs.append(seen)
        done += seen.ending == "done"
    found = alerts(runs=runs[::-1], certificates=ends, free=disk.free, total=disk.total, now=now)
    return FolderLook(ends, disk.free, tuple(found), now)


def certificate_ends(folder: ServiceFolder) -> tuple[CertificateEnd, ...]:
    """When the certificates end that are there."""
    from hdpmf.common.net.certificates import certificate_end

    tls = folder.tls_folder
    paths = {name: tls / f"{name}.pem" for name in ("authority", "successor", "server")}
    return tuple(
        CertificateEnd(name, certificate_end(path)) for name, path in paths.items() if path.exists()
    )


def _seen(folder: ServiceFolder, run: bytes) -> RunSeen:
    record, summary = folder.record(run), folder.summary(run)
    if summary is None:
        ending = "under way" if folder.served() else "stopped"
    else:
        ending = "given up" if summary.get("given_up") else "done"
    refusals = (summary or {}).get("refusals", {})
    return RunSeen(
        run=run.hex(),
        ending=ending,
        asked=len(record.cohort),
        refusals=sum(refusals.values()) if isinstance(refusals, dict) else 0,
        minimum=record.settings.minimum,
        enrolled_now=record.settings.counted(folder.enrolled.users.values()),
    )
