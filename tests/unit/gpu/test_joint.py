from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from hdpmf.private.kernels.gpu import torch_engine
from hdpmf.private.kernels.gpu.layout import pad
from hdpmf.private.kernels.gpu.solvers import JointSolver
from tests.unit.gpu import kernel_reference as reference
from tests.unit.gpu.gpu_worlds import World, make_runs, relative

RATE, REG, SEED, OTHER = 0.05, 0.02, 9, 10


def serial(world, epochs, keep=None, seed=SEED):
    """The serial loop in float64, in the order of the random words."""
    keep = np.ones(world.n, bool) if keep is None else keep
    users, items, target = world.users[keep], world.items[keep], world.target[keep]
    U, V = world.U.astype(np.float64), world.V.astype(np.float64)
    for epoch in range(1, epochs + 1):
        words = torch_engine.random_words(
            seed, torch.from_numpy(users), torch.from_numpy(items), epoch
        )
        order = torch.argsort(words, stable=True).numpy()
        U, V = reference.joint_steps(users[order], items[order], target[order], U, V, RATE, REG)
    return U, V


def test_levels_do_what_the_serial_loop_does(engine, device):
    world = World()
    solver = JointSolver(world.table(device), [SEED], 3, engine)
    U, V = (pad(torch.from_numpy(x)[:, None]).to(device) for x in (world.U, world.V))
    for _ in range(3):
        solver.epoch(U, V, make_runs(device, regs=(REG,)), torch.tensor([RATE], device=device))
    expected = serial(world, 3)
    assert relative(U[:, 0, : world.n_factors].cpu(), expected[0]) < 1e-5
    assert relative(V[:, 0, : world.n_factors].cpu(), expected[1]) < 1e-5


def test_views_are_trained_beside_each_other(engine, device):
    world = World()
    members = np.random.default_rng(2).integers(0, 4, world.n)
    solver = JointSolver(world.table(device, members=members, n_views=2), [SEED, OTHER], 2, engine)
    U, V = (
        pad(torch.from_numpy(x)[:, None].repeat(1, 3, 1)).to(device) for x in (world.U, world.V)
    )
    runs = make_runs(device, (1, 0, 0), (REG, REG, 0.3), (SEED,) * 3, (0.0,) * 3)
    for _ in range(2):
        solver.epoch(U, V, runs, torch.tensor([RATE, RATE, 0.01], device=device))
    for run, view in ((0, 1), (1, 0)):
        expected = serial(world, 2, (members >> view & 1).astype(bool), (SEED, OTHER)[view])
        assert relative(U[:, run, : world.n_factors].cpu(), expected[0]) < 1e-5
        assert relative(V[:, run, : world.n_factors].cpu(), expected[1]) < 1e-5


def test_a_level_has_each_user_and_each_item_at_most_once(engine, device):
    world = World(n_users=20, n_items=10, n=120)
    solver = JointSolver(world.table(device), [SEED], 1, engine)
    levels = next(solver._levels)
    bounds = levels.start.tolist()
    assert bounds[0] == 0
    assert bounds[-1] == world.n
    for begin, end in pairwise(bounds):
        assert end > begin
        assert len(set(levels.users[begin:end].tolist())) == end - begin
        assert len(set(levels.items[begin:end].tolist())) == end - begin
