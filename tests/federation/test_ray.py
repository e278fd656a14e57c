"""The recommender and devices of the other tests, unchanged, on Flower's simulation engine with Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RAY = find_spec("ray") is not None

SCRIPT = """
import sys
from transport_contract import ScriptedDevice
from hdpmf.transport.flower.simulation import run_on_ray

NAMES = [f"device-{n}" for n in range(5)]

def recommend(transport):
    assert transport.present() == frozenset(NAMES)
    for data in (b"same", bytes(range(256)), bytes(1_000_000)):
        arrivals = list(transport.exchange({name: b"echo " + data for name in NAMES}, 120.0))
        assert sorted(reply.device for reply in arrivals) == NAMES
        assert all(reply.data == data for reply in arrivals)
    failing = {**dict.fromkeys(NAMES, b"name"), NAMES[0]: b"fail"}
    return {reply.device: reply.data for reply in transport.exchange(failing, 120.0)}

answers = run_on_ray(recommend, ScriptedDevice, NAMES, cpus_per_device=0.5, ray={"num_cpus": 1})
assert answers == {name: name.encode() for name in NAMES[1:]}, answers
print("all answered")
"""


@pytest.mark.skipif(not RAY, reason="needs Ray, 0.3 GB that CI does not install: pip install 'hdpmf[ray]'")
def test_the_same_ends_run_on_ray():
    # In a process of its own: Ray starts others, and leaves sockets and warnings behind in the one that started it.
    environment = {**os.environ, "PYTHONPATH": str(HERE), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all answered" in done.stdout


@pytest.mark.skipif(RAY, reason="Ray is installed")
def test_without_ray_the_command_that_installs_it_is_named():
    from hdpmf.errors import MissingExtraError
    from hdpmf.transport.flower.simulation import run_on_ray

    with pytest.raises(MissingExtraError, match=r"hdpmf\[ray\]"):
        run_on_ray(lambda transport: None, lambda name: lambda data: data, ["aa"])
