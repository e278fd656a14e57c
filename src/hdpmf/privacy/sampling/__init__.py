"""Exact samplers. ``ReleasedNoise`` is for what leaves a device, ``SeededNoise`` for simulations: two types."""

from hdpmf.privacy.sampling.released import Noise, ReleasedNoise, require_released
from hdpmf.privacy.sampling.rounding import bit_thresholds, grid_scale
from hdpmf.privacy.sampling.seeded import SeededNoise, seed_of

__all__ = [
    "Noise",
    "ReleasedNoise",
    "SeededNoise",
    "bit_thresholds",
    "grid_scale",
    "require_released",
    "seed_of",
]
