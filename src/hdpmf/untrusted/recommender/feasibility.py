"""Clamp sums to what the number of users makes possible.

A secure sum hides which device sent impossible numbers, so the sum itself is clamped. A user adds
at most 64 weight units to an item, and to its score at most a rating's largest entry for each of
them; in a round of ``hdpmf-paid`` at most 2 (|v| + the largest rating) to a number of an item with
factors v. The margin for noise is exceeded by honest noise with probability e^-40 per number, so
that sums of honest devices are not changed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hdpmf.common.privacy.coding import WEIGHT_UNITS, make_ruler, sum_channels
from hdpmf.common.privacy.mechanisms import dense_laplace_scale
from hdpmf.common.protocol import Gradients, Plan, Popularity, Round, SumContribution, Survey
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.untrusted.recommender.sums import coding_of

TAIL = 40.0
"""Noise beyond the margin has a chance of e to the power of minus this."""

_LARGEST = 2.0**62

A = TypeVar("A", SumContribution, Popularity)


def clamp_to_feasible(survey: Survey, answer: A, users: int, noises: float = 1.0) -> tuple[A, int]:
    """Clamp an answer to what so many users can give; count the changed numbers.

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
        margin = _margin((channels.popularity or channels.weight).scale, noises)
        weights = _clamped(answer.weights, -margin, most + margin)
        return replace(answer, weights=weights), _changed(answer.weights, weights)
    margin = _margin(channels.weight.scale, noises)
    weights = _clamped(answer.weights, -margin, most + margin)
    behind = np.clip(
        weights + margin, 0.0, most
    )  # no more weight than this is behind an item, but for the noise
    reach = coding.presence_step * behind + _margin(channels.score.scale, noises)
    scores = _clamped(answer.scores, -reach, reach)
    total = answer.total
    if channels.total is not None:
        far = int(
            make_ruler(coding.scale).presence_step * behind.sum()
            + _margin(channels.total.scale, noises)
        )
        total = min(max(total, -far), far)
    changed = (
        _changed(answer.scores, scores)
        + _changed(answer.weights, weights)
        + (total != answer.total)
    )
    return replace(answer, scores=scores, weights=weights, total=total), changed


def clamp_gradients(
    plan: Plan, message: Round, gradients: Gradients, users: int, noises: float
) -> tuple[Gradients, int]:
    """Clamp gradients of ``hdpmf-paid`` likewise; count the changed numbers.

    A user sends 2 W (s.v - low) s - 2 W (R - low) s for an item that it rated, where W and the
    length of s are at most
    1. Rounding adds less than a step to the first part and nothing to the second.
    """
    width = plan.scale_high - plan.scale_low
    noise = dense_laplace_scale(plan.n_factors, width, plan.epsilon, plan.epochs, GRADIENT_STEP)
    lengths = np.linalg.norm(message.item_factors.astype(np.float64), axis=1)
    each = 2.0 * (lengths + abs(plan.scale_low) + width) + GRADIENT_STEP
    reach = np.minimum(message.raters, users) * each + _margin(noise, noises) * GRADIENT_STEP
    sums = np.clip(gradients.sums, -reach[:, None], reach[:, None]).astype(np.float32)
    return replace(gradients, sums=sums), _changed(gradients.sums, sums)


def _margin(scale: Fraction, noises: float) -> float:
    """Bound the sum of so many Laplace noises.

    They are sub-gamma, with variance 2 and scale 1 times their scale.
    """
    return 1.0 + float(scale) * (2.0 * math.sqrt(max(noises, 1.0) * TAIL) + TAIL)


def _clamped(numbers: np.ndarray, low: float | np.ndarray, high: float | np.ndarray) -> np.ndarray:
    bounds = (
        np.asarray(np.clip(bound, -_LARGEST, _LARGEST)).astype(np.int64) for bound in (low, high)
    )
    return np.clip(numbers, *bounds)


def _changed(before: np.ndarray, after: np.ndarray) -> int:
    return int(np.count_nonzero(before != after))
