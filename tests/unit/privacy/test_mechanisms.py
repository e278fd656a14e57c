import numpy as np
import pytest

from hdpmf.common.privacy import NoPrivacy, Sample, Stretch, Uniform, Weight
from hdpmf.common.privacy.mechanisms import Budgets
from hdpmf.errors import PrivacyError

VALUES = np.array([1.0, 3.0, 5.0, 4.0], np.float32)
WEIGHTS = np.array([0.1, 0.5, 1.0, 0.4])
ALWAYS = np.zeros(4)


def test_budgets_add_up_over_shards():
    whole = Budgets.of(WEIGHTS, 2.0)
    assert whole == Budgets(4, 4.0, 0.2, 2.0)
    assert Budgets.of(WEIGHTS[:1], 2.0) + Budgets.of(WEIGHTS[1:], 2.0) == whole
    assert Budgets.of(WEIGHTS[:0], 2.0) + whole == whole


def test_noise_budgets():
    budgets = Budgets.of(WEIGHTS, 2.0)
    assert NoPrivacy().noise_budget(2.0, None) is None
    assert Uniform().noise_budget(2.0, budgets) == pytest.approx(0.2)
    assert Sample().noise_budget(2.0, budgets) == pytest.approx(1.0)
    assert Sample("min").noise_budget(2.0, budgets) == pytest.approx(0.2)
    assert Sample("max").noise_budget(2.0, budgets) == pytest.approx(2.0)
    assert Sample(0.7).noise_budget(2.0, None) == 0.7
    assert Stretch().noise_budget(2.0, None) == Weight().noise_budget(2.0, None) == 2.0
    for mechanism in (Uniform(), Sample()):
        assert mechanism.needs_budgets
        with pytest.raises(PrivacyError, match="none were reported"):
            mechanism.noise_budget(1.0, None)


@pytest.mark.parametrize("bad", ["median", 0.0, -1.0, float("nan")])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(PrivacyError, match="threshold"):
        Sample(bad)


def test_how_ratings_enter():
    for mechanism in (NoPrivacy(), Uniform()):
        entered = mechanism.enter(VALUES, WEIGHTS, 1.0, 0.1, ALWAYS)
        assert entered.kept is None
        assert entered.coefficient is None
        assert entered.target.tolist() == VALUES.tolist()
    assert Stretch().enter(VALUES, WEIGHTS, 1.0, 1.0, ALWAYS).target == pytest.approx(
        VALUES * WEIGHTS
    )
    weighted = Weight().enter(VALUES, WEIGHTS, 1.0, 1.0, ALWAYS)
    assert weighted.target.tolist() == VALUES.tolist()
    assert weighted.coefficient.tolist() == WEIGHTS.tolist()


def test_sampling_probabilities():
    # 200,000 draws for each rating: the observed rate is within 5 standard deviations of the
    # formula.
    rng = np.random.default_rng(0)
    n, threshold, epsilon = 200_000, 0.6, 1.0
    weights = np.repeat(WEIGHTS, n)
    kept = (
        Sample(threshold)
        .enter(np.ones(len(weights)), weights, epsilon, threshold, rng.random(len(weights)))
        .kept
    )
    rates = np.bincount(kept // n, minlength=4) / n
    expected = np.where(
        threshold <= WEIGHTS, 1.0, np.expm1(WEIGHTS * epsilon) / np.expm1(threshold)
    )
    assert np.abs(rates - expected).max() < 5 * 0.5 / np.sqrt(n)
    assert rates[2] == 1.0


def test_sampling_keeps_everything_at_huge_budgets():
    # e^1000 overflows; the probability does not.
    probability = Sample(1000.0).keep_probability(np.array([1000.0, 999.0, 2000.0]), 1000.0)
    assert probability == pytest.approx([1.0, np.exp(-1), 1.0])


def test_predictions_come_back_to_scale():
    scores = np.array([0.4, 2.0])
    weights = np.array([0.1, 0.5])
    assert Stretch().bring_back(scores, weights) == pytest.approx([4.0, 4.0])
    assert Stretch(rescale=False).bring_back(scores, weights).tolist() == scores.tolist()
    assert Weight().bring_back(scores, weights).tolist() == scores.tolist()
