"""Kernels run in Triton's interpreter here, for CI has no GPU; where there is one,
``benchmarks/gpu.py`` runs them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Triton decides when a kernel is defined, so this must come before anything imports one.
if os.environ.get("HDPMF_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An interpreter of kernels is slow, and they seldom change: ``make check`` leaves them out."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("HDPMF_TEST_DEVICE", "cpu"))


def use_plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in plain PyTorch on a CPU: an interpreter of kernels takes minutes for whole models."""
    from hdpmf.private.kernels.gpu import triton_engine
    from tests.unit.gpu import torch_engine

    for name in vars(triton_engine).keys() & vars(torch_engine).keys():
        if callable(getattr(torch_engine, name)):
            monkeypatch.setattr(triton_engine, name, getattr(torch_engine, name))


@pytest.fixture
def models_engine(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Whole models: kernels on a GPU, plain PyTorch without one."""
    if device.type == "cpu":
        use_plain_engine(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Small tensors on a shared machine: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
