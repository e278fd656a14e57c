"""What ``serve`` says while it runs: for people, or for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hdpmf.cli.shared.output import notes_to
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.service.metrics import Metrics


@contextmanager
def telling(metrics: Metrics, form: str) -> Iterator[Callable[[str], None]]:
    """Say how runs go on stderr, as ``text`` or ``json``; gives the function that is told lines."""
    from hdpmf.service.json_log import json_log
    from hdpmf.service.live import watch

    if form == "text":
        with watch(metrics) as say:
            yield say
    elif form == "json":
        with json_log(metrics) as say, notes_to(say):
            yield say
    else:
        raise ConfigError(f"--log-format is text or json, not {form!r}")
