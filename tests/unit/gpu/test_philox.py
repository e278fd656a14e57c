from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from hdpmf.private.kernels.gpu import triton_engine
from hdpmf.private.kernels.gpu.solvers import GpuRun
from tests.unit.gpu import torch_engine as philox


def one_run(scale, noise, n_factors):
    return GpuRun("batch", n_factors, (0.1,), 0.0, 11, noise, scale)


# From the known-answer tests of the generator's authors (Random123).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter, key, expected):
    seed = key[0] | key[1] << 32
    seed = seed - 2**64 if seed >= 2**63 else seed
    c0, c1 = torch.tensor(counter[0]), torch.tensor(counter[1])
    assert [
        int(word) for word in philox.words(torch.tensor(seed), c0, c1, counter[2], counter[3])
    ] == expected


def test_engines_draw_the_same_words(device):
    users, items = torch.arange(1001, dtype=torch.int32) % 77, torch.arange(1001, dtype=torch.int32)
    expected = philox.random_words(2**40 + 9, users, items, 7)
    assert torch.equal(
        triton_engine.random_words(2**40 + 9, users.to(device), items.to(device), 7).cpu(), expected
    )
    assert expected.min() >= 0
    assert expected.max() < 2**32
    assert len(torch.unique(expected)) == 1001


@pytest.mark.parametrize("noise", ["item", "shared"])
def test_noise_is_laplace(noise):
    run = one_run(3.0, noise, 5)
    if noise == "item":
        drawn = philox.draw_noise(run, 4000, 8, epoch=2)[:, :5]
    else:  # one h for all rows: what is Laplace is a coordinate over epochs
        drawn = torch.stack([philox.draw_noise(run, 3, 8, epoch)[1, :5] for epoch in range(400)])
    assert stats.kstest(drawn.flatten().numpy(), stats.laplace(scale=3.0).cdf).pvalue > 1e-3


def test_shared_h_is_shared():
    shared = philox.draw_noise(one_run(1.0, "shared", 4), 3000, 4, epoch=1)
    # Given h, a coordinate is normal over rows, with the same spread everywhere.
    assert stats.kstest((shared[:, 2] / shared[:, 2].std()).numpy(), "norm").pvalue > 1e-3


def test_draws_differ_by_seed_row_epoch_and_purpose():
    def draw(seed=1, row=0, epoch=1, purpose=philox.NORMALS):
        return philox.normals(
            torch.tensor([seed]), torch.tensor([[row]]), 8, epoch, purpose
        ).flatten()

    first = draw()
    assert torch.equal(first, draw())
    for other in (draw(seed=2**33), draw(row=1), draw(epoch=2), draw(purpose=philox.STEPS)):
        assert not torch.isclose(first, other).any()


def test_normals_are_normal_and_uncorrelated():
    drawn = philox.normals(torch.tensor([3]), torch.arange(5000)[:, None], 8, 1, philox.NORMALS)[
        :, 0
    ].numpy()
    assert stats.kstest(drawn.flatten(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(drawn.T) - np.eye(8)).max() < 0.06
