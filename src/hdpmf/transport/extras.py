"""Optional packages: absent ones are named together with the command that installs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hdpmf.errors import MissingExtraError

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@contextmanager
def needs(package: str, extra: str = "federation") -> Iterator[None]:
    """Imports inside: if ``package`` is not installed, the error says what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(f"this needs {package}: pip install 'hdpmf[{extra}]'") from error


def quiet_environment() -> dict[str, str]:
    """This process's environment, in which Flower neither reports usage nor looks for updates."""
    return {**os.environ, **_QUIET}


@contextmanager
def needs_flower() -> Iterator[None]:
    """As ``needs``, for Flower, which reads on import whether it may call home."""
    os.environ.update(_QUIET)
    with needs("flwr"):
        yield
