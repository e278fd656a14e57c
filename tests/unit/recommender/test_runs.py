"""Several runs, put together from what they released: each counts by what it holds against its
noise.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution, Survey
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.untrusted.recommender.deconvolution import deconvolve
from hdpmf.untrusted.recommender.runs import SurveyAnswer, weigh
from hdpmf.untrusted.recommender.sums import facts_from_sums

N = 600
RNG = np.random.default_rng(11)
BIAS = RNG.normal(0.0, 0.45, N)
RATERS = RNG.lognormal(3.0, 1.2, N)


def survey_for(design="A", epsilon=1.0, n_items=N, coding="soft"):
    return Survey(
        design=design,
        coding="threshold" if design == "L" else coding,
        epsilon=epsilon,
        n_items=n_items,
        catalogue="c",
        contributors=100,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
    )


def answered(seed, raters, survey=None, noises=1):
    """A run in which items had so many raters of weight 1."""
    survey = survey_for() if survey is None else survey
    n, noise = survey.n_items, SeededNoise(seed)
    units = np.rint(raters[:n] * WEIGHT_UNITS).astype(np.int64)
    scores = np.rint(units * (0.1 + 0.326 * BIAS[:n]) * 10).astype(np.int64)
    for _ in range(noises):
        scores = scores + noise.discrete_laplace(640.0 / 0.98 / survey.epsilon, n)
        units = units + noise.discrete_laplace(WEIGHT_SCALE * WEIGHT_UNITS / survey.epsilon, n)
    return SurveyAnswer(survey, SumContribution(scores=scores, weights=units, total=0), noises)


def facts(runs, design="A", epsilon=1.0):
    """By the newest of them, with the others before it."""
    *earlier, own = runs
    return facts_from_sums(survey_for(design, epsilon), own.answer, None, own.noises, earlier)


def added(runs):
    """By plain addition."""
    answers = [run.answer for run in runs]
    plain = SumContribution(
        scores=sum(answer.scores for answer in answers),
        weights=sum(answer.weights for answer in answers),
        total=sum(answer.total for answer in answers),
    )
    return facts_from_sums(survey_for(), plain, None, sum(run.noises for run in runs))


def off(found):
    return float(np.mean((found.bias - BIAS) ** 2))


def test_runs_in_which_nothing_was_rated_cost_next_to_nothing():
    full, empty = answered(0, RATERS), [answered(seed, np.zeros(N)) for seed in range(1, 21)]
    once, weighed, plain = facts([full]), facts([*empty, full]), added([*empty, full])
    assert off(weighed) < off(once) + 0.15 * (off(plain) - off(once))
    far = [float(np.abs(found.popularity - RATERS).mean()) for found in (once, weighed, plain)]
    assert far[1] < 1.15 * far[0] < 0.5 * far[2]


def test_runs_that_hold_the_same_are_added_up():
    runs = [answered(seed, RATERS / 4) for seed in range(4)]
    weighed, plain = facts(runs), added(runs)
    assert off(weighed) == pytest.approx(off(plain), rel=0.05)
    counted = weigh(
        np.array([run.answer.weights / WEIGHT_UNITS for run in runs]), np.ones(4), np.ones((4, N))
    )  # fmt: skip
    np.testing.assert_allclose(counted.items, 1.0, atol=0.15)
    np.testing.assert_allclose(counted.noise, 2.0, rtol=0.05)


def test_a_run_counts_by_what_it_holds_over_the_variance_of_its_noise():
    parts = np.array([1.0, 0.5, 1.0])
    weights = parts[:, None] * RATERS * 100.0  # as good as without noise
    flat = weigh(weights, np.ones(3), np.ones((3, N))).runs
    np.testing.assert_allclose(flat / flat[0], parts, rtol=1e-6)
    # Twice the epsilon has a quarter of the variance; two servers' noise has twice of it.
    mixed = weigh(weights, np.array([1.0, 0.5, np.sqrt(2.0)]), np.ones((3, N))).runs
    np.testing.assert_allclose(mixed / mixed[0], [1.0, 2.0, 0.5], rtol=1e-6)
    assert (mixed @ parts) == pytest.approx(parts.sum())  # what is held together stays the same


def test_every_run_brings_its_own_noise():
    """A run of little epsilon, or with the noise of two servers, counts as what it is."""
    poor = answered(1, RATERS / 2, survey_for(epsilon=0.1))
    good = answered(2, RATERS / 2)
    told = facts([poor, good])
    lied = facts([SurveyAnswer(survey_for(), poor.answer), good])
    assert off(told) < 0.9 * off(lied)
    # The same numbers, said to have more noise in them, count less.
    more = SurveyAnswer(survey_for(), poor.answer, 100.0)
    np.testing.assert_allclose(facts([more, good]).bias, told.bias, atol=1e-4)


def test_the_mean_is_that_of_runs_that_hold_something():
    full, empty = answered(0, RATERS), answered(1, np.zeros(N))
    total = (
        4.0 * WEIGHT_UNITS * 0.25 * RATERS.sum()
    )  # a quarter of the scale above the middle: 4 stars
    full = SurveyAnswer(full.survey, msgspec.structs.replace(full.answer, total=round(total)))
    wild = SurveyAnswer(
        empty.survey, msgspec.structs.replace(empty.answer, total=round(-total / 3))
    )
    assert facts([wild, full]).mean == pytest.approx(4.0, abs=0.1)


def test_it_does_not_matter_which_run_was_the_last():
    poor, good = (
        answered(1, RATERS / 2, survey_for(epsilon=0.5), noises=2),
        answered(2, RATERS, survey_for(epsilon=2.0)),
    )
    first, second = facts([poor, good], epsilon=2.0), facts([good, poor], epsilon=0.5)
    for name in ("bias", "variance", "popularity"):
        np.testing.assert_allclose(
            getattr(first, name), getattr(second, name), rtol=1e-4, atol=1e-5
        )
    assert first.mean == pytest.approx(second.mean)


def test_an_item_that_comes_late_is_not_lost_in_the_weights():
    """Most ratings were made in the first run; one item is rated in the last one only, and
    clearly so.
    """
    first, last = RATERS.copy(), 0.02 * RATERS
    first[7], last[7] = 0.0, 400.0
    weighed = facts([answered(0, first * 10), answered(1, last)])
    assert weighed.popularity[7] == pytest.approx(400.0, rel=0.1)


def test_an_item_that_a_run_did_not_know_has_none_of_its_noise():
    known = np.ones((10, N))
    known[:9, N - 100 :] = 0.0
    counted = weigh(10 * RATERS * known, np.ones(10), known)
    np.testing.assert_allclose(counted.noise[N - 100 :], 1.0, rtol=1e-6)
    np.testing.assert_allclose(counted.noise[: N - 100], np.sqrt(10.0), rtol=1e-3)
    before = survey_for(n_items=N - 100)
    found = facts([*(answered(seed, RATERS, before) for seed in range(9)), answered(9, RATERS)])
    new, old = found.popularity[N - 100 :], found.popularity[: N - 100]
    assert float(np.corrcoef(new, RATERS[N - 100 :])[0, 1]) > 0.98
    assert float(np.median(old / RATERS[: N - 100])) == pytest.approx(10.0, rel=0.1)


def test_nothing_but_noise_gives_facts_of_nothing():
    survey = survey_for()
    noise = [answered(seed, np.zeros(N), survey) for seed in range(6)]
    silent = SurveyAnswer(
        survey, SumContribution(scores=np.zeros(N, int), weights=np.zeros(N, int), total=0)
    )
    for runs in (noise, [silent, silent]):
        found = facts(runs)
        assert np.isfinite(found.bias).all()
        assert np.abs(found.bias).max() < 1.5
        assert 1.0 <= found.mean <= 5.0


def test_one_run_is_what_it_was_before():
    own = answered(5, RATERS)
    expected = facts_from_sums(survey_for(), own.answer, None)
    found = facts([own])
    for name in ("bias", "variance", "popularity"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_scales_of_their_own_are_the_one_scale_where_they_are_equal():
    released = RATERS + np.random.default_rng(2).laplace(0, 4.0, N)
    one, each = deconvolve(released, 4.0), deconvolve(released, np.full(N, 4.0))
    np.testing.assert_array_equal(one.mean, each.mean)
    np.testing.assert_array_equal(one.deviation, each.deviation)
    nearly = deconvolve(released, np.where(np.arange(N) % 2, 4.0, 4.0001))
    np.testing.assert_allclose(nearly.mean, one.mean, rtol=0.05, atol=0.3)


def test_scales_of_their_own_are_told_apart():
    rng = np.random.default_rng(3)
    scales = np.where(np.arange(4000) % 2, 2.0, 12.0)
    truth = np.where(rng.random(4000) < 0.5, 0.0, rng.lognormal(2.5, 1.0, 4000))
    released = truth + rng.laplace(0, scales)
    each, one = deconvolve(released, scales), deconvolve(released, 7.0)
    errors = [float(np.mean((found.mean - truth) ** 2)) for found in (each, one)]
    assert errors[0] < 0.95 * errors[1]
    stated = float((each.deviation**2).mean())
    assert errors[0] == pytest.approx(stated, rel=0.15)


def test_what_cannot_be_put_together_is_refused():
    own, survey = answered(0, RATERS), survey_for()
    others = {
        "designs or codings": survey_for("L"),
        "set the coding": survey_for(coding="linear"),
        "rating scales": msgspec.structs.replace(survey, scale_high=10.0),
        "never taken away": survey_for(n_items=N + 1),
    }
    for words, asked in others.items():
        with pytest.raises(ProtocolError, match=words):
            facts([SurveyAnswer(asked, own.answer), own])
    for noises in (0.5, np.inf, np.nan):
        with pytest.raises(ConfigError, match="at least once"):
            SurveyAnswer(survey, own.answer, noises)


@pytest.mark.parametrize("growth", [0.5, 1.0, 2.0])
def test_noise_counts_a_bounded_number_of_times(growth):
    """(g + 2) / g, however many runs there are: the docs say so."""
    total, runs = 1.0, [1.0]
    for _ in range(25):
        runs.append(growth * total)
        total *= 1 + growth
    shape = np.random.default_rng(0).lognormal(3, 1, 200)
    held = np.array(runs)[:, None] / total * shape * 1e6  # as good as without noise
    counted = weigh(held, np.ones(len(runs)), np.ones(held.shape))
    np.testing.assert_allclose(counted.noise**2, (growth + 2) / growth, rtol=1e-3)
