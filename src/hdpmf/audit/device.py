"""The distinguishing game against one user's messages (view ``messages``) or the sums they go into (``sums``).

The score is the log-likelihood ratio of all messages of the user under "the rating is high" and "it is low", given the
path of item factors, h, the user's other ratings and first vector. With h known the noise of a message is Gaussian
with variance ``8 Delta^2 K h / (epsilon^2 n_j)``; of a sum over all users the attacker subtracts what it knows of the
others, and the noise is that of ``n_j = 1``. Somebody who sees the sums but not h (``sums-h-hidden``) sees Laplace
noise: every run then has draws of h of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpmf.audit.bounds import Scores
from hdpmf.audit.laws import log_wide_share
from hdpmf.audit.replay import Copies, RecordedRun, SimulatedDevice, messages
from hdpmf.audit.threads import in_threads
from hdpmf.audit.world import Target
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.threads import Workers

_ROWS_PER_BLOCK = 12_000  # ratings simulated at once: their messages of one round stay in the cache

Progress = Callable[[int], None]
"""Called with the number of runs done since the last call."""


@dataclass(frozen=True, slots=True)
class DeviceScores:
    """Scores of an attacker who uses all messages, those about the rated item, and those about the user's others.

    The messages about other items depend on the rating only through the user's vector.
    """

    everything: Scores
    direct: Scores
    indirect: Scores


def device_scores(
    target: Target, path: RecordedRun, view: str, runs: int, seed: int, progress: Progress = lambda done: None
) -> DeviceScores:
    """Play ``runs`` runs of each world.

    The view is ``messages``, ``sums`` or ``sums-h-hidden``.
    """
    size = max(1, _ROWS_PER_BLOCK // len(target.own))
    begins = range(0, runs, size)
    with Workers(1) as workers:

        def play(block: tuple[int, int]) -> np.ndarray:
            world, begin = block
            noise = SeededNoise(seed, 1_000 + 2 * (begin // size) + world)
            ids = np.arange(begin, min(begin + size, runs))
            parts = _block(target, path, view, target.ends[world], ids, noise, seed, workers)
            progress(len(ids))
            return parts

        low, high = (np.concatenate(in_threads(play, [(world, begin) for begin in begins]), axis=1) for world in (0, 1))
    return DeviceScores(Scores(low.sum(axis=0), high.sum(axis=0)), Scores(low[0], high[0]), Scores(low[1], high[1]))


def _block(
    target: Target,
    path: RecordedRun,
    view: str,
    rating: float,
    ids: np.ndarray,
    noise: SeededNoise,
    seed: int,
    workers: Workers,
) -> np.ndarray:
    """Log-likelihood ratios of the messages about the rated item, and of those about the others."""
    items = target.ratings.item_codes[target.own]
    raters = np.maximum(path.raters[items], 1) if view == "messages" else np.ones(len(items), np.int64)
    copies = _copies(target, items, rating, ids)
    hidden = view == "sums-h-hidden"
    sharing = path.users if view == "messages" else 1
    stream = messages(path, copies, raters, noise, seed, workers, own_h=hidden, sharing=sharing)
    kept = next(stream)
    low, high = (SimulatedDevice(path, _copies(target, items, end, ids), kept, None, seed) for end in target.ends)
    ratios = np.zeros(kept.shape)
    for number, sums in enumerate(stream):
        if path.budget is not None and path.h is None:
            ratios[:, target.place] += _dense_ratio(path, number, sums[:, target.place], (low, high), target, sharing)
            continue
        if hidden:
            ratios += _laplace_ratio(path, number, sums, low, high)
            continue
        precision = 1.0 / path.variance(number, items, raters)
        e_low, e_high = low.residuals(number), high.residuals(number)
        # sum_k (m - (mu1 + mu0)/2) (mu1 - mu0) / var with mu = e u, without an array as large as the messages.
        both = np.stack((low.u, high.u), axis=2).astype(np.float32)
        seen = (sums * precision.astype(np.float32)) @ both
        ratios += e_high * seen[:, :, 1] - e_low * seen[:, :, 0]
        ratios -= 0.5 * (e_high**2 * (high.u**2 @ precision.T) - e_low**2 * (low.u**2 @ precision.T))
    own = ratios[:, target.place]
    return np.stack((own, ratios.sum(axis=1) - own))


def _laplace_ratio(
    path: RecordedRun, number: int, sums: np.ndarray, low: SimulatedDevice, high: SimulatedDevice
) -> np.ndarray:
    """Where nobody tells h: Laplace noise on every coordinate."""
    distances, ones = [], np.ones(sums.shape[2], np.float32)
    for device in (low, high):
        e = device.residuals(number).astype(np.float32)
        apart = e[:, :, None] * device.u.astype(np.float32)[:, None, :]
        apart -= sums
        np.abs(apart, out=apart)
        distances.append(apart @ ones)  # twice as fast as a sum over so short an axis
    return np.asarray((distances[0] - distances[1]) / path.laplace_scale)


def _dense_ratio(
    path: RecordedRun,
    number: int,
    rows: np.ndarray,
    devices: tuple[SimulatedDevice, SimulatedDevice],
    target: Target,
    sharing: int,
) -> np.ndarray:
    """Where noise needs no h: vectors do not depend on ratings, so only messages about the item tell anything."""
    laws = []
    for device in devices:
        expected = device.residuals(number)[:, target.place, None] * device.u
        laws.append(log_wide_share(np.abs(rows - expected), path.dense_scale, sharing).sum(axis=1))
    return np.asarray(laws[1] - laws[0])


def _copies(target: Target, items: np.ndarray, rating: float, ids: np.ndarray) -> Copies:
    values = np.tile(target.values(rating)[target.own], (len(ids), 1))
    return Copies(ids, items, values, np.tile(target.weights[target.own], (len(ids), 1)))
