"""Which device to use, and one clear line where the one that was asked for cannot be."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hdpmf.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda", "auto")

_BYTES_PER_RATING = 80
"""Sorting needs keys, sorted keys and places of 8 bytes each, and the sorted columns beside those given."""

_INSTALL = "pip install 'hdpmf[gpu]'"


def use_gpu(device: str) -> bool:
    """Whether ``device`` means the GPU here: ``auto`` does where one can be used.

    Raises:
        ConfigError: No such device, or ``cuda`` without a usable GPU.
        MissingExtraError: ``cuda`` without the packages for it.
    """
    if device not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, not {device!r}")
    if device == "cpu":
        return False
    packages = missing_packages()
    problem = _missing_words(packages) if packages else no_gpu()
    if device == "auto" or problem is None:
        return problem is None
    if packages:
        raise MissingExtraError(f"device='cuda' needs {problem}")
    raise ConfigError(f"device='cuda' cannot be used here: {problem}; device='cpu' or 'auto' works anywhere")


def gpu() -> torch.device:
    """The GPU, as PyTorch knows it."""
    import torch

    return torch.device("cuda")


def fits(n_ratings: int) -> bool:
    """Whether so many ratings can be sorted on the GPU, as it is filled now."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return n_ratings * _BYTES_PER_RATING < free


def missing_packages() -> tuple[str, ...]:
    """Packages that the GPU needs and that are not installed."""
    return tuple(name for name in ("torch", "triton") if find_spec(name) is None)


@cache
def no_gpu() -> str | None:
    """Why no GPU can be used although the packages are there, or None where one can."""
    # Importing PyTorch takes seconds; where there is no driver at all, there is no need to ask it.
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver"
    import torch

    if torch.version.cuda is None:
        return f"this PyTorch ({torch.__version__}) was built without CUDA; install one that has it"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    major, minor = torch.cuda.get_device_capability()
    if major < 7:
        return f"the GPU's compute capability is {major}.{minor}, Triton needs 7.0"
    return None


def explain() -> str:
    """One line for people: the GPU that would be used, or what is missing and how to get it."""
    packages = missing_packages()
    if packages:
        return f"not usable: needs {_missing_words(packages)}"
    problem = no_gpu()
    if problem is not None:
        return f"not usable: {problem}"
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB"


def _missing_words(packages: tuple[str, ...]) -> str:
    return f"{' and '.join(packages)}, not installed here: {_INSTALL}"
