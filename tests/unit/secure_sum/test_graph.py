from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing import enough_neighbours, risks, table_row

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.graph import NeighbourGraph, bitmap, bitmap_size, read_bitmap
from hdpmf.secure_sum.plan import TWO_THIRDS


@given(st.integers(3, 60), st.integers(1, 30), st.binary(min_size=32, max_size=32))
def test_neighbourhood_is_mutual_and_of_the_same_size(n, half, seed):
    participants = np.arange(0, 2 * n, 2)
    graph = NeighbourGraph(participants, 2 * half, seed)
    neighbours = {device: graph.of(device) for device in participants.tolist()}
    for device, peers in neighbours.items():
        assert len(peers) == graph.degree == min(2 * half, n - 1)
        assert list(peers) == sorted(set(peers) - {device})
        assert all(device in neighbours[peer] for peer in peers)


def test_both_sides_draw_the_same_graph_and_another_seed_another():
    people = np.arange(50)
    rings = [NeighbourGraph(people, 8, bytes([seed]) * 32).ring for seed in (1, 1, 2)]
    assert rings[0] == rings[1] != rings[2]
    assert sorted(rings[0]) == list(range(50))


def test_witnesses_are_others_drawn_at_random():
    people = np.arange(0, 400, 2)
    graph = NeighbourGraph(people, 20, b"s" * 32)
    counts = dict.fromkeys(people.tolist(), 0)
    for device in people.tolist():
        chosen = graph.witnesses(device)
        assert chosen == graph.witnesses(device)
        assert len(set(chosen) - {device}) == 20
        for witness in chosen:
            counts[witness] += 1
    # Binomial(199, 20/199): mean 20, deviation 4.2; with a fixed seed nothing is beyond six deviations.
    assert all(0 < count < 46 for count in counts.values())
    assert NeighbourGraph(people[:5], 20, bytes(32)).witnesses(4) == (0, 2, 6, 8)


def test_survivors_with_more_than_half_of_their_neighbours_hang_together():
    """The claim behind the threshold, on every set of lost devices of a small ring."""
    graph = NeighbourGraph(np.arange(12), 4, bytes(32))
    neighbours = {device: set(graph.of(device)) for device in range(12)}
    checked = 0
    for bits in range(1, 1 << 12):
        alive = {device for device in range(12) if bits >> device & 1}
        if all(len(neighbours[device] & alive) > 2 for device in alive):
            checked += 1
            seen, new = set(), {min(alive)}
            while new:
                seen |= new
                new = {peer for device in new for peer in neighbours[device] & alive} - seen
            assert seen == alive
    assert checked > 10


@given(st.sets(st.integers(0, 99)))
def test_bitmaps(devices):
    data = bitmap(sorted(devices), 100)
    assert len(data) == bitmap_size(100) == 13
    assert set(read_bitmap(data).tolist()) == devices


def test_risks_against_a_drawing():
    """Union bounds must lie above what random graphs do; 20,000 devices drawn, so within a few percent."""
    n, degree, threshold, bad = 100, 20, 12, 20
    bound = risks(n, degree, threshold, colluding=bad, dropping=bad)
    rng = np.random.default_rng(0)
    unmask = split = 0
    for _ in range(200):
        ring = np.zeros(n, int)
        ring[rng.choice(n, bad, replace=False)] = 1
        window = np.array([np.roll(ring, -1 - shift) for shift in range(degree // 2)]).sum(axis=0)
        both = window + np.roll(window, degree // 2 + 1)
        unmask += (both >= 2 * threshold - degree).mean()
        split += (window >= threshold - degree // 2).mean()
    assert bound.unmask == pytest.approx(min(1, unmask / 200 * n), rel=0.1)
    assert bound.split == pytest.approx(min(1, split / 200 * n), rel=0.1)


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
