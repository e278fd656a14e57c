"""Simulated devices on Flower's simulation engine: the results of the engine in memory, to
rounding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
from typer.testing import CliRunner

from hdpmf.cli.federate import PopulationOptions
from hdpmf.cli.main import app
from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError, MissingExtraError

SCRIPT = """
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.flower.server_app import run_on_engine, simulate_on
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.data import synthetic_world
from hdpmf.untrusted.service.settings import RunSettings

# One start of Ray for all of them: it takes longer than they do.
CASES = [
    # Without patterns, which are found from a random start.
    (60, dict(method="hdp-bit", view="messages", patterns=0)),
    (40, dict(method="hdp-sum", view="two-servers")),
    (30, dict(method="hdp-sum", view="sums", max_colluding=0.0)),
]

def main(grid):
    for users, options in CASES:
        world = synthetic_world(users, 40, 15 * users, rng=3)
        settings = RunSettings(minimum=users, rounds=1, **options)
        given = (world, settings, PrivacySpec().draw(world, rng=5))
        here = simulate(*given, test=world, seed=4).result
        there = simulate_on(grid, *given, test=world, seed=4).result
        assert there.devices == there.users == users
        assert abs(there.mse - here.mse) < 1e-5 * here.mse, (options, there.mse, here.mse)
        assert there.bytes_per_device > 0
        print("equal:", options["view"], there.mse)

run_on_engine(main, 60, 2)
"""


@pytest.mark.slow
def test_devices_on_ray_give_the_model_of_the_engine_in_memory() -> None:
    # In a process of its own: Ray leaves sockets and warnings behind in the one that started it.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal:") == 3, done.stderr[-3000:]


@pytest.mark.slow
def test_the_command_runs_on_either_engine(
    make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_simulation(server_app: ServerApp, num_supernodes: int, **_: Any) -> None:
        grid = make_grid({} for _ in range(num_supernodes))
        server_app(grid=grid, context=Context(1, 0, {}, RecordDict(), {}))

    monkeypatch.setattr("flwr.simulation.run_simulation", run_simulation)
    world = synthetic_world(12, 20, 150, rng=3)
    ratings = tmp_path / "ratings.csv"
    rows = zip(world.user_ids.tolist(), world.item_ids.tolist(), world.values.tolist(), strict=True)
    ratings.write_text(
        "user,item,rating\n" + "".join(f"{user},{item},{value}\n" for user, item, value in rows)
    )
    command = [
        "federate",
        "simulate",
        "--train",
        str(ratings),
        "--hold-out",
        "1",
        "--json",
        "--processes",
        "1",
    ]
    command += ["--method", "hdpmf", "--messages", "--rounds", "2"]
    results: list[dict[str, Any]] = []
    for engine in ("memory", "flower"):
        done = CliRunner().invoke(app, [*command, "--engine", engine], catch_exceptions=False)
        assert done.exit_code == 0
        results.append(json.loads(done.stdout))
    here, there = results
    assert there["mse"] == pytest.approx(here["mse"], rel=1e-5)
    assert there["bytes_up"] == here["bytes_up"]


def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="memory or flower"):
        PopulationOptions(engine="spark").simulation()
    monkeypatch.delitem(sys.modules, "hdpmf.flower.server_app", raising=False)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(MissingExtraError, match=r"hdpmf\[flower\]"):
        PopulationOptions(engine="flower").simulation()


def test_flower_is_told_not_to_call_home() -> None:
    import hdpmf.flower

    assert (hdpmf.flower.APP / "pyproject.toml").is_file()
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
