"""A recommender's half of the noise is refused where no honest draw would be so small."""

import math

import numpy as np
import pytest

from hdpmf.common.privacy import SeededNoise
from hdpmf.common.privacy.mechanisms import H_FLOOR
from hdpmf.errors import PrivacyError
from hdpmf.private.client.h_plausibility import FALSE_ALARM, HPlausibility, largest_plausible

ROWS, FACTORS, ROUNDS = 50, 10, 30


def draw(seed, rows=ROWS):
    return np.maximum(SeededNoise(seed).exponentials((rows, FACTORS)), np.float32(H_FLOOR))


def test_honest_draws_pass():
    """100 trainings, 1.5 million draws; one would be refused with a probability of 1e-7."""
    for training in range(100):
        law = HPlausibility(FACTORS, ROUNDS)
        for number in range(ROUNDS):
            law.check(draw(1_000 * training + number))


@pytest.mark.parametrize("n", [1, 4, 10, 100])
def test_the_bound_is_one_and_not_an_idle_one(n):
    """Exceeded in at most 1 % of 100,000 sums (4 standard deviations above), and not by never
    being reached.
    """
    draws = np.random.default_rng(n).standard_exponential((100_000, n))
    sums = -np.log(np.minimum(draws, 1.0)).sum(axis=1)
    exceeded = np.mean(sums > largest_plausible(n, math.log(0.01)))
    assert 5e-4 < exceeded < 0.01 + 4 * math.sqrt(0.01 * 0.99 / 100_000)


@pytest.mark.parametrize("h", [0.0, 1e-30, 1e-9, H_FLOOR / 2])
def test_a_single_h_below_the_floor_is_refused(h):
    message = draw(0)
    message[7, 3] = h
    with pytest.raises(PrivacyError, match="would go out without noise"):
        HPlausibility(FACTORS, ROUNDS).check(message)


@pytest.mark.parametrize("h", [H_FLOOR, 1e-6, 1e-4, 1e-3])
def test_a_row_that_is_small_everywhere_is_refused(h):
    message = draw(0)
    message[7] = h
    with pytest.raises(PrivacyError, match="row 7 of h is so small in this round"):
        HPlausibility(FACTORS, ROUNDS).check(message)
    with pytest.raises(PrivacyError, match="row 0 of h is so small in this round"):
        HPlausibility(FACTORS, ROUNDS).check(message[7:8])


def test_small_draws_that_pass_once_do_not_pass_again_and_again():
    law, refusals = HPlausibility(FACTORS, ROUNDS), []
    for number in range(ROUNDS):
        message = draw(number)
        message[7, :2] = 2 * H_FLOOR
        try:
            law.check(message)
        except PrivacyError as error:
            refusals.append((number, str(error)))
    first, reason = refusals[0]
    assert 1 <= first <= 10
    assert "row 7 of h is so small over the rounds so far" in reason


def test_what_is_refused_is_not_remembered():
    refused, straight = HPlausibility(FACTORS, ROUNDS), HPlausibility(FACTORS, ROUNDS)
    for number in range(5):
        with pytest.raises(PrivacyError):
            refused.check(np.full((ROWS, FACTORS), 1e-3, np.float32))
        refused.check(draw(number))
        straight.check(draw(number))
    assert np.array_equal(refused.total, straight.total)
    assert refused.seen == straight.seen == 5


def test_the_kind_of_draw_must_not_change():
    law = HPlausibility(FACTORS, ROUNDS)
    law.check(draw(0))
    with pytest.raises(PrivacyError, match="per item in one round"):
        law.check(draw(1, rows=1))


def test_the_false_alarm_is_what_the_docs_say():
    assert FALSE_ALARM == 1e-9
