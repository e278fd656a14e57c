"""The app on Flower's own engines: its simulation engine, and a real SuperLink with SuperNodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import load_dataset
from hdpmf.flower import APP
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.models import make_model

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
SECONDS = 400

SCRIPT = """
import sys, tomllib
import hdpmf.flower
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from hdpmf.flower import client_app, server_app

toml = tomllib.loads((hdpmf.flower.APP / "pyproject.toml").read_text())
config = toml["tool"]["flwr"]["app"]["config"]
config |= dict(data="synthetic", nodes=6, method="mf", epochs=3, output=sys.argv[1])
server = ServerApp()
server.main()(lambda grid, _: server_app.main(grid, Context(1, 0, {}, RecordDict(), config)))
# "local", or Ray would join whatever cluster was last started on this machine.
ray = dict(address="local", num_cpus=2, object_store_memory=2**28, include_dashboard=False)
run_simulation(server, client_app.app, num_supernodes=6, backend_config={"init_args": ray})
"""


def test_clients_on_ray_train_the_model_of_fit(tmp_path: Path) -> None:
    output = tmp_path / "run.json"
    # In a process of its own: Ray leaves sockets and warnings behind in the one that started it.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, output], capture_output=True, text=True, timeout=SECONDS
    )
    assert output.exists(), done.stderr[-3000:]
    train, test = load_dataset("synthetic").hold_out(10, rng=0)
    model = make_model("mf", epochs=3, rng=0, on="cpu").fit(train)
    assert json.loads(output.read_text())["mse"] == pytest.approx(
        model.score(test)["mse"], rel=1e-5
    )
    factors = np.load(output.with_suffix(".npz"))["factors"]
    assert factors == pytest.approx(model.catalogue_.factors, abs=1e-5)


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


def wait_until_it_listens(port: int) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError("nobody listens")


def wait_for(path: Path, logs: list[Path]) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        said = "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
        assert time.monotonic() < end, said
        assert "Traceback" not in said, said
        time.sleep(0.2)


def test_two_supernodes_train_over_a_superlink(tmp_path: Path) -> None:
    world = load_dataset("synthetic", n_users=30, n_items=20, n_ratings=300, rng=3)
    port, output, items = free_port(), tmp_path / "run.json", tmp_path / "items.csv"
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = '
        f'"127.0.0.1:{port}"\ninsecure = true\n'
    )
    items.write_text(
        "item,title\n" + "".join(f"{item},film\n" for item in world.items.ids.tolist())
    )
    config = f'data="" items="{items}" nodes=2 epochs=3 n-factors=4 hold-out=2 output="{output}"'
    with ExitStack() as processes:
        start = processes.enter_context
        link = ("flower-superlink", "--insecure", "--port", str(port))
        logs = [
            start(process(tmp_path, "link", *link, "--disable-runtime-dependency-installation"))
        ]
        wait_until_it_listens(port)
        for number in range(2):
            partition = tmp_path / f"part-{number}.csv"
            world.take(world.user_codes % 2 == number).write(partition)
            node = ("--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()))
            own = ("--node-config", f'partition="{partition}"')
            logs.append(start(process(tmp_path, f"node-{number}", "flower-supernode", *node, *own)))
        run = ("flwr", "run", str(APP), "here", "--run-config", config, "--stream")
        logs.append(start(process(tmp_path, "run", *run)))
        wait_for(output, logs)
    result = json.loads(output.read_text())
    assert (result["nodes"], result["rounds"], result["method"]) == (2, 3, "hdpmf")
    assert result["n"] == len(world.hold_out(2)[1])
    assert 0 < result["mse"] < 16
    assert np.load(output.with_suffix(".npz"))["factors"].shape == (20, 4)
