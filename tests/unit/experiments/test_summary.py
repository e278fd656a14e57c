from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from hdpmf.lab.experiments.summary import Summary, paired_test


def test_summary_has_n_minus_one() -> None:
    values = [1.0, 2.0, 4.0]
    summary = Summary.of(values)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))


@pytest.mark.parametrize(
    ("values", "mean"), [([], math.nan), ([2.0], 2.0), ([1.0, math.inf], math.inf)]
)
def test_summary_of_too_little(values: list[float], mean: float) -> None:
    summary = Summary.of(values)
    assert summary.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(summary.std)


@pytest.mark.parametrize("seed", range(20))
def test_the_paired_test_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.normal(1.0, 0.1, 5)
    second = first + rng.normal(0.05, 0.08, 5)
    ours, theirs = paired_test(first.tolist(), second.tolist()), ttest_rel(first, second)
    assert ours.t_p == pytest.approx(theirs.pvalue)
    expected = (
        3
        if theirs.pvalue <= 0.01
        else 2
        if theirs.pvalue <= 0.05
        else 1
        if theirs.pvalue <= 0.1
        else 0
    )
    assert ours.stars == (expected if theirs.statistic < 0 else 0)


def test_every_number_of_stars_occurs() -> None:
    base = [1.0, 1.1, 0.9, 1.05, 0.95]
    spreads = {3: 0.001, 2: 0.05, 1: 0.075, 0: 0.3}
    for stars, spread in spreads.items():
        worse = [
            value + 0.06 + spread * wave
            for value, wave in zip(base, (1, -1, 0.5, -0.5, 0), strict=True)
        ]
        assert paired_test(base, worse).stars == stars, spread
        assert paired_test(worse, base).stars == 0


@pytest.mark.parametrize("second", [[1.0, 2.0], [math.inf, 1.0], [2.0, 3.0]])
def test_no_test_where_there_is_nothing_to_test(second: list[float]) -> None:
    found = paired_test([1.0, 2.0], second)
    assert math.isnan(found.t_p)
    assert found.stars == 0
