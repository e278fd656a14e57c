import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.private.kernels.batch import group


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=60), st.booleans())
def test_grouping_keeps_every_rating_in_its_row_and_in_order(pairs, weighted):
    rows = np.array([p[0] for p in pairs], np.int32)
    partner = np.array([p[1] for p in pairs], np.int32)
    target = np.arange(len(pairs), dtype=np.float64)
    grouped = group(rows, partner, target, target * 2 if weighted else None, 8)
    assert grouped.counts.tolist() == np.bincount(rows, minlength=8).tolist()
    for row in range(8):
        where = slice(grouped.start[row], grouped.start[row + 1])
        positions = np.flatnonzero(rows == row)
        assert grouped.target[where].tolist() == positions.tolist()
        assert grouped.partner[where].tolist() == partner[positions].tolist()
        if weighted:
            assert grouped.coefficient[where].tolist() == (2 * positions).tolist()
    assert (grouped.coefficient is not None) == weighted
