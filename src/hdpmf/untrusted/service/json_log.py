"""How a run goes, for machines: JSON in lines, with the run's id; counts and words, nothing
about a device.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from hdpmf.common.base.logs import event, logging_json, without_ids
from hdpmf.errors import HdpmfError
from hdpmf.untrusted.service.metrics import Metrics


@contextmanager
def json_log(metrics: Metrics, stream: TextIO | None = None) -> Iterator[Callable[[str], None]]:
    """Log to the stream, stderr by default; gives the function that is told lines."""
    seen = (metrics.rounds_done, metrics.rounds_lost)

    def say(line: str) -> None:
        event("said", run=metrics.run, said=without_ids(line))

    def tick() -> None:
        nonlocal seen
        now = (metrics.rounds_done, metrics.rounds_lost)
        if now != seen:
            event(
                "round",
                run=metrics.run,
                number=metrics.number,
                rounds=metrics.rounds,
                lost=now[1] > seen[1],
                users=metrics.participants,
                members=metrics.members,
                refusals=metrics.refusals_of_run,
            )
            seen = now

    with logging_json(sys.stderr if stream is None else stream, role="recommender"):
        metrics.listeners.append(tick)
        try:
            yield say
        except HdpmfError as error:
            words = without_ids(str(error))
            event("failed", logging.ERROR, run=metrics.run, kind=type(error).__name__, said=words)
            raise
        finally:
            metrics.listeners.remove(tick)
