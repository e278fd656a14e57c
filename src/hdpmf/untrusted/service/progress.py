"""The progress of a run, from its folder and as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from hdpmf.common.base.progress import clock, view
from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.run import read_task
from hdpmf.untrusted.service.run_files import Checkpoint
from hdpmf.untrusted.service.settings import METHOD


@contextmanager
def watch(
    metrics: Metrics, stream: TextIO | None = None, *, lines: bool = True
) -> Iterator[Callable[[str], None]]:
    """Show progress in the way that suits the stream; yield the function that takes lines.

    Args:
        stream: stderr by default.
        lines: Where there is no terminal, write plain lines, or nothing at all.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() and not lines:
        yield lambda line: None
        return
    from rich.text import Text

    with view(
        stream, lambda: Text(progress_line(metrics)), lambda: progress_line(metrics)
    ) as shown:
        metrics.listeners.append(lambda: shown.tick())
        yield shown.say


def progress_line(metrics: Metrics) -> str:
    """What it is doing and, in a wait, how long that is."""
    left = metrics.seconds_left
    return metrics.stage if left is None else f"{metrics.stage}, {clock(left)} left"


def run_facts(service: ServiceFolder, run: bytes) -> dict[str, Any]:
    """A run as far as it is, for people and JSON."""
    record = service.record(run)
    checkpoint = service.run_files(run).load()
    summary = service.summary(run)
    if summary is None:
        stage = "not begun" if not checkpoint.document else _stage(checkpoint)
    else:
        stage = "given up" if summary.get("given_up") else "done"
    facts: dict[str, Any] = {
        "run": run.hex(),
        "method": METHOD,
        "catalogue_version": record.catalogue,
        "stage": stage,
        "impossible_numbers": checkpoint.impossible,
        "enrolled": len(record.devices),
        "reports": checkpoint.reports,
        "task": None,
    }
    if checkpoint.document:
        task = read_task(checkpoint.document)
        facts["task"] = {
            "id": task_id(checkpoint.document).hex(),
            "begin": task.begin,
            "end": task.end,
            "minimum": task.minimum,
            "servers": task.servers.names,
        }
    return facts


def _stage(checkpoint: Checkpoint) -> str:
    task, now = read_task(checkpoint.document), time.time()
    if checkpoint.collection:
        return "collected"
    if not checkpoint.placed:
        return "not at both servers yet"
    if now >= task.end:
        return "its sum is asked for"
    return "takes reports" if now >= task.begin else "not begun"
