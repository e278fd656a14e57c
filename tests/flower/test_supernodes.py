"""A run of two silos on a real SuperLink and two real SuperNodes, by the app folder that ``flwr
run`` takes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.model.public_model import PublicModel
from hdpmf.flower import APP
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.lab.simulate.virtual_device import only_users
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore

pytestmark = pytest.mark.slow

WORLD = synthetic_world(12, 20, 150, rng=3)
BIN = Path(sys.executable).parent
SECONDS = 400


@contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A program of Flower's with all its children, until the end of the block; what it says is
    in a file.
    """
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [BIN / arguments[0], *arguments[1:]],
            cwd=folder,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield log
        finally:
            child.terminate()  # it ends its own children
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=20)
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def make_silo(path: Path, users: slice) -> None:
    chosen = [False] * WORLD.n_users
    chosen[users] = [True] * len(chosen[users])
    ratings = only_users(WORLD, np.array(chosen))
    policy = Policy(methods=("hdp-bit",), require_sums=False, min_participants=2, min_devices=2)
    with DeviceStore.create(path, users=ratings.n_users, policy=policy) as store:
        store.add(ratings)


def wait_for(path: Path, logs: list[Path]) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        said = "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
        assert time.monotonic() < end, said
        assert "Traceback" not in said, said
        time.sleep(0.2)


def test_two_silos_train_a_model_over_a_superlink(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = '
        f'"127.0.0.1:{port}"\ninsecure = true\n'
    )
    items = tmp_path / "items.csv"
    items.write_text(
        "item,title\n" + "".join(f"{item},film {item}\n" for item in WORLD.items.ids.tolist())
    )
    output = tmp_path / "run.json"
    config = (
        f'data="" items="{items}" scale-step=1.0 method="hdp-bit" view="messages" output="{output}"'
    )
    with ExitStack() as processes:
        start = processes.enter_context
        logs = [
            start(
                process(
                    tmp_path,
                    "superlink",
                    "flower-superlink",
                    "--insecure",
                    "--port",
                    str(port),
                    "--disable-runtime-dependency-installation",
                )
            )
        ]
        for number, users in enumerate((slice(0, 5), slice(5, 12))):
            store = tmp_path / f"silo-{number}.store"
            make_silo(store, users)
            logs.append(
                start(
                    process(
                        tmp_path,
                        f"supernode-{number}",
                        "flower-supernode",
                        "--insecure",
                        "--superlink",
                        f"127.0.0.1:{port}",
                        "--port",
                        str(free_port()),
                        "--node-config",
                        f'store="{store}"',
                    )
                )
            )
        time.sleep(3)
        logs.append(
            start(
                process(
                    tmp_path,
                    "run",
                    "flwr",
                    "run",
                    str(APP),
                    "here",
                    "--run-config",
                    config,
                    "--stream",
                )
            )
        )
        wait_for(output, logs)
    summary = json.loads(output.read_text())
    assert (summary["devices"], summary["users"]) == (2, 12)
    assert PublicModel.load(output.with_suffix(".model")).about["method"] == "hdp-bit"
    with DeviceStore.open(tmp_path / "silo-0.store") as store:
        assert any(entry.action == "sent" for entry in store.ledger.entries())
