"""The recommender's log as JSON: every line has the run's id, and none has anything about a
device.
"""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hdpmf.common.base.logs import LOG, event
from hdpmf.errors import FederationError
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.telemetry import json_log


def test_signals_change_what_is_logged() -> None:
    """A step more, a step less, and everything as before at the end."""
    stream = io.StringIO()

    def logged() -> set[str]:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            event(logging.getLevelName(level), level)
        lines = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
        stream.truncate(stream.seek(0))
        return set(lines) - {"log-level"}

    before = signal.getsignal(signal.SIGUSR1), LOG.level
    with json_log(Metrics(), stream):
        assert logged() == {"INFO", "WARNING"}
        signal.raise_signal(signal.SIGUSR1)
        assert '"now": "debug"' in stream.getvalue()
        assert logged() == {"DEBUG", "INFO", "WARNING"}
        signal.raise_signal(signal.SIGUSR1)
        assert logged() == {"DEBUG", "INFO", "WARNING"}
        for _ in range(3):
            signal.raise_signal(signal.SIGUSR2)
        assert logged() == {"WARNING"}
    assert (signal.getsignal(signal.SIGUSR1), LOG.level) == before


def test_a_signal_for_the_log_level_ends_no_command_that_is_starting() -> None:
    """The first line of the command has run, and nothing of the service yet."""
    both = "[os.kill(os.getpid(), number) for number in (signal.SIGUSR1, signal.SIGUSR2)]"
    command = f"import os, signal, hdpmf.cli; {both}; import hdpmf.cli.main as m; m.run()"
    done = subprocess.run([sys.executable, "-c", command, "--version"], capture_output=True)
    assert (done.returncode, done.stdout[:6]) == (0, b"hdpmf ")


def test_a_failure_is_told_and_logging_is_as_it_was(tmp_path: Path) -> None:
    logger, stream, metrics = logging.getLogger("hdpmf"), io.StringIO(), Metrics()
    before = (list(logger.handlers), logger.propagate, logger.level)
    with pytest.raises(FederationError), json_log(metrics, stream):
        raise FederationError(f"2 users and 3 are needed, without {'ab' * 32}")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["said"]) == (
        "failed", "error", "2 users and 3 are needed, without (id)",
    )  # fmt: skip
    assert (list(logger.handlers), logger.propagate, logger.level) == before
    assert metrics.listeners == []
