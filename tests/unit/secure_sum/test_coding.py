import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum import IntegerCoding


@st.composite
def tables(draw):
    n = draw(st.integers(1, 40))
    wide = draw(st.booleans())
    coding = IntegerCoding(0, n, wide=wide)
    most = ((2**31 - 1) // n - 1 << coding.low_bits) if wide else (2**31 - 1) // n
    bound = draw(st.integers(0, most))
    numbers = st.integers(-bound, bound) | st.sampled_from([-bound, bound])
    return bound, n, wide, draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=n))


@given(tables())
def test_sums_are_exact_up_to_the_bound(table):
    bound, n, wide, rows = table
    coding = IntegerCoding(bound, n, wide=wide)
    words = [coding.encode(np.array(row, np.int64)) for row in rows]
    assert all(len(one) == coding.length(3) for one in words)
    total = np.sum(words, axis=0, dtype=np.uint32)
    assert coding.decode(total).tolist() == np.array(rows, object).sum(axis=0).tolist()


def test_two_words_carry_far_more_than_one():
    assert IntegerCoding(2**35, 6040, wide=True).low_bits == 19
    with pytest.raises(SecureSumError, match="wide=True"):
        IntegerCoding(2**35, 6040)
    with pytest.raises(SecureSumError, match="fewer devices"):
        IntegerCoding(2**50, 6040, wide=True)


@pytest.mark.parametrize(
    "values", [np.array([11]), np.array([-11]), np.array([0.5]), np.array([[1]]), np.array([1], np.uint32)]
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
