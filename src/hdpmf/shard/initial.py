"""First user vectors, which depend on the user and the seed but not on who shares a shard with whom."""

from __future__ import annotations

import hashlib

import numpy as np

from hdpmf.ratings import IdIndex

SPREAD = 0.1
"""Standard deviation of the first factors, of users and of items."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def initial_vectors(users: IdIndex, n_factors: int, seed: int) -> np.ndarray:
    """N(0, SPREAD^2) vectors in the unit ball, one row per user, the same in every partition into shards."""
    keys = _keys(users.ids) ^ _mixed(np.array([seed], np.uint64) + _GOLDEN)
    # Two uniforms for each number (Box and Muller); the counter makes every coordinate a stream of its own.
    counters = np.arange(1, 2 * n_factors + 1, dtype=np.uint64) * _GOLDEN
    words = _mixed(_mixed(keys[:, None] + counters))
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniforms[:, :n_factors]))
    normals = radius * np.cos(2.0 * np.pi * uniforms[:, n_factors:])
    vectors = SPREAD * normals
    # With many factors a draw can be longer than 1, and the noise of the first round is calibrated to the unit ball.
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0)
    return vectors.astype(np.float32)


def _keys(ids: np.ndarray) -> np.ndarray:
    if ids.dtype.kind == "i":
        return _mixed(ids.astype(np.uint64))
    digests = b"".join(hashlib.blake2b(str(user).encode(), digest_size=8).digest() for user in ids)
    return np.frombuffer(digests, np.uint64)


def _mixed(words: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser; arrays wrap around modulo 2^64, as it wants."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = words ^ (words >> np.uint64(31))
    return mixed
