"""Exact samplers: ``ReleasedNoise`` for what leaves a device, ``SeededNoise`` for simulations."""

from hdpmf.common.privacy.sampling.noise import (
    Noise,
    ReleasedNoise,
    SeededNoise,
    bit_thresholds,
    grid_scale,
    require_released,
    seed_of,
)

__all__ = [
    "Noise",
    "ReleasedNoise",
    "SeededNoise",
    "bit_thresholds",
    "grid_scale",
    "require_released",
    "seed_of",
]
