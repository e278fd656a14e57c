import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import IntegerCoding
from hdpmf.errors import SecureSumError


@st.composite
def tables(draw):
    n = draw(st.integers(1, 40))
    wide = draw(st.booleans())
    bound = draw(st.integers(0, IntegerCoding.largest_bound(n, wide=wide)))
    numbers = st.integers(-bound, bound) | st.sampled_from([-bound, bound])
    return (
        bound,
        n,
        wide,
        draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=n)),
    )


@given(tables())
def test_sums_are_exact_up_to_the_bound(table):
    bound, n, wide, rows = table
    coding = IntegerCoding(bound, n, wide=wide)
    words = [coding.encode(np.array(row, np.int64)) for row in rows]
    assert all(len(row) == 3 for row in words)
    total = np.sum(words, axis=0, dtype=coding.word)
    assert coding.decode(total).tolist() == np.array(rows, object).sum(axis=0).tolist()


@pytest.mark.parametrize("wide", [False, True])
def test_the_words_of_a_sum_tell_nothing_but_the_sum(wide):
    """Two words per number would not do: how many numbers were negative shows in the sum of the
    upper ones.
    """
    coding = IntegerCoding(10**6, 3, wide=wide)
    tables = ([5, 7, -12], [0, 0, 0], [-(10**6), 10**6, 0])
    sums = {
        np.sum(
            [coding.encode(np.array([value])) for value in table], axis=0, dtype=coding.word
        ).tobytes()
        for table in tables
    }
    assert len(sums) == 1


def test_wide_words_carry_far_more():
    IntegerCoding(2**50, 6040, wide=True)
    with pytest.raises(SecureSumError, match="wide=True"):
        IntegerCoding(2**35, 6040)
    with pytest.raises(SecureSumError, match="fewer devices"):
        IntegerCoding(2**51, 6040, wide=True)


@pytest.mark.parametrize(
    "values",
    [np.array([11]), np.array([-11]), np.array([0.5]), np.array([[1]]), np.array([1], np.uint32)],
)
def test_what_cannot_be_summed_is_refused(values):
    with pytest.raises(SecureSumError) as refusal:
        IntegerCoding(10, 5).encode(values)
    assert "11" not in str(refusal.value)


def test_a_sum_that_is_none_is_refused():
    with pytest.raises(SecureSumError):
        IntegerCoding(10, 5).decode(np.zeros(3))
    with pytest.raises(SecureSumError):
        IntegerCoding(10, 5, wide=True).decode(np.zeros(3, np.uint32))
    with pytest.raises(SecureSumError):
        IntegerCoding(-1, 5)


@pytest.mark.parametrize("wide", [False, True])
def test_a_coding_has_participants_and_room_for_their_sum(wide):
    most = (1 << (63 if wide else 31)) - 1
    for bound, participants in ((0, (1 << 31) - 1), (most, 1), (most // 7, 7)):
        IntegerCoding(bound, participants, wide=wide)
    for bound, participants in ((0, 1 << 31), (0, 0), (-1, 7), (most + 1, 1), (most // 7 + 1, 7)):
        with pytest.raises(SecureSumError):
            IntegerCoding(bound, participants, wide=wide)
