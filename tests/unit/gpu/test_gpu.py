"""What only a real GPU can show; ``benchmarks/gpu.py`` runs these where there is one."""

from __future__ import annotations

import pytest
import torch

from hdpmf.private.kernels.gpu.layout import Table
from hdpmf.private.kernels.gpu.solvers import GpuRun, GpuTraining
from tests.unit.gpu import torch_engine
from tests.unit.gpu.gpu_worlds import relative

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="there is no GPU"),
]

N_USERS, N_ITEMS, N, K = 20_000, 3_000, 1_000_000, 10


@pytest.fixture(scope="module")
def table():
    generator = torch.Generator().manual_seed(0)
    keys = torch.unique((torch.rand(N, generator=generator) ** 2 * (N_USERS * N_ITEMS)).long())
    users, items = (keys // N_ITEMS).int(), (keys * 7919 % N_ITEMS).int()
    # As HDPMF has them: ratings times weights.
    target = torch.randint(1, 6, keys.shape, generator=generator) * (
        0.2 + 0.6 * torch.rand(keys.shape, generator=generator)
    )
    return Table(users.cuda(), items.cuda(), target.float().cuda(), N_USERS, N_ITEMS)


def first():
    generator = torch.Generator().manual_seed(1)
    return [0.1 * torch.randn(n, K, generator=generator) for n in (N_USERS, N_ITEMS)]


@pytest.mark.parametrize("solver", ["batch", "sequential"])
def test_same_seed_same_bits(table, solver):
    """At a size at which programs really run in another order each time."""
    results = []
    for _ in range(2):
        run = GpuRun(solver, K, (0.01, 0.01), 0.01, 5, "item", 1.0)
        training = GpuTraining(table, run, *first())
        training.finish()
        results.append((training.U.clone(), training.V.clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert bool(torch.isfinite(results[0][1]).all())


def test_twenty_epochs_of_a_million_ratings_are_close_to_float64(table):
    rate, reg = 0.01, 0.01
    training = GpuTraining(table, GpuRun("batch", K, (rate,) * 20, reg, 1), *first())
    training.finish()
    U, V = (one.double().cuda() for one in first())
    who, what, target = table.users.long(), table.items.long(), table.target.double()
    steps = [
        torch.rsqrt(torch.bincount(x, minlength=n).clamp(min=1).double())[:, None]
        for x, n in ((who, N_USERS), (what, N_ITEMS))
    ]
    for _ in range(20):
        residual = (U[who] * V[what]).sum(1) - target
        V = V - rate * steps[1] * 2 * (
            torch.zeros_like(V).index_add_(0, what, residual[:, None] * U[who]) + reg * V
        )
        residual = (U[who] * V[what]).sum(1) - target
        U = U - rate * steps[0] * 2 * (
            torch.zeros_like(U).index_add_(0, who, residual[:, None] * V[what]) + reg * U
        )
        U = torch_engine.in_unit_ball(U)
    assert relative(training.U[:, :K].cpu(), U.cpu()) < 1e-4
    assert relative(training.V[:, :K].cpu(), V.cpu()) < 1e-4


def test_estimators_find_the_gpu():
    pytest.importorskip("msgspec")
    from hdpmf import HDPMF, synthetic_world

    world = synthetic_world(200, 100, 5_000, rng=0)
    cpu, gpu = (HDPMF(epochs=20, epsilon=1e12, rng=1, on=one).fit(world) for one in ("cpu", "gpu"))
    assert relative(gpu.catalogue_.factors, cpu.catalogue_.factors) < 1e-4
