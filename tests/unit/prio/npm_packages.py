"""Packages from the npm registry that tests talk to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def install(package: str, script: Path, folder: Path) -> Path:
    """Install a package into a folder, with our script beside it. Without it a test is skipped,
    on CI it fails.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        unavailable("needs Node.js 20 and npm: install them, or run .ci/run")
    command = [
        npm,
        "install",
        "--prefix",
        folder,
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        package,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        unavailable(f"npm did not install {package} within three minutes")
    if done.returncode != 0:
        unavailable(f"npm could not install {package}: {done.stderr[-500:]}")
    return Path(shutil.copy(script, folder))


def unavailable(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def ask(script: Path, question: dict[str, Any]) -> Any:
    """What a script answers: JSON in, JSON out."""
    done = subprocess.run(
        ["node", script.name],
        cwd=script.parent,
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
