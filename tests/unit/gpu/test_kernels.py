"""The kernels against float64 (``kernel_reference``) and, where there is noise, plain PyTorch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from hdpmf.private.kernels.gpu.layout import lay_out, partners_per_block, shuffled
from hdpmf.private.kernels.gpu.training import GpuRun, GpuTraining, Recipe
from tests.unit.gpu import kernel_reference as reference
from tests.unit.gpu import torch_engine as plain
from tests.unit.gpu.conftest import use_plain_engine
from tests.unit.gpu.gpu_worlds import World, relative

RATE, REG, SEED = 0.05, 0.02, 9
CELL = GpuRun((RATE, RATE), REG, SEED)
LAYOUT = "hdpmf.private.kernels.gpu.layout"


def train(world, device, recipe, *cells, **table):
    training = GpuTraining(
        world.table(device, **table), replace(recipe, n_factors=world.n_factors), cells or [CELL],
        world.U, world.V,
    )  # fmt: skip
    training.finish()
    return training


def agree(training, expected, run=0, within=1e-5):
    assert relative(training.vectors(run), expected[0]) < within
    assert relative(training.factors(run), expected[1]) < within


def batch(world, epochs, weighted=False, unit_ball=True, keep=None):
    """Algorithm 1 without noise in float64."""
    keep = np.ones(world.n, bool) if keep is None else keep
    users, items = world.users[keep], world.items[keep]
    target = world.target[keep].astype(np.float64)
    coefficient = world.coefficient[keep].astype(np.float64) if weighted else None
    U, V = world.U.astype(np.float64), world.V.astype(np.float64)
    counts = np.bincount(items, minlength=world.n_items)
    item_steps = np.where(counts > 0, 1 / np.sqrt(np.maximum(counts, 1)), 0.0)[:, None]
    user_steps = 1 / np.sqrt(np.maximum(np.bincount(users, minlength=world.n_users), 1))
    for _ in range(epochs):
        gradient = reference.item_gradients(users, items, target, coefficient, U, V)
        V = V - RATE * item_steps * (gradient + 2 * REG * V)
        U = reference.step_users(users, items, target, U, V, RATE * user_steps, REG, unit_ball)
    return U, V


def sequential(world, epochs, weighted=False, keep=None):
    """The published procedure without noise in float64, in the solver's order."""
    keep = np.ones(world.n, bool) if keep is None else keep
    U, V = world.U.astype(np.float64), world.V.astype(np.float64)
    pairs = torch.from_numpy(world.users), torch.from_numpy(world.items)
    for epoch in range(1, epochs + 1):
        for side, (rows, own, other, partners) in enumerate(
            ((world.items, V, U, world.users), (world.users, U, V, world.items))
        ):
            keys = plain.random_words(SEED, *pairs, 2 * epoch + side)
            order = shuffled(torch.from_numpy(rows), keys).numpy()
            for row in range(len(own)):
                mine = np.array([r for r in order if rows[r] == row and keep[r]], int)
                coefficient = world.coefficient[mine] if weighted and side == 0 else None
                own[row] = reference.sequential_row(
                    own[row], other[partners[mine]], world.target[mine], coefficient, RATE, REG,
                    None, side == 1,
                )  # fmt: skip
    return U, V


@pytest.mark.parametrize(("weighted", "unit_ball"), [(False, True), (True, False)])
def test_batch_meets_the_reference(device, weighted, unit_ball):
    world, cell = World(), replace(CELL, rates=(RATE,) * 20)
    done = train(world, device, Recipe("batch", 0, unit_ball=unit_ball), cell, weighted=weighted)
    agree(done, batch(world, 20, weighted, unit_ball))
    assert np.array_equal(done.factors()[-1], world.V[-1])  # nobody rated it, so it stays


@pytest.mark.parametrize("weighted", [False, True])
def test_sequential_meets_the_reference(device, weighted):
    world = World()
    done = train(world, device, Recipe("sequential", 0), weighted=weighted)
    agree(done, sequential(world, 2, weighted))


