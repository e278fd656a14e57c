"""The kernels against float64 (``kernel_reference``) and, where there is noise, plain PyTorch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from hdpmf.private.kernels.gpu.layout import Table, lay_out, partners_per_block, shuffled
from hdpmf.private.kernels.gpu.solvers import GpuRun, GpuTraining
from tests.unit.gpu import kernel_reference as reference
from tests.unit.gpu import torch_engine as plain
from tests.unit.gpu.conftest import use_plain_engine
from tests.unit.gpu.gpu_worlds import World, relative

RATE, REG, SEED = 0.05, 0.02, 9
RUN = GpuRun("batch", World().n_factors, (RATE, RATE), REG, SEED)
LAYOUT = "hdpmf.private.kernels.gpu.layout"


def train(world, device, weighted=False, **changes):
    training = GpuTraining(world.table(device, weighted), replace(RUN, **changes), world.U, world.V)
    training.finish()
    return training


def agree(training, expected, within=1e-5):
    assert relative(training.vectors(), expected[0]) < within
    assert relative(training.factors(), expected[1]) < within


def batch(world, epochs, weighted=False, unit_ball=True):
    """Algorithm 1 without noise in float64."""
    users, items = world.users, world.items
    target = world.target.astype(np.float64)
    coefficient = world.coefficient.astype(np.float64) if weighted else None
    U, V = world.U.astype(np.float64), world.V.astype(np.float64)
    counts = np.bincount(items, minlength=world.n_items)
    item_steps = np.where(counts > 0, 1 / np.sqrt(np.maximum(counts, 1)), 0.0)[:, None]
    user_steps = 1 / np.sqrt(np.maximum(np.bincount(users, minlength=world.n_users), 1))
    for _ in range(epochs):
        gradient = reference.item_gradients(users, items, target, coefficient, U, V)
        V = V - RATE * item_steps * (gradient + 2 * REG * V)
        U = reference.step_users(users, items, target, U, V, RATE * user_steps, REG, unit_ball)
    return U, V


def sequential(world, epochs, weighted=False):
    """The published procedure without noise in float64, in the solver's order."""
    U, V = world.U.astype(np.float64), world.V.astype(np.float64)
    pairs = torch.from_numpy(world.users), torch.from_numpy(world.items)
    for epoch in range(1, epochs + 1):
        for side, (rows, own, other, partners) in enumerate(
            ((world.items, V, U, world.users), (world.users, U, V, world.items))
        ):
            keys = plain.random_words(SEED, *pairs, 2 * epoch + side)
            order = shuffled(torch.from_numpy(rows), keys).numpy()
            for row in range(len(own)):
                mine = np.array([r for r in order if rows[r] == row], int)
                coefficient = world.coefficient[mine] if weighted and side == 0 else None
                own[row] = reference.sequential_row(
                    own[row], other[partners[mine]], world.target[mine], coefficient, RATE, REG,
                    None, side == 1,
                )  # fmt: skip
    return U, V


@pytest.mark.parametrize(("weighted", "unit_ball"), [(False, True), (True, False)])
def test_batch_meets_the_reference(device, weighted, unit_ball):
    world = World()
    done = train(world, device, weighted, rates=(RATE,) * 20, unit_ball=unit_ball)
    agree(done, batch(world, 20, weighted, unit_ball))
    assert np.array_equal(done.factors()[-1], world.V[-1])  # nobody rated it, so it stays


@pytest.mark.parametrize("weighted", [False, True])
def test_sequential_meets_the_reference(device, weighted):
    world = World()
    done = train(world, device, weighted, solver="sequential")
    agree(done, sequential(world, 2, weighted))


def test_popular_items_are_summed_in_parts(monkeypatch, device):
    short_segments, small_blocks = 8, 4 * 8 * 4
    monkeypatch.setattr(f"{LAYOUT}.lay_out.__defaults__", (short_segments, small_blocks))
    world = World()
    agree(train(world, device), batch(world, 2), within=1e-6)


