from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hdpmf.errors import ConfigError, MissingExtraError
from hdpmf.private.kernels.gpu import availability


@pytest.fixture
def surroundings(monkeypatch):
    def pretend(packages=(), problem=None):
        monkeypatch.setattr(availability, "missing_packages", lambda: packages)
        monkeypatch.setattr(availability, "no_gpu", lambda: problem)

    return pretend


def test_cpu_asks_nobody(surroundings):
    surroundings(packages=("torch",))
    assert availability.use_gpu("cpu") is False


def test_auto_is_silent(surroundings):
    surroundings(packages=("torch", "triton"))
    assert availability.use_gpu("auto") is False
    surroundings(problem="there is no NVIDIA driver")
    assert availability.use_gpu("auto") is False
    surroundings()
    assert availability.use_gpu("auto") is True


def test_gpu_says_what_is_missing_in_one_line(surroundings):
    surroundings(packages=("torch", "triton"))
    with pytest.raises(
        MissingExtraError, match=r"^[^\n]*torch and triton[^\n]*pip install 'hdpmf\[gpu\]'$"
    ):
        availability.use_gpu("gpu")
    surroundings(problem="there is no NVIDIA driver")
    with pytest.raises(ConfigError, match=r"^[^\n]*no NVIDIA driver[^\n]*$"):
        availability.use_gpu("gpu")
    surroundings()
    assert availability.use_gpu("gpu") is True


def test_unknown_place():
    with pytest.raises(ConfigError, match="cpu, gpu, auto"):
        availability.use_gpu("tpu")


def test_explain(surroundings):
    surroundings(packages=("triton",))
    assert "triton" in availability.explain()
    assert "pip install" in availability.explain()
    surroundings(problem="PyTorch finds no GPU")
    assert availability.explain() == "not usable: PyTorch finds no GPU"


@pytest.mark.slow
def test_loops_need_nothing_but_numpy_torch_and_triton():
    """A machine with a GPU may have none of our other dependencies."""
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numba", "polars", "msgspec", "narwhals", "scipy", "typer", "rich", "joblib"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import torch
from hdpmf.private.kernels.gpu.layout import Table
from hdpmf.private.kernels.gpu.solvers import GpuRun, GpuTraining
users, items = torch.tensor([0, 0, 1], dtype=torch.int32), torch.tensor([0, 1, 1], dtype=torch.int32)
table = Table(users, items, torch.ones(3), 2, 2)
for solver in ("batch", "sequential"):
    GpuTraining(table, GpuRun(solver, 3, (0.1,), 0.0, 1), torch.ones(2, 3), torch.ones(2, 3)).finish()
import hdpmf.private.kernels.gpu.triton_engine
"""  # noqa: E501
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # the tensors are on the CPU
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
