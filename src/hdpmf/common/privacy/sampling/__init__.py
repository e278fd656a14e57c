"""Exact samplers: noise for what leaves a device, for sums of servers, and for simulations."""

from hdpmf.common.privacy.sampling.noise import (
    KeyedNoise,
    Noise,
    ReleasedNoise,
    SeededNoise,
    bit_thresholds,
    grid_scale,
    require_released,
    seed_of,
)

__all__ = [
    "KeyedNoise",
    "Noise",
    "ReleasedNoise",
    "SeededNoise",
    "bit_thresholds",
    "grid_scale",
    "require_released",
    "seed_of",
]
