from __future__ import annotations

import pytest
import torch

from hdpmf.private.kernels.gpu.layout import lay_out, partners_per_block


@pytest.mark.parametrize("cache_bytes", [1 << 20, 10 * 64])
def test_segments_cover_every_rating_once(cache_bytes):
    generator = torch.Generator().manual_seed(1)
    n, n_rows, n_partners = 500, 7, 40
    rows = (torch.rand(n, generator=generator) ** 2 * (n_rows - 1)).int()
    partners = torch.randint(0, n_partners, (n,), generator=generator).int()
    tag = torch.arange(n, dtype=torch.float32)[None]
    side, (tags,) = lay_out(
        rows, partners, n_rows, n_partners, [tag], 64, segment=32, cache_bytes=cache_bytes
    )
    places = tags[0].long()
    assert torch.equal(places.sort().values, torch.arange(n))
    assert torch.equal(side.partner, partners[places])
    assert torch.equal(side.row_of_ratings(), rows[places].long())
    assert int(side.length.max()) <= 32
    assert int(side.length.min()) >= 1
    assert int(side.length.sum()) == n
    # Every row lists its own segments, each once, in the order of their places; a row without
    # ratings has none.
    for row in range(n_rows):
        own = side.parts[side.first[row] : side.first[row + 1]].long()
        assert (side.row[own] == row).all()
        assert (torch.diff(side.start[own]) > 0).all()
    assert sorted(side.parts.tolist()) == list(range(side.n_segments))
    assert side.first[n_rows - 1] == side.first[n_rows]


def test_programs_that_run_together_gather_from_one_block():
    rows, partners = torch.arange(6).repeat_interleave(100).int(), torch.arange(100).repeat(6).int()
    side, _ = lay_out(rows, partners, 6, 100, [], 64, cache_bytes=25 * 64)
    blocks = [int(side.partner[start]) // 25 for start in side.start.tolist()]
    assert blocks == sorted(blocks)
    assert set(blocks) == {0, 1, 2, 3}


def test_blocks_only_where_factors_do_not_fit():
    assert partners_per_block(1000, 64, 64_000) == 1000
    assert partners_per_block(1200, 64, 64_000) == 1200  # a little over is not worth a second round
    assert partners_per_block(4000, 64, 64_000) == 1000
