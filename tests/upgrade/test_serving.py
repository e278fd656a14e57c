"""What version 0.1.0 left is served by today's commands: the model from the start on, and
nothing begins by itself.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from old_versions import unpack

from hdpmf.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_recommender_of_0_1_0_serves(tmp_path: Path, say: Callable[..., Any]) -> None:
    folder = unpack("0.1.0", tmp_path / "old") / "killed" / "recommender"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(
        re.sub(r"^port = .*$", f"port = {port}", config, flags=re.MULTILINE)
    )
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "hdpmf", "recommender", "serve", str(folder)]
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "COLUMNS": "200"}
        )
    try:
        end = time.monotonic() + 200
        while "handing out the model" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        assert say("health", folder)["kind"] == "recommender"
        status = say("recommender", "status", folder)
        assert [run["stage"] for run in status["runs"]] == ["done", "given up"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with pytest.raises(SystemExit) as ended:
        main.run(["health", str(folder)])
    assert ended.value.code == 12
