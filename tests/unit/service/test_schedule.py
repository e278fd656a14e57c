"""When a run is worth its noise, by public facts only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution, Survey
from hdpmf.untrusted.recommender.runs import SurveyAnswer, weigh
from hdpmf.untrusted.service.scheduler import PastRun, worth_a_run

DAY = 86_400.0


def ask(past, day, devices):
    return worth_a_run(past, now=day * DAY, opened=0.0, devices=devices, minimum=50)


def run_at(day, devices, weight, deviation=100.0):
    return PastRun(day * DAY, devices, weight, deviation)


def test_the_first_run_needs_enough_devices_and_nothing_else():
    few, enough = ask([], 1, 49), ask([], 1, 50)
    assert not few.worth
    assert "49 devices are enrolled and a sum needs 50" in few.reason
    assert enough.worth


def test_new_devices_are_expected_to_hold_what_others_did():
    past = [run_at(1000, 100, 5000.0)]  # the pace of a first run that took 1000 days hardly counts
    assert not ask(past, 1008, 148).worth
    verdict = ask(past, 1008, 152)
    assert verdict.worth
    assert verdict.expected == pytest.approx(52 * 50 + 0.5 * 5000 * 8 / 1000)
    assert verdict.needed == pytest.approx(2500)


def test_devices_of_before_are_expected_to_go_on_as_they_did():
    # 100 devices brought 5000 at first, and 700 more in the 70 days after, with no one new: 10 a
    # day.
    past = [run_at(10, 100, 5000.0), run_at(80, 100, 700.0)]
    assert ask(past, 180, 100).expected == pytest.approx(1000)
    # With 14 new devices in the second run, all of it is theirs: nothing is expected of the others.
    joined = [run_at(10, 100, 5000.0), run_at(80, 114, 700.0)]
    assert ask(joined, 5000, 114).expected == 0.0


def test_nobody_waits_for_ever():
    """A third more than was released waits, and no one joins any more: after 1.5 times the
    patience that is enough.
    """
    past = [run_at(10, 100, 5000.0), run_at(80, 200, 5000.0)]
    assert ask(past, 80 + 150, 267).needed == pytest.approx(5000)
    assert not ask(past, 80 + 1.45 * 182, 267).worth
    late = ask(past, 80 + 1.55 * 182, 267)
    assert late.worth
    assert late.needed == pytest.approx(5000 / 1.55)
    noisy = [run_at(10, 100, 50.0)]
    assert not ask(noisy, 10 + 1.9 * 182, 125).worth
    assert ask(noisy, 10 + 2.1 * 182, 125).worth


def test_after_one_run_nobody_knows_the_pace():
    past = [run_at(60, 100, 5000.0)]
    assert not ask(past, 119, 100).worth
    assert ask(past, 121, 100).worth


def test_runs_are_not_closer_than_the_pause():
    past = [run_at(60, 100, 5000.0)]
    assert not ask(past, 66.9, 1000).worth
    assert ask(past, 67.1, 1000).worth


def test_less_weight_than_noise_is_not_worth_a_run():
    past = [run_at(1000, 100, 5000.0, deviation=2000.0)]
    assert ask(past, 1008, 160).needed == pytest.approx(4000)
    assert not ask(past, 1008, 160).worth


@pytest.mark.parametrize("weight", [150.0, -400.0])
def test_where_all_is_noise_only_devices_count(weight):
    past = [run_at(60, 100, weight)]
    assert not ask(past, 240, 149).worth
    found = ask(past, 70, 150)
    assert found.worth
    assert found.expected is None


def test_a_run_by_what_it_released():
    n, noise = 500, SeededNoise(3)
    survey = Survey(
        design="A",
        coding="soft",
        epsilon=0.5,
        n_items=n,
        catalogue="c",
        contributors=100,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=1.0,
    )
    drawn = []
    for _ in range(400):
        weights = 20 * WEIGHT_UNITS + sum(
            noise.discrete_laplace(WEIGHT_SCALE * WEIGHT_UNITS / 0.5, n) for _ in (1, 2)
        )
        answer = SumContribution(scores=np.zeros(n, np.int64), weights=weights, total=0)
        drawn.append(PastRun.of(SurveyAnswer(survey, answer, 2.0), at=5.0, devices=7))
    found = np.array([run.weight for run in drawn])
    # Level 1e-4: a mean of 400 is within 4 deviations, their spread within 15 %.
    assert abs(found.mean() - 20 * n) < 4 * drawn[0].deviation / 20
    assert found.std() == pytest.approx(drawn[0].deviation, rel=0.15)


@pytest.mark.parametrize("growth", [0.5, 1.0, 2.0])
def test_noise_counts_a_bounded_number_of_times(growth):
    """(g + 2) / g, however many runs there are: the module says so."""
    total, runs = 1.0, [1.0]
    for _ in range(25):
        runs.append(growth * total)
        total *= 1 + growth
    shape = np.random.default_rng(0).lognormal(3, 1, 200)
    held = np.array(runs)[:, None] / total * shape * 1e6  # as good as without noise
    counted = weigh(held, np.ones(len(runs)), np.ones(held.shape))
    np.testing.assert_allclose(counted.noise**2, (growth + 2) / growth, rtol=1e-3)


PASTS = st.lists(
    st.tuples(st.floats(0, 1e3), st.integers(0, 10**6), st.floats(-1e4, 1e7), st.floats(0.1, 1e4)),
    max_size=6,
)


@given(PASTS, st.floats(0, 2e3), st.integers(0, 10**6))
def test_more_devices_never_make_a_run_less_worth_it(steps, wait, devices):
    day, past = 0.0, []
    for gap, *rest in steps:
        day += gap
        past.append(run_at(day, *rest))
    first, more = ask(past, day + wait, devices), ask(past, day + wait, devices + 1000)
    assert more.worth >= first.worth
    assert ask(past, day + wait + 1000, devices).worth >= first.worth  # nor does time
