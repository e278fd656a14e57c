"""Find a usable GPU, and say in one line why there is none."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hdpmf.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import torch

CHOICES = ("cpu", "gpu", "auto")

_BYTES_PER_RATING = 80
"""Sorting needs keys, sorted keys and places of 8 bytes each, and the sorted columns beside
those given.
"""

_INSTALL = "pip install 'hdpmf[gpu]'"


def use_gpu(on: str) -> bool:
    """Return True if ``on`` means the GPU here: ``auto`` does where one can be used.

    Raises:
        ConfigError: Unknown choice, or ``gpu`` without a usable one.
        MissingExtraError: ``gpu`` without the packages for it.
    """
    if on not in CHOICES:
        raise ConfigError(f"on must be one of {', '.join(CHOICES)}, not {on!r}")
    if on == "cpu":
        return False
    packages = missing_packages()
    problem = _missing_words(packages) if packages else no_gpu()
    if on == "auto" or problem is None:
        return problem is None
    if packages:
        raise MissingExtraError(f"on='gpu' needs {problem}")
    raise ConfigError(f"on='gpu' cannot be used here: {problem}; on='cpu' or 'auto' works anywhere")


def gpu() -> torch.device:
    """The GPU, as PyTorch knows it."""
    import torch

    return torch.device("cuda")


def fits(n_ratings: int) -> bool:
    """Return True if so many ratings can be sorted in the GPU's free memory."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return n_ratings * _BYTES_PER_RATING < free


def missing_packages() -> tuple[str, ...]:
    """Packages that the GPU needs and that are not installed."""
    return tuple(name for name in ("torch", "triton") if find_spec(name) is None)


@cache
def no_gpu() -> str | None:
    """Return the reason why no GPU can be used although the packages are there, or None."""
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
