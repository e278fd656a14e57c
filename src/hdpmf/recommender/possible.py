"""Sums that so many users cannot have are brought to the nearest that they can. A secure sum hides who spoilt it.

A user adds at most 64 weight units to an item, and to its score at most a rating's largest entry for each of them. To
this comes the noise: beyond the margin allowed here honest noise goes with a chance of e^-40 per number, so that sums
of honest devices stay as they are.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hdpmf.privacy.coding import WEIGHT_UNITS, Channel, make_ruler, sum_channels
from hdpmf.protocol import Popularity, SumContribution, Survey
from hdpmf.recommender.item_bias import coding_of

TAIL = 40.0
"""Noise beyond the margin has a chance of e to the power of minus this."""

_LARGEST = 2.0**62

A = TypeVar("A", SumContribution, Popularity)


def possible(survey: Survey, answer: A, users: int, noises: float = 1.0) -> tuple[A, int]:
    """The answer as so many users can have given it, and how many of its numbers were changed for that.

    Args:
        survey: What was asked.
        answer: A sum over users.
        users: Whose numbers are in it.
        noises: How many times the whole noise is in it.
    """
    coding = coding_of(survey)
    channels = sum_channels(survey.design, coding, survey.epsilon, labels=survey.labels)
    most = float(WEIGHT_UNITS) * users
    if isinstance(answer, Popularity):
        margin = _margin(channels.popularity or channels.weight, noises)
        weights = _clamped(answer.weights, -margin, most + margin)
        return replace(answer, weights=weights), _changed(answer.weights, weights)
    margin = _margin(channels.weight, noises)
    weights = _clamped(answer.weights, -margin, most + margin)
    behind = np.clip(weights + margin, 0.0, most)  # no more weight than this is behind an item, but for the noise
    reach = coding.presence_step * behind + _margin(channels.score, noises)
    scores = _clamped(answer.scores, -reach, reach)
    total = answer.total
    if channels.total is not None:
        far = int(make_ruler(coding.scale).presence_step * behind.sum() + _margin(channels.total, noises))
        total = min(max(total, -far), far)
    changed = _changed(answer.scores, scores) + _changed(answer.weights, weights) + (total != answer.total)
    return replace(answer, scores=scores, weights=weights, total=total), changed


def _margin(channel: Channel, noises: float) -> float:
    """How far so many Laplace noises together go: they are sub-gamma, with variance 2 and scale 1 times their scale."""
    return 1.0 + float(channel.scale) * (2.0 * math.sqrt(max(noises, 1.0) * TAIL) + TAIL)


def _clamped(numbers: np.ndarray, low: float | np.ndarray, high: float | np.ndarray) -> np.ndarray:
    bounds = (np.asarray(np.clip(bound, -_LARGEST, _LARGEST)).astype(np.int64) for bound in (low, high))
    return np.clip(numbers, *bounds)


def _changed(before: np.ndarray, after: np.ndarray) -> int:
    return int(np.count_nonzero(before != after))
