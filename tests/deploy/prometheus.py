"""A real Prometheus (Debian's package) on this machine, for tests of rules and panels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from hdpmf.lab.simulate.deploy import free_port
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from tests.deploy.page import ROOT

yaml = pytest.importorskip("yaml")
PROGRAMS = ("prometheus", "promtool")
ALERTS = ROOT / "deploy" / "alerts.yml"
EXAMPLE = ROOT / "deploy" / "prometheus.yml"


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def promtool(*words: str, cwd: Path) -> str:
    """What promtool says; an error if it is not satisfied."""
    done = subprocess.run(["promtool", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alert_names() -> list[str]:
    """All alerts of the shipped rules."""
    return re.findall(r"- alert: (\w+)", ALERTS.read_text())


def example_for(recommender: list[str], servers: Iterable[AggregatorFolder]) -> str:
    """The shipped example, with the addresses and files of a test."""
    document = yaml.safe_load(EXAMPLE.read_text())
    first, server = document["scrape_configs"]
    first["static_configs"][0]["targets"] = recommender
    jobs = [first]
    for folder in servers:  # each has a Prometheus of its own, usually
        job = deepcopy(server)
        job["job_name"] = f"hdpmf-server-{folder.config.role}"
        job["tls_config"]["ca_file"] = str(folder.path / "tls" / "authority.pem")
        job["authorization"]["credentials_file"] = str(folder.path / "keys" / "metrics.token")
        job["static_configs"][0]["targets"] = [f"localhost:{folder.config.port}"]
        jobs.append(job)
    return str(yaml.safe_dump(document | {"scrape_configs": jobs}))


class Prometheus:
    """A server that runs inside the block, with the shipped example and rules in its folder."""

    def __init__(self, folder: Path, config: str) -> None:
        folder.mkdir()
        self._folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self._write(config)
        shutil.copy(ALERTS, folder / "alerts.yml")
        promtool("check", "config", "prometheus.yml", cwd=folder)
        command = [
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={self.address}",
            "--query.lookback-delta=5s",  # until a job that was taken out is forgotten
            "--log.level=warn",
        ]
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        self.wait("Prometheus answers", self._ready)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        return list(self._get("query", query=expression)["result"])

    def wait(self, what: str, reached: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > end:
                log = (self._folder / "log").read_text()
                raise TimeoutError(f"{what}: not within {seconds:.0f} s; {log}")
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _write(self, config: str) -> None:
        fast = re.sub(r"(?<=_interval: )\d+s", "1s", config)
        (self._folder / "prometheus.yml").write_text(fast)

    def _get(self, what: str, **query: str) -> dict[str, Any]:
        url = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return dict(found["data"])
