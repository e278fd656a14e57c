"""Turning ``rng=`` into a generator, the same way everywhere in this package."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from hdpmf.errors import ConfigError

RngLike: TypeAlias = int | np.random.Generator


def as_generator(rng: RngLike) -> np.random.Generator:
    """Return the generator given, or a new one from a seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise ConfigError("rng must be a seed (an integer of at least 0) or a numpy random Generator")
