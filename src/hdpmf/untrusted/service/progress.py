"""The progress of a run, from its folder and as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from hdpmf.common.base.progress import clock, size, view
from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.service.aggregation.two_servers import read_task
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.run_files import Checkpoint

if TYPE_CHECKING:
    from rich.console import Group


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
    with view(stream, lambda: picture(metrics), lambda: progress_line(metrics)) as shown:
        metrics.listeners.append(lambda: shown.tick(last=metrics.number >= metrics.rounds))
        yield shown.say


def progress_line(metrics: Metrics) -> str:
    """The counts on one line; in a wait, how long it is."""
    if metrics.until is not None:
        return f"{metrics.stage}, {clock(metrics.seconds_left)} left"
    each = metrics.recent_round
    pace = "" if each is None else f", {each:.2f} s each"
    return (
        f"round {metrics.number} of {metrics.rounds}{pace}, {clock(metrics.seconds_left)} left; "
        f"{metrics.participants} users; sent {size(metrics.bytes_out)}, received "
        f"{size(metrics.bytes_in)}; {sum(metrics.refusals.values())} refusals"
    )


def picture(metrics: Metrics) -> Group:
    """A bar with the time left, and a table of the counts."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    total = max(metrics.rounds, 1)
    head.add_row(
        Text(metrics.method, style="bold"),
        ProgressBar(total=total, completed=min(metrics.number, total), width=30),
        Text(metrics.stage),
        Text(f"{clock(metrics.seconds_left)} left", style="green"),
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (
        "devices here",
        "members",
        "users in round",
        "s per round",
        "sent",
        "received",
        "refused",
    ):
        table.add_column(name, justify="right")
    each = metrics.recent_round
    table.add_row(
        str(metrics.present),
        str(metrics.members),
        str(metrics.participants),
        "" if each is None else f"{each:.2f}",
        size(metrics.bytes_out),
        size(metrics.bytes_in),
        ", ".join(f"{reason} {count}" for reason, count in sorted(metrics.refusals.items()))
        or "none",
    )
    return Group(head, table)


def run_facts(service: ServiceFolder, run: bytes) -> dict[str, Any]:
    """A run as far as it is, for people and JSON."""
    record = service.record(run)
    checkpoint = service.run_files(run).load()
    ended = service.summary_path(run).exists()
    devices = checkpoint.members or checkpoint.agreed
    names = {card.identity: card.name for card in record.devices}
    return {
        "run": run.hex(),
        "method": record.settings.method,
        "view": record.settings.view,
        "catalogue_version": record.catalogue,
        "stage": ("done" if checkpoint.stage == "done" else "given up")
        if ended
        else checkpoint.stage,
        "rounds": record.settings.rounds,
        "rounds_done": len(checkpoint.users),
        "rounds_lost": len(checkpoint.lost),
        "impossible_numbers": checkpoint.impossible,
        "wrong_shares": [names.get(device, device) for device in checkpoint.barred],
        "devices": len(devices),
        "users": sum(card.users for card in record.devices if card.identity in set(devices)),
        "tasks": _tasks_of(checkpoint),
    } | (
        # With two servers the recommender knows how many reports there are, not whose.
        {"devices": None, "users": checkpoint.users[-1] if checkpoint.users else 0}
        if record.settings.view == "two-servers"
        else {}
    )


def _tasks_of(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The tasks of a run, for people and JSON."""
    found = []
    for period in checkpoint.periods:
        task = read_task(period.document)
        now = time.time()
        if period.collection:
            state = "collected"
        elif not period.placed:
            state = "not at both servers yet"
        elif now >= task.end:
            state = "its sum is asked for"
        else:
            state = "takes reports" if now >= task.begin else "not begun"
        found.append(
            {
                "id": task_id(period.document).hex(),
                "part": task.part,
                "begin": task.begin,
                "end": task.end,
                "minimum": task.minimum,
                "servers": task.servers.names,
                "state": state,
            }
        )
    return found
