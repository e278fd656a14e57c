"""Anything at all as a message: there is always a reply, never an exception, and the ledger
tells the truth.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks import propose
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Grouping, Opening, Reply, Round, decode
from tests.world import envelope

from .federated import (
    TABLE,
    Run,
    agent_for,
    enrol,
    facts_for,
    make_store,
    part,
    plan_for,
    survey_for,
    terms_for,
)

pytestmark = pytest.mark.slow


def _agents():
    made = [agent_for(make_store(ratings=part([one])), SeededNoise(one)) for one in range(3)]
    return made, enrol(made)


AGENTS, ROSTER = _agents()
TARGET = AGENTS[0]
_F = np.zeros((30, 4), np.float32)
VALID = [
    envelope(TABLE),
    envelope(terms_for()),
    envelope(plan_for()),
    envelope(Opening(noise_budget=0.5)),
    envelope(terms_for("hdp-sum", "sums", users=3, minimum=3), run=b"2" * 16),
    envelope(survey_for(contributors=3), run=b"2" * 16),
    envelope(facts_for(), 1, run=b"3" * 16),
    envelope(
        encode_sum(propose(ROSTER, 61, neighbours=2, minimum=3, wide=True)),
        0,
        run=b"2" * 16,
        part="sum",
    ),
    envelope(
        terms_for("hdp-sum", "sums", users=3, minimum=3, rounds=2, labels=True), run=b"4" * 16
    ),
    envelope(survey_for(contributors=3, labels=True), run=b"4" * 16),
    envelope(Grouping(scores=np.arange(30), heads=np.arange(9)), 1, run=b"4" * 16),
    envelope(Round(number=1, item_factors=_F, raters=np.full(30, 3), h=_F + 1), 1),
    envelope(Round(number=5, item_factors=_F, raters=np.full(30, 3), h=None), 5),
]


def answered(data):
    """A reply of the protocol; what was paid stays within the budget."""
    reply = decode(TARGET.answer(data))
    assert isinstance(reply, Reply)
    return reply


def within_budget():
    store = TARGET.store
    left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert left.min() >= -1e-9


@pytest.mark.slow
@given(st.binary(max_size=400))
def test_random_bytes(data):
    assert answered(data).part == "refusal"
    within_budget()


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(VALID),
            st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3),
            st.floats(0.05, 1),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_letters_that_were_changed_on_the_way(sequence):
    """Honest messages in any order, some with flipped bytes or cut short."""
    for data, flips, kept in sequence:
        spoiled = bytearray(data)
        for place, value in flips:
            spoiled[int(place * len(spoiled))] = value
        answered(bytes(spoiled[: int(len(spoiled) * kept)] if flips else spoiled))
    within_budget()


@settings(max_examples=60, deadline=None)
@given(st.permutations(list(range(len(VALID)))))
def test_honest_letters_in_any_order(order):
    for place in order:
        answered(VALID[place])
    within_budget()


@pytest.mark.parametrize("field", ["item_factors", "h"])
@settings(max_examples=60, deadline=None)
@given(value=st.floats(width=32), number=st.integers(1, 6))
def test_rounds_with_any_number_in_them(field, value, number):
    store = make_store(ratings=part([3]))
    agent = agent_for(store, SeededNoise(1))
    run = Run([agent])
    run.open()
    data = envelope(Round(number=number, item_factors=_F, raters=np.full(30, 3), h=_F + 1), number)
    bad = data.replace(
        (_F if field == "item_factors" else _F + 1).tobytes(),
        np.full((30, 4), value, "<f4").tobytes(),
        1,
    )
    assert isinstance(decode(agent.answer(bad)), Reply)