@pytest.mark.parametrize("solver", ["batch", "sequential"])
@pytest.mark.parametrize("noise", ["item", "shared"])
def test_kernels_draw_the_noise_of_the_plain_engine(device, monkeypatch, solver, noise):
    world, noisy = World(), {"solver": solver, "noise": noise, "noise_scale": 4.0}
    ours, again = (train(world, device, **noisy) for _ in range(2))
    assert np.array_equal(ours.factors(), again.factors())
    use_plain_engine(monkeypatch)
    theirs, other, without = (
        train(world, torch.device("cpu"), **one).factors()
        for one in (noisy, noisy | {"seed": SEED + 1}, noisy | {"noise_scale": 0.0})
    )
    assert relative(ours.factors(), theirs) < 1e-5
    assert relative(ours.factors(), without) > 0.1
    assert not np.isclose(theirs[:-1], other[:-1]).any()


@pytest.mark.parametrize("solver", ["batch", "sequential"])
@pytest.mark.parametrize("fresh", [True, False])
def test_noise_is_drawn_anew_or_once(device, solver, fresh):
    """Drawn once it stays with its rating, so the order of an item's ratings must not change."""
    world = World()
    world.target[:] = 0.0  # with zero vectors nothing but noise moves V
    world.U[:] = world.V[:] = 0.0
    run = GpuRun(solver, world.n_factors, (1.0, 1.0), 0.0, 3, "item", 0.5, fresh_noise=fresh)
    training = GpuTraining(world.table(device), run, world.U, world.V)
    first, second = (training.factors() for _ in training.epochs())
    rated = np.flatnonzero(np.bincount(world.items, minlength=world.n_items))
    assert (first[rated] != 0).all()
    assert np.allclose(second - first, first, atol=1e-6) is not fresh


def test_shares_of_an_item_add_up_to_laplace_noise(monkeypatch):
    """With zero targets, factors and regularisation an item moves by its noise alone."""
    use_plain_engine(monkeypatch)
    n_items = 1200
    users, items = torch.arange(12).repeat(n_items).int(), torch.arange(n_items).int()
    table = Table(users, items.repeat_interleave(12), torch.zeros(12 * n_items), 12, n_items)
    run = GpuRun("sequential", 5, (RATE,), 0.0, SEED, "item", 2.0)
    done = GpuTraining(table, run, torch.zeros(12, 5), torch.zeros(n_items, 5))
    done.finish()
    drawn = done.factors().flatten() / RATE
    assert stats.kstest(drawn, stats.laplace(scale=2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("cache_bytes", [1 << 20, 10 * 64])
def test_segments_cover_every_rating_once(cache_bytes):
    generator = torch.Generator().manual_seed(1)
    n, n_rows, n_partners = 500, 7, 40
    rows = (torch.rand(n, generator=generator) ** 2 * (n_rows - 1)).int()
    partners = torch.randint(0, n_partners, (n,), generator=generator).int()
    tag = torch.arange(n, dtype=torch.float32)
    table = Table(rows, partners, tag, n_rows, n_partners)
    side = lay_out(table, False, 64, segment=32, cache_bytes=cache_bytes)
    places = side.target.long()
    assert torch.equal(places.sort().values, torch.arange(n))
    assert torch.equal(side.partner, partners[places])
    assert int(side.length.max()) <= 32
    assert int(side.length.min()) >= 1
    assert int(side.length.sum()) == n
    # Every row lists its own segments, each once, in the order of their places.
    for row in range(n_rows):
        own = side.parts[side.first[row] : side.first[row + 1]].long()
        assert (side.row[own] == row).all()
        assert (torch.diff(side.start[own]) > 0).all()
    assert sorted(side.parts.tolist()) == list(range(side.n_segments))


def test_programs_that_run_together_gather_from_one_block():
    rows, partners = torch.arange(6).repeat_interleave(100).int(), torch.arange(100).repeat(6).int()
    table = Table(rows, partners, torch.zeros(600), 6, 100)
    side = lay_out(table, False, 64, cache_bytes=25 * 64)
    blocks = [int(side.partner[start]) // 25 for start in side.start.tolist()]
    assert blocks == sorted(blocks)
    assert set(blocks) == {0, 1, 2, 3}
    assert partners_per_block(1200, 64, 64_000) == 1200  # a little over is not worth a second round
    assert partners_per_block(4000, 64, 64_000) == 1000


def test_orders_are_uniform():
    rows, items = torch.zeros(3, dtype=torch.int32), torch.arange(3, dtype=torch.int32)
    seen = [
        tuple(shuffled(rows, plain.random_words(SEED, rows, items, epoch)).tolist())
        for epoch in range(600)
    ]
    _, counts = np.unique(seen, axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3
