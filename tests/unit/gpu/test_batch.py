from __future__ import annotations

import numpy as np
import pytest
import torch

from hdpmf.private.kernels.gpu import torch_engine, triton_engine
from hdpmf.private.kernels.gpu.layout import pad
from hdpmf.private.kernels.gpu.solvers import BatchSolver
from tests.unit.gpu import kernel_reference as reference
from tests.unit.gpu.gpu_worlds import World, make_runs, relative

RATE, REG = 0.05, 0.02


def reference_epochs(world, epochs, weighted=False, unit_ball=True, keep=None):
    """Algorithm 1 without noise in float64."""
    keep = np.ones(world.n, bool) if keep is None else keep
    users, items, target = (
        world.users[keep],
        world.items[keep],
        world.target[keep].astype(np.float64),
    )
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


def train(
    world, engine, device, epochs, weighted=False, unit_ball=True, noise="none", scale=0.0, seed=1
):
    solver = BatchSolver(world.table(device, weighted), world.n_factors, engine=engine)
    runs = make_runs(device, regs=(REG,), seeds=(seed,), scales=(scale,))
    U, V = (pad(torch.from_numpy(first)[:, None]).to(device) for first in (world.U, world.V))
    for epoch in range(1, epochs + 1):
        solver.epoch(U, V, runs, torch.tensor([RATE], device=device), epoch, noise, unit_ball)
    return U[:, 0, : world.n_factors].cpu().numpy(), V[:, 0, : world.n_factors].cpu().numpy()


@pytest.mark.slow
@pytest.mark.parametrize(("weighted", "unit_ball"), [(False, True), (True, False)])
def test_twenty_epochs_meet_the_float64_reference(engine, device, weighted, unit_ball):
    world = World()
    U, V = train(world, engine, device, 20, weighted, unit_ball)
    expected_U, expected_V = reference_epochs(world, 20, weighted, unit_ball)
    assert relative(U, expected_U) < 1e-5
    assert relative(V, expected_V) < 1e-5
    assert np.array_equal(V[-1], world.V[-1])  # nobody rated it, so it stays


@pytest.mark.slow
def test_twenty_epochs_of_many_factors_and_ratings_meet_the_reference(device):
    engine = torch_engine if device.type == "cpu" else triton_engine
    world = World(n_users=300, n_items=40, n=6000, n_factors=20)
    U, V = train(world, engine, device, 20)
    expected_U, expected_V = reference_epochs(world, 20)
    assert relative(U, expected_U) < 1e-4
    assert relative(V, expected_V) < 1e-4


def test_popular_items_are_summed_in_parts(monkeypatch, device):
    monkeypatch.setattr(
        "hdpmf.private.kernels.gpu.layout.lay_out.__defaults__", (8, 4 * 8 * 4)
    )  # short segments, small blocks
    world = World()
    U, V = train(world, triton_engine, device, 2)
    assert relative(V, reference_epochs(world, 2)[1]) < 1e-6
    assert relative(U, reference_epochs(world, 2)[0]) < 1e-6


@pytest.mark.parametrize("noise", ["item", "shared"])
def test_engines_draw_the_same_noise(device, noise):
    world = World()
    ours = train(world, triton_engine, device, 2, noise=noise, scale=4.0)
    theirs = train(world, torch_engine, torch.device("cpu"), 2, noise=noise, scale=4.0)
    assert relative(ours[1], theirs[1]) < 1e-5
    without = train(world, torch_engine, torch.device("cpu"), 2)
    assert relative(ours[1], without[1]) > 0.1


def test_same_seed_same_bits_other_seed_other_noise(engine, device):
    world = World()
    first, again, other = (
        train(world, engine, device, 2, noise="item", scale=1.0, seed=s)[1] for s in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.isclose(first[:-1], other[:-1]).any()


def test_runs_beside_each_other_are_the_runs_alone(engine, device):
    """Views over shared ratings give what training on each view's ratings alone gives."""
    world = World()
    rng = np.random.default_rng(4)
    members = rng.integers(0, 4, world.n)
    solver = BatchSolver(
        world.table(device, members=members, n_views=2), world.n_factors, engine=engine
    )
    runs = make_runs(device, (0, 1, 1), (REG, REG, 0.5), (1, 2, 3), (0.0, 0.0, 0.0))
    U, V = (
        pad(torch.from_numpy(x)[:, None].repeat(1, 3, 1)).to(device) for x in (world.U, world.V)
    )
    rates = torch.tensor([RATE, RATE, 0.01], device=device)
    for epoch in (1, 2):
        solver.epoch(U, V, runs, rates, epoch)
    for view in (0, 1):
        kept = (members >> view & 1).astype(bool)
        expected = reference_epochs(world, 2, keep=kept)
        assert relative(U[:, view, : world.n_factors].cpu(), expected[0]) < 1e-6
        assert relative(V[:, view, : world.n_factors].cpu(), expected[1]) < 1e-6
        counts = np.bincount(world.items[kept], minlength=world.n_items)
        assert np.array_equal(solver.raters[view].cpu().numpy(), counts)
    assert relative(V[:, 2].cpu(), V[:, 1].cpu()) > 1e-3
