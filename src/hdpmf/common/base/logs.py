"""Logs of servers and recommenders, one JSON document per line on stderr.

A line has numbers and fixed words: no addresses, no ids of devices or reports, nothing of what was
sent. An error that nobody expected is named with where it happened, never with its text: a
library's errors may quote what they were given.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from hdpmf.errors import HdpmfError

OURS = "hdpmf.untrusted.aggregator"
LOG = logging.getLogger("hdpmf.events")


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._always,
        }
        if record.name == LOG.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        elif record.name.startswith(OURS):
            line |= {"event": record.name.removeprefix(f"{OURS}."), "said": record.getMessage()}
        else:  # without what it filled in: addresses, or what is stored
            line |= {
                "event": "library",
                "source": record.name,
                "said": str(record.msg).splitlines()[0][:200],
            }
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_error(record.exc_info[1])
        return json.dumps(line)


def describe_error(error: BaseException) -> dict[str, object]:
    """An error's kind and where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    # Our own texts have nothing private.
    said = {"said": str(error)} if isinstance(error, HdpmfError) else {}
    return {
        "error": type(error).__name__,
        **said,
        "at": [f"{Path(p.filename).name}:{p.lineno} {p.name}" for p in frames[-6:]],
    }


def event(
    name: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object
) -> None:
    """Say that something happened."""
    LOG.log(level, name, extra={"fields": fields}, exc_info=error)


def remove_ids(text: str) -> str:
    """Remove device ids and keys. Runs are named by twelve digits, devices by more."""
    return re.sub(r"[0-9a-fA-F]{16,}", "(id)", text)


@contextmanager
def logging_json(stream: TextIO, **always: str) -> Iterator[None]:
    """Write this package's logs to ``stream`` as JSON while inside.

    Of what modules log for people only the words are kept, not what they filled in.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(**always))
    logger = logging.getLogger("hdpmf")
    before = (logger.handlers, logger.propagate, logger.level)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


def log_to_stderr(**always: str) -> None:
    """From now on, with these fields in every line."""
    log_to(logging.StreamHandler(sys.stderr), **always)


def log_to(handler: logging.Handler, **always: str) -> None:
    """Write all that happens to this handler from now on, with these fields in every line."""
    handler.setFormatter(JsonLines(**always))
    for name, level in (
        (OURS, logging.INFO),
        (LOG.name, logging.INFO),
        ("uvicorn.error", logging.WARNING),
        ("asyncio", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    for name in (
        "uvicorn.access",
        "httpx",
        "httpcore",
        "sqlalchemy",
    ):  # these would name addresses, or what is stored
        logging.getLogger(name).setLevel(logging.CRITICAL)
