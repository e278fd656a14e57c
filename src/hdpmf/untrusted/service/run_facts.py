"""How far a run is, as its folder says."""

from __future__ import annotations

import time
from typing import Any

from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.service.collector import read_task
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.run_files import Checkpoint


def run_facts(service: ServiceFolder, run: bytes) -> dict[str, Any]:
    """A run as far as it is, for people and JSON."""
    record, checkpoint = service.record(run), service.run_files(run).load()
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
        task, now = read_task(period.document), time.time()
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
                "state": state,
            }
        )
    return found
