"""Processes that start together and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hdpmf.errors import ConfigError, FederationError, StorageError
from hdpmf.lab.simulate.deploy import Deployment, free_port

SLEEP = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
ORDERLY = (
    "import signal, sys, time\n"
    "def end(*_):\n    print('ended in order', flush=True)\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\nprint('here', flush=True)\ntime.sleep(600)\n"
)
DONE = "print('done')\n"
FAIL = "import sys\nsys.exit('the reason')\n"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    for name, code in {
        "sleeps": SLEEP,
        "stubborn": STUBBORN,
        "orderly": ORDERLY,
        "done": DONE,
        "fails": FAIL,
    }.items():
        (tmp_path / f"{name}_module.py").write_text(code)
    return tmp_path


def _deployment(modules: Path) -> Deployment:
    return Deployment(modules / "logs", {"PYTHONPATH": str(modules)})


def _said(deployment: Deployment, name: str, words: str) -> None:
    end = time.monotonic() + 60
    while words not in deployment.child(name).log.read_text():
        assert time.monotonic() < end, f"{name} did not say {words!r}"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_on_the_way_out_everything_is_ended_in_order(modules: Path):
    children = []

    def interrupted() -> None:
        with _deployment(modules) as deployment:
            for name in ("one", "two"):
                children.append(deployment.start(name, "orderly_module"))
                _said(deployment, name, "here")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(children) == 2
    for child in children:
        assert child.process.returncode == 0
        assert "ended in order" in child.log.read_text()


def test_who_does_not_end_when_asked_is_made_to(modules: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hdpmf.lab.simulate.deploy._STOP_SECONDS", 0.2)
    with _deployment(modules) as deployment:
        child = deployment.start("one", "stubborn_module")
        _said(deployment, "one", "here")
    assert child.process.returncode == -signal.SIGKILL


def test_a_process_that_fails_is_named_with_its_last_words(modules: Path):
    with _deployment(modules) as deployment:
        deployment.start("other", "sleeps_module")
        deployment.start("one", "fails_module")
        with pytest.raises(
            FederationError, match=r"one ended with status 1: the reason \(log: .*one\.log\)"
        ):
            deployment.wait("other", 60)


def test_waiting_ends_when_the_process_does_or_the_time_is_up(modules: Path):
    with _deployment(modules) as deployment:
        deployment.start("one", "done_module")
        deployment.wait("one", 60)
        deployment.start("two", "sleeps_module")
        with pytest.raises(FederationError, match=r"not done after 0\.2 s"):
            deployment.wait("two", 0.2)


def test_a_killed_process_can_be_started_again_under_its_name(modules: Path):
    with _deployment(modules) as deployment:
        first = deployment.start("one", "sleeps_module")
        with pytest.raises(ConfigError, match="runs already"):
            deployment.start("one", "sleeps_module")
        deployment.kill("one")
        assert first.process.returncode == -signal.SIGKILL
        second = deployment.start("one", "orderly_module")
        _said(deployment, "one", "here")
        deployment.stop("one")
        assert second.process.returncode == 0


def test_when_the_starter_is_killed_its_processes_end(modules: Path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom hdpmf.lab.simulate.deploy "
        "import Deployment\n"
        "deployment = Deployment(Path(sys.argv[1]))\n"
        "print(deployment.start('one', 'sleeps_module').process.pid, flush=True)\ntime.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    command = [sys.executable, "-c", code, str(modules / "logs")]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert _runs(pid)
    finally:
        starter.kill()
        starter.communicate()
    end = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_logs_that_cannot_be_written_are_said(modules: Path):
    (modules / "logs").write_text("")
    with pytest.raises(StorageError), _deployment(modules) as deployment:
        deployment.start("one", "done_module")


def test_a_free_port_can_be_listened_on():
    with socket.create_server(("127.0.0.1", free_port())):
        pass
