import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks.plan import (
    TWO_THIRDS,
    _log_at_least,
    is_safe,
    risks,
    safe_sizes,
)
from hdpmf.common.aggregation.masks.roster import bitmap, bitmap_size, draw_holders, read_bitmap
from hdpmf.errors import SecureSumError
from tests.unit.masks.sizing import enough_neighbours, table_row


@given(st.integers(3, 60), st.integers(1, 40), st.binary(min_size=32, max_size=32))
def test_holders_are_others_of_the_cohort(n, count, draw):
    participants = np.arange(0, 2 * n, 2)
    for device in participants.tolist():
        holders = draw_holders(participants, device, count, draw)
        assert holders == draw_holders(participants, device, count, draw)
        assert list(holders) == sorted(set(holders) - {device})
        assert set(holders) <= set(participants.tolist())
        assert len(holders) == min(count, n - 1)


def test_everyone_is_drawn_as_often():
    people = np.arange(0, 400, 2)
    counts = dict.fromkeys(people.tolist(), 0)
    for device in people.tolist():
        for holder in draw_holders(people, device, 20, bytes([device // 2]) * 32):
            counts[holder] += 1
    # Binomial(199, 20/199): mean 20, deviation 4.2; with fixed draws nothing is beyond six
    # deviations.
    assert all(0 < count < 46 for count in counts.values())


@given(st.sets(st.integers(0, 99)))
def test_bitmaps(devices):
    data = bitmap(sorted(devices), 100)
    assert len(data) == bitmap_size(100) == 13
    assert set(read_bitmap(data).tolist()) == devices


def test_risks_against_a_drawing():
    """Union bounds must lie above what random draws do; 20,000 devices drawn, so within a few
    percent.
    """
    n, degree, threshold, bad = 100, 20, 12, 20
    bound = risks(n, degree, threshold, colluding=bad, dropping=bad)
    rng = np.random.default_rng(0)
    draws = np.array([rng.choice(n - 1, degree, replace=False) < bad for _ in range(20_000)]).sum(
        axis=1
    )
    assert bound.unmask == pytest.approx(
        min(1, (draws >= 2 * threshold - degree).mean() * n), rel=0.1
    )
    assert bound.abort == pytest.approx(
        min(1, (draws >= degree - threshold + 1).mean() * n), rel=0.1
    )


def test_the_bound_on_parts_against_all_parts_of_a_small_cohort():
    """Every part of 8 devices with 3 holders each is looked at, in 400 drawings: the bound is
    above what happens.
    """
    n, degree, threshold = 8, 3, 2
    happened = 0
    rng = np.random.default_rng(1)
    for _ in range(400):
        holders = [
            set(draw_holders(np.arange(n), device, degree, rng.bytes(32))) for device in range(n)
        ]
        parts = ({d for d in range(n) if bits >> d & 1} for bits in range(1, 1 << n))
        happened += any(
            len(part) <= n // 2 and all(len(holders[device] & part) >= threshold for device in part)
            for part in parts
        )
    bound = risks(n, degree, threshold, colluding=0, dropping=0).split
    assert 0 < happened / 400 <= bound


def test_where_everyone_holds_shares_the_bounds_are_certain():
    safe, broken = (risks(17, 16, 11, colluding=bad, dropping=0) for bad in (5, 6))
    assert safe.unmask == safe.split == 0.0
    assert broken.unmask == 1.0


@pytest.mark.parametrize("n", [20, 66, 440, 1000, 6040])
def test_sizes_that_devices_agree_to(n):
    degree, threshold = safe_sizes(n, n)
    assert is_safe(n, n, degree, threshold, -(-n // 20))


@pytest.mark.parametrize("fraction", [TWO_THIRDS, Fraction(3, 4)])
@pytest.mark.parametrize("n", [100, 1_000])
def test_the_table_of_the_page_is_right(n, fraction):
    page = Path(__file__).parents[3] / "docs" / "secure-sums.md"
    assert table_row(n, fraction) in page.read_text(encoding="utf-8")


def test_enough_neighbours_is_the_smallest_that_is():
    degree = enough_neighbours(1000, colluding=0.01, dropping=0.05)
    for candidate, enough in ((degree, True), (degree - 2, False)):
        found = risks(1000, candidate, 2 * candidate // 3 + 1, colluding=10, dropping=50)
        assert (found.unmask + found.split <= 2**-40 and found.abort <= 1e-3) is enough
    with pytest.raises(SecureSumError, match="no number of neighbours"):
        enough_neighbours(1000, colluding=0.4, dropping=0.05)
    with pytest.raises(SecureSumError, match="threshold above one half"):
        risks(100, 10, 5, colluding=1, dropping=1)


@pytest.mark.parametrize(("population", "drawn"), [(10, 3), (6, 6), (7, 1)])
def test_chances_of_drawn_holders_are_counted(population, drawn):
    """Also that all of them are marked, or none is left that is not."""
    for marked, count in itertools.product(range(population + 1), range(drawn + 1)):
        ways = sum(
            math.comb(marked, hits) * math.comb(population - marked, drawn - hits)
            for hits in range(count, drawn + 1)
        )
        chance = np.exp(_log_at_least(count, population, np.array([marked]), drawn))[0]
        assert chance == pytest.approx(ways / math.comb(population, drawn), abs=1e-12)
