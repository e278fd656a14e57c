"""Flower without telemetry: it neither reports usage nor looks for updates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hdpmf.common.net.extras import needs

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def quiet_environment() -> dict[str, str]:
    """This process's environment, for a child that may load Flower."""
    return {**os.environ, **_QUIET}


@contextmanager
def needs_flower() -> Iterator[None]:
    """As ``needs``, for Flower, which reads on import whether it may call home."""
    os.environ.update(_QUIET)
    with needs("flwr"):
        yield
