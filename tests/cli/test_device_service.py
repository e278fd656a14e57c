"""The service that starts a device at login: its files, and what it asks the system for."""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hdpmf.cli.device import service
from hdpmf.common.data import RatingScale
from hdpmf.private.device.device_identity import new_device

from .conftest import Call


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "my $tore 100%.sqlite"
    new_device(path, scale=RatingScale(1.0, 5.0, 1.0)).close()
    return path


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``systemctl`` and ``launchctl`` were asked for, one line each; they obey."""
    log = tmp_path / "asked"
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("systemctl", "launchctl"):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@" >> {shlex.quote(str(log))}\n')
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return log


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd is for Linux")
def test_a_unit_is_written_started_and_removed(call: Call, store: Path, asked: Path):
    done = call("device", "service", "install", store, "--json")
    assert done.code == 0, done.err
    unit = Path(done.json["file"])
    assert unit.parent == asked.parent / ".config/systemd/user"
    (start,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(start.partition("=")[2])
    assert [word.replace("%%", "%").replace("$$", "$") for word in words] == [
        sys.executable, "-m", "hdpmf", "device", "open", str(store), "--background",
    ]  # fmt: skip
    assert f"enable --now {unit.name}" in asked.read_text()
    again = call("device", "service", "install", store, "--json")
    assert again.json["file"] == str(unit)
    asked.unlink()
    assert call("device", "service", "remove", store).code == 0
    assert asked.read_text().split()[-1] == unit.name
    assert not unit.exists()
    assert store.exists()
    assert "has no service" in call("device", "service", "remove", store).err


def test_a_launch_agent_is_written_for_macos(
    call: Call, store: Path, asked: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service.sys, "platform", "darwin")
    done = call("device", "service", "install", store, "--json")
    assert done.code == 0, done.err
    agent = plistlib.loads(Path(done.json["file"]).read_bytes())
    assert agent["ProgramArguments"][-2:] == [str(store), "--background"]
    assert agent["Label"] == Path(done.json["file"]).stem
    assert f"bootstrap gui/{os.getuid()}" in asked.read_text()


def test_other_systems_are_told_what_to_run(
    call: Call, store: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service.sys, "platform", "win32")
    assert f"device open {store} --background" in call("device", "service", "install", store).err


def test_a_manager_that_refuses_is_quoted(call: Call, store: Path, asked: Path):
    tool = asked.parent / "tools" / "systemctl"
    tool.write_text("#!/bin/sh\necho no bus here >&2\nexit 1\n")
    done = call("device", "service", "install", store)
    assert done.code == 2
    assert "no bus here" in done.err
    assert call("device", "service", "install", store, "--no-start").code == 0


def test_no_service_without_a_store(call: Call, tmp_path: Path, asked: Path):
    assert "there is no store" in call("device", "service", "install", tmp_path / "none").err
    assert not asked.exists()


def test_in_the_background_no_link_is_printed(store: Path):
    command = [sys.executable, "-m", "hdpmf", "device", "open", str(store)]
    process = subprocess.Popen(
        [*command, "--background"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "400"},
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "is at http://p" in first
        second = subprocess.run(
            [*command, "--no-browser", "--json"], capture_output=True, text=True, timeout=60
        )
        assert second.returncode == 0, second.stderr
        assert "/enter#" in second.stdout
        third = subprocess.run([*command, "--background"], capture_output=True, text=True)
        assert "served already" in third.stderr
    finally:
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert "/enter#" not in out + first + err
