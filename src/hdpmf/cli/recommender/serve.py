"""``hdpmf recommender serve``: the service that lives for years."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.recommender.counting import CountingOptions
from hdpmf.cli.recommender.run import report
from hdpmf.cli.recommender.telling import telling
from hdpmf.cli.recommender.ways import open_ways
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note

if TYPE_CHECKING:
    from hdpmf.service.outcome import RunOutcome


class _Terminated(BaseException):
    """SIGTERM came."""


@grouped
def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    counting: CountingOptions,
    json: Json = False,
) -> None:
    """Serve until SIGTERM: hand out the newest model, go on with an unfinished run, begin runs that are asked for.

    Runs are asked for by hand (hdpmf recommender run) or by the schedule in config.toml. A start begins none by itself.
    """
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.lifecycle import Lifecycle
    from hdpmf.service.metrics import Metrics

    place, metrics = ServiceFolder(folder), Metrics()

    def ended(outcome: RunOutcome) -> None:
        report(place, outcome.summary, outcome.statement.lines(), json)

    with (
        _until_terminated(),
        place.serving(),
        telling(metrics, counting.log_format) as log,
        counting.counted(place, metrics, log),
    ):
        Lifecycle(place, lambda asked: open_ways(place, asked), metrics=metrics, report=ended, log=log).live()


@contextmanager
def _until_terminated() -> Iterator[None]:
    """SIGTERM ends what is inside like a kill, which everything survives, only that all is closed in order."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        note("stopped; what is under way goes on at the next start")
    finally:
        signal.signal(signal.SIGTERM, before)