@pytest.mark.parametrize(("solver", "expected"), [("batch", batch), ("sequential", sequential)])
def test_views_beside_each_other_are_their_ratings_alone(device, solver, expected):
    world = World()
    members = np.random.default_rng(4).integers(0, 4, world.n)
    cells = [replace(CELL, view=1), CELL, replace(CELL, reg=0.5)]
    done = train(world, device, Recipe(solver, 0), *cells, members=members, n_views=2)
    for run, view in ((0, 1), (1, 0)):
        kept = (members >> view & 1).astype(bool)
        agree(done, expected(world, 2, keep=kept), run)
        counts = np.bincount(world.items[kept], minlength=world.n_items)
        assert np.array_equal(done.raters[view].cpu().numpy(), counts)
    assert relative(done.factors(2), done.factors(1)) > 1e-3


def test_popular_items_are_summed_in_parts(monkeypatch, device):
    short_segments, small_blocks = 8, 4 * 8 * 4
    monkeypatch.setattr(f"{LAYOUT}.lay_out.__defaults__", (short_segments, small_blocks))
    world = World()
    agree(train(world, device, Recipe("batch", 0)), batch(world, 2), within=1e-6)


@pytest.mark.parametrize("solver", ["batch", "sequential"])
@pytest.mark.parametrize("noise", ["item", "shared"])
def test_kernels_draw_the_noise_of_the_plain_engine(device, monkeypatch, solver, noise):
    world, recipe = World(), Recipe(solver, 0, noise)
    cell = replace(CELL, noise_scale=4.0)
    ours, again = (train(world, device, recipe, cell) for _ in range(2))
    assert np.array_equal(ours.factors(), again.factors())
    use_plain_engine(monkeypatch)
    theirs, other, without = (
        train(world, torch.device("cpu"), recipe, one).factors()
        for one in (cell, replace(cell, seed=SEED + 1), CELL)
    )
    assert relative(ours.factors(), theirs) < 1e-5
    assert relative(ours.factors(), without) > 0.1
    assert not np.isclose(theirs[:-1], other[:-1]).any()


@pytest.mark.parametrize("solver", ["batch", "sequential"])
def test_company_changes_nothing(device, solver):
    """A run is the same alone and beside others."""
    world, recipe = World(), Recipe(solver, 0, "item")
    cells = [GpuRun((rate, rate / 5), reg, 3, 0.5) for rate, reg in ((0.05, 0.01), (0.01, 0.1))]
    together = train(world, device, recipe, *cells)
    for run, cell in enumerate(cells):
        alone = train(world, device, recipe, cell)
        assert np.array_equal(alone.factors(), together.factors(run))
        assert np.array_equal(alone.vectors(), together.vectors(run))
    assert not np.allclose(together.factors(0), together.factors(1))


@pytest.mark.parametrize("solver", ["batch", "sequential"])
@pytest.mark.parametrize("fresh", [True, False])
def test_noise_is_drawn_anew_or_once(device, solver, fresh):
    """Drawn once it stays with its rating, so the order of an item's ratings must not change."""
    world = World()
    world.target[:] = 0.0  # with zero vectors nothing but noise moves V
    world.U[:] = world.V[:] = 0.0
    recipe = Recipe(solver, world.n_factors, "item", fresh_noise=fresh)
    training = GpuTraining(
        world.table(device), recipe, [GpuRun((1.0, 1.0), 0.0, 3, 0.5)], world.U, world.V
    )
    first, second = (training.factors() for _ in training.epochs())
    rated = np.flatnonzero(np.bincount(world.items, minlength=world.n_items))
    assert (first[rated] != 0).all()
    assert np.allclose(second - first, first, atol=1e-6) is not fresh


def test_shares_of_an_item_add_up_to_laplace_noise(monkeypatch):
    """With zero targets, factors and regularisation an item moves by its noise alone."""
    use_plain_engine(monkeypatch)
    world = World(n_users=12, n_items=2, n=12)
    world.target[:] = 0.0
    world.U[:] = world.V[:] = 0.0
    cells = [GpuRun((RATE,), 0.0, seed, 2.0) for seed in range(3000)]
    done = train(world, torch.device("cpu"), Recipe("sequential", 0, "item"), *cells)
    drawn = done.V[0, :, : world.n_factors].flatten().numpy() / RATE
    assert stats.kstest(drawn, stats.laplace(scale=2.0).cdf).pvalue > 1e-3


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
    side, _ = lay_out(rows, partners, 6, 100, [], 64, cache_bytes=25 * 64)
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
