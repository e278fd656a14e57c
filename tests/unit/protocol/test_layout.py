"""What one side puts into a secure sum is what the other takes out of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol import Plan, SumContribution, Survey, layout, messages
from hdpmf.errors import ProtocolError

PLAN = Plan(
    n_items=4,
    n_factors=3,
    epochs=2,
    learning_rate=0.1,
    reg=0.0,
    mechanism="stretch",
    epsilon=1.0,
    scale_low=1.0,
    scale_high=5.0,
    scale_steps=True,
    fresh_noise=True,
)
SURVEY = Survey(
    design="A",
    coding="soft",
    epsilon=1.0,
    n_items=4,
    catalogue="c",
    contributors=3,
    scale_low=1.0,
    scale_high=5.0,
    scale_step=1.0,
)


def add(words: list[np.ndarray]) -> np.ndarray:
    return np.sum(words, axis=0, dtype=words[0].dtype)


def test_counts_go_through():
    tables = np.random.default_rng(0).integers(0, 9, (5, 4))
    total = add([layout.counts_layout(PLAN, 5).encode(one) for one in tables])
    assert total.dtype.itemsize == 4
    assert np.array_equal(layout.counts_from_sum(PLAN, 5, total).counts, tables.sum(axis=0))


def test_gradients_go_through_item_after_item():
    gradients = np.random.default_rng(1).normal(0, 30, (5, 4, 3)).astype(np.float32)
    words = [layout.gradients_layout(PLAN, 5).encode(messages.to_grid(one)) for one in gradients]
    found = layout.gradients_from_sum(PLAN, 7, 5, add(words))
    assert found.number == 7
    assert np.abs(found.sums - gradients.sum(axis=0)).max() <= 5 * messages.GRADIENT_STEP / 2 + 1e-5


@pytest.mark.slow
@given(st.lists(st.integers(-(2**55), 2**55), min_size=9, max_size=9))
def test_a_survey_goes_through(numbers):
    one = SumContribution(
        scores=np.array(numbers[:4]), weights=np.array(numbers[4:8]), total=numbers[8]
    )
    words = layout.survey_layout(SURVEY, 3).encode(layout.survey_numbers(one))
    found = layout.contribution_from_sum(SURVEY, 3, add([words, words]))
    assert found.total == 2 * one.total
    assert np.array_equal(found.scores, 2 * one.scores)
    assert np.array_equal(found.weights, 2 * one.weights)


@given(st.lists(st.integers(-(2**55), 2**55), min_size=13, max_size=13))
def test_a_survey_by_labels_goes_through(numbers):
    """Four items, of which two are heads."""
    one = SumContribution(
        scores=np.array(numbers[:6]), weights=np.array(numbers[6:12]), total=numbers[12]
    )
    words = layout.survey_layout(SURVEY, 3, heads=2).encode(layout.survey_numbers(one))
    found = layout.contribution_from_sum(SURVEY, 3, add([words, words]), heads=2)
    assert found.total == 2 * one.total
    assert np.array_equal(found.scores, 2 * one.scores)
    assert np.array_equal(found.weights, 2 * one.weights)
    with pytest.raises(ProtocolError):
        layout.survey_layout(SURVEY, 3).encode(layout.survey_numbers(one))
    first = layout.popularity_layout(SURVEY, 3).encode(one.weights[:4])
    assert np.array_equal(
        layout.popularity_from_sum(SURVEY, 3, add([first])).weights, one.weights[:4]
    )


def test_what_does_not_fit_is_refused_without_being_quoted():
    words = layout.gradients_layout(PLAN, 5)
    with pytest.raises(ProtocolError):
        words.encode(np.zeros(11, np.int64))
    with pytest.raises(ProtocolError):
        words.decode(np.zeros(11, np.uint64))


def test_what_is_too_large_is_clipped_or_reduced_and_never_refused():
    """A refusal would tell whose numbers are large."""
    assert messages.to_grid(np.array([np.nan, np.inf, -1e30], np.float32)).tolist() == [
        0,
        2**61,
        -(2**61),
    ]
    words = layout.counts_layout(PLAN, 2**20).encode(np.array([2**32 + 4321, -1, 0, 0]))
    assert words.tolist() == [4321, 2**32 - 1, 0, 0]
