"""The recommender's random numbers outside of simulations."""

from __future__ import annotations

import os

import numpy as np


class SystemDraws:
    """From the operating system's entropy: nobody can draw them again, not even the recommender
    after a restart.

    That is why a round is kept on disk before it is sent.
    """

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Exp(1) draws."""
        return np.asarray(-np.log(_uniforms(shape)), np.float32)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        """N(0, 1) draws (Box and Muller)."""
        radius = np.sqrt(-2.0 * np.log(_uniforms(shape)))
        return np.asarray(radius * np.cos(2.0 * np.pi * _uniforms(shape)), np.float32)


def _uniforms(shape: tuple[int, ...]) -> np.ndarray:
    """Draws from (0, 1): 52 bits and a half, so that neither end is reached."""
    n = int(np.prod(shape))
    words = np.frombuffer(os.urandom(8 * n), np.uint64) >> np.uint64(12)
    return ((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)
