"""What the recommender sees of one device is uniformly distributed, whatever the device holds."""

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.aggregation.masks import SecureSumClient
from hdpmf.common.aggregation.masks.messages import Inbox
from hdpmf.common.aggregation.masks.plan import pair_info
from hdpmf.common.aggregation.masks.primitives import add_mask

pytestmark = pytest.mark.usefixtures("fixed_secrets")

LENGTH = 50_000
LEVEL = 1e-4
"""Of each statistic below, with the operating system's entropy replaced by a fixed one."""

INPUTS = {
    "zeros": np.zeros(LENGTH, np.uint32),
    "ones": np.full(LENGTH, 2**32 - 1, np.uint32),
    "small": np.random.default_rng(0).integers(0, 5, LENGTH, dtype=np.uint32),
    "ramp": np.arange(LENGTH, dtype=np.uint32),
}


def masked(make_session, vector):
    return np.frombuffer(masked_in(make_session(n=5, length=LENGTH), vector), "<u4")


def masked_in(session, vector):
    device = session.clients[0]
    session.clients[0] = SecureSumClient(device._identity, session.roster, vector, device._policy)
    session.until(Inbox)
    return session.clients[0].answer(session.outgoing[0]).words


@pytest.mark.parametrize("name", INPUTS)
def test_a_masked_vector_is_uniform(make_session, name):
    seen = masked(make_session, INPUTS[name])
    for byte in range(4):
        counts = np.bincount((seen >> (8 * byte)) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > LEVEL
    # Neighbouring words do not go together.
    pairs = np.bincount((seen[:-1:2] >> 28) * 16 + (seen[1::2] >> 28), minlength=256)
    assert stats.chisquare(pairs).pvalue > LEVEL


def test_a_masked_wide_vector_is_uniform(make_session):
    session = make_session(n=5, length=LENGTH, wide=True)
    seen = np.frombuffer(masked_in(session, np.arange(LENGTH, dtype=np.uint64)), "<u8")
    for byte in range(8):
        counts = np.bincount((seen >> np.uint64(8 * byte)).astype(np.int64) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > LEVEL


def test_the_same_vector_never_looks_the_same_and_says_nothing_about_another(make_session):
    first, again, other = (
        masked(make_session, INPUTS[name]) for name in ("zeros", "zeros", "ramp")
    )
    # Differences of two masked vectors are as uniform as each: no mask is used twice.
    for left, right in ((first, again), (first, other)):
        counts = np.bincount((left - right) >> 24, minlength=256)
        assert stats.chisquare(counts).pvalue > LEVEL


def test_with_every_neighbour_colluding_the_vector_is_still_uniform(make_session):
    """All neighbours take off what they share with device 0: its own mask remains."""
    session = make_session(n=5, length=LENGTH)
    left = np.frombuffer(masked_in(session, INPUTS["small"]), "<u4").copy()
    for peer in range(1, 5):
        info = pair_info(b"pair mask", 0, peer)
        key = session.clients[peer]._mask_key.key(
            session.server._keys[0].mask, session.plan.digest, info
        )
        add_mask(left, key, subtract=True)
    assert stats.chisquare(np.bincount(left >> 24, minlength=256)).pvalue > LEVEL


def test_the_statistic_sees_a_vector_that_is_not_masked():
    for vector in INPUTS.values():
        assert stats.chisquare(np.bincount(vector >> 24, minlength=256)).pvalue < LEVEL
