from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from hdpmf.private.kernels.gpu import torch_engine, triton_engine
from hdpmf.private.kernels.gpu import torch_engine as philox
from hdpmf.private.kernels.gpu.layout import pad, shuffled
from hdpmf.private.kernels.gpu.solvers import SequentialSolver
from tests.unit.gpu import kernel_reference as reference
from tests.unit.gpu.gpu_worlds import World, make_runs, relative

RATE, REG, SEED = 0.05, 0.02, 9


def order_of(world, rows, epoch, side):
    pairs = torch.from_numpy(world.users), torch.from_numpy(world.items)
    keys = philox.random_words(SEED, *pairs, 2 * epoch + side)
    return shuffled(torch.from_numpy(rows), keys).numpy()


def reference_epoch(world, U, V, epoch, weighted, keep=None, noise=None):
    """The published procedure in float64, in the solver's order; ``noise`` is the part of each
    step of each item.
    """
    keep = np.ones(world.n, bool) if keep is None else keep
    U, V = U.astype(np.float64), V.astype(np.float64)
    order = order_of(world, world.items, epoch, 0)
    for item in range(world.n_items):
        own = [r for r in order if world.items[r] == item]
        steps = np.array([keep[r] for r in own], bool)
        own = np.array(own, int)[steps] if len(own) else np.array([], int)
        coefficient = world.coefficient[own] if weighted else None
        shares = None if noise is None else noise[item][: len(own)]
        V[item] = reference.sequential_row(
            V[item], U[world.users[own]], world.target[own], coefficient, RATE, REG, shares, False
        )
    order = order_of(world, world.users, epoch, 1)
    for user in range(world.n_users):
        own = np.array([r for r in order if world.users[r] == user and keep[r]], int)
        U[user] = reference.sequential_row(
            U[user], V[world.items[own]], world.target[own], None, RATE, REG, None, True
        )
    return U, V


def fresh(world, n_runs, device):
    return (
        pad(torch.from_numpy(x)[:, None].repeat(1, n_runs, 1)).to(device)
        for x in (world.U, world.V)
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_two_epochs_meet_the_reference(engine, device, weighted):
    world = World()
    solver = SequentialSolver(world.table(device, weighted), world.n_factors, SEED, engine)
    U, V = fresh(world, 1, device)
    expected = world.U, world.V
    for epoch in (1, 2):
        solver.epoch(
            U, V, make_runs(device, regs=(REG,)), torch.tensor([RATE], device=device), epoch
        )
        expected = reference_epoch(world, *expected, epoch, weighted)
    assert relative(U[:, 0, : world.n_factors].cpu(), expected[0]) < 1e-5
    assert relative(V[:, 0, : world.n_factors].cpu(), expected[1]) < 1e-5


@pytest.mark.parametrize("noise", ["item", "shared"])
def test_noise_is_each_rating_s_share(engine, device, noise):
    world, scale = World(), 3.0
    solver = SequentialSolver(world.table(device), world.n_factors, SEED, engine)
    runs = make_runs(device, regs=(REG,), seeds=(21,), scales=(scale,))
    U, V = fresh(world, 1, device)
    solver.epoch(U, V, runs, torch.tensor([RATE], device=device), 4, noise)
    # The same noise, put together by hand: b sqrt(2 h) c / sqrt(n) for every step of every item.
    seeds, rows = torch.tensor([21]), torch.arange(world.n_items)[:, None]
    h_rows = torch.full_like(rows, philox.SHARED_ROW) if noise == "shared" else rows
    h = philox.exponentials(seeds, h_rows, 8, 4, philox.EXPONENTIALS)[
        :, 0, : world.n_factors
    ].double()
    raters = np.maximum(np.bincount(world.items, minlength=world.n_items), 1)
    c = [
        philox.step_normals(seeds, rows, 8, torch.full_like(rows, visit), 4)[
            :, 0, : world.n_factors
        ].double()
        for visit in range(world.n)
    ]
    spread = (scale * torch.sqrt(2 * h)).numpy() / np.sqrt(raters)[:, None]
    shares = np.stack([spread * one.numpy() for one in c], axis=1)
    expected = reference_epoch(world, world.U, world.V, 4, False, noise=shares)
    assert relative(V[:, 0, : world.n_factors].cpu(), expected[1]) < 1e-4
    assert relative(U[:, 0, : world.n_factors].cpu(), expected[0]) < 1e-4


def test_shares_of_an_item_add_up_to_laplace_noise():
    """With zero targets, factors and regularisation an item moves by its noise alone."""
    world = World(n_users=12, n_items=2, n=12)
    n_runs, scale = 3000, 2.0
    world.target[:] = 0.0
    solver = SequentialSolver(world.table("cpu"), world.n_factors, SEED, torch_engine)
    runs = make_runs("cpu", (0,) * n_runs, (0.0,) * n_runs, tuple(range(n_runs)), (scale,) * n_runs)
    U, V = (torch.zeros(size, n_runs, 8) for size in (12, 2))
    solver.epoch(U, V, runs, torch.full((n_runs,), RATE), 1, "item")
    drawn = V[0, :, : world.n_factors].flatten().numpy() / RATE
    assert stats.kstest(drawn, stats.laplace(scale=scale).cdf).pvalue > 1e-3


def test_views_skip_what_is_not_theirs(engine, device):
    world = World()
    members = np.random.default_rng(2).integers(0, 4, world.n)
    solver = SequentialSolver(
        world.table(device, members=members, n_views=2), world.n_factors, SEED, engine
    )
    runs = make_runs(device, (1, 0), (REG, REG), (SEED, SEED), (0.0, 0.0))
    U, V = fresh(world, 2, device)
    solver.epoch(U, V, runs, torch.tensor([RATE, RATE], device=device), 1)
    for run, view in enumerate((1, 0)):
        expected = reference_epoch(
            world, world.U, world.V, 1, False, keep=(members >> view & 1).astype(bool)
        )
        assert relative(V[:, run, : world.n_factors].cpu(), expected[1]) < 1e-5
        assert relative(U[:, run, : world.n_factors].cpu(), expected[0]) < 1e-5


def test_engines_agree_and_repeat(device):
    world = World()
    results = []
    for engine, where in ((torch_engine, "cpu"), (triton_engine, device), (triton_engine, device)):
        solver = SequentialSolver(world.table(where), world.n_factors, SEED, engine)
        U, V = fresh(world, 1, where)
        solver.epoch(
            U,
            V,
            make_runs(where, seeds=(5,), scales=(1.0,)),
            torch.tensor([RATE], device=where),
            1,
            "item",
        )
        results.append(V.cpu())
    assert relative(results[1], results[0]) < 1e-5
    assert torch.equal(results[1], results[2])


def test_noise_that_is_drawn_once_stays_with_its_rating(device):
    """The item order must not change, or the noise would move to other ratings."""
    world = World()
    moves = []
    for epoch in (1, 2):
        solver = SequentialSolver(world.table(device), world.n_factors, SEED)
        U, V = fresh(world, 1, device)
        runs = make_runs(device, scales=(1.0,))
        solver.epoch(U, V, runs, torch.tensor([RATE], device=device), epoch, "item", fresh=False)
        moves.append(V.cpu())
    assert torch.equal(*moves)


def test_orders_are_uniform():
    rows, items = torch.zeros(3, dtype=torch.int32), torch.arange(3, dtype=torch.int32)
    seen = [
        tuple(shuffled(rows, philox.random_words(SEED, rows, items, epoch)).tolist())
        for epoch in range(600)
    ]
    _, counts = np.unique(seen, axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3
