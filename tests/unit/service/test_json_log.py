"""The recommender's log as JSON: every line has the run's id, and none has anything about a
device.
"""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from hdpmf.errors import FederationError
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.telemetry import json_log


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
