from __future__ import annotations

import numpy as np
import pytest

from hdpmf.private.kernels.gpu.training import GpuRun, GpuTraining, Recipe
from tests.unit.gpu.gpu_worlds import World

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("solver", ["batch", "sequential", "joint"])
def test_company_changes_nothing(engine, device, solver):
    """A run is the same alone and beside others."""
    world = World()
    noise = "none" if solver == "joint" else "item"
    table, recipe = world.table(device), Recipe(solver, world.n_factors, noise)
    cells = [GpuRun((rate, rate / 5), reg, 3, 0.5) for rate, reg in ((0.05, 0.01), (0.01, 0.1))]
    together = GpuTraining(table, recipe, cells, world.U, world.V, engine)
    assert list(together.epochs()) == [1, 2]
    for run, cell in enumerate(cells):
        alone = GpuTraining(table, recipe, [cell], world.U, world.V, engine)
        alone.finish()
        assert np.array_equal(alone.factors(), together.factors(run))
        assert np.array_equal(alone.vectors(), together.vectors(run))
    assert not np.allclose(together.factors(0), together.factors(1))


def test_noise_is_drawn_anew_or_once(engine, device):
    world = World()
    table = world.table(device)
    table.target.zero_()  # where targets and user vectors are 0, nothing but noise moves V
    rated = np.flatnonzero(np.bincount(world.items, minlength=world.n_items))
    for fresh in (True, False):
        recipe = Recipe("batch", world.n_factors, "item", fresh_noise=fresh)
        cell = GpuRun((1.0, 1.0), 0.0, 3, 0.5)
        training = GpuTraining(
            table, recipe, [cell], np.zeros_like(world.U), np.zeros_like(world.V), engine
        )
        first, second = (training.factors() for _ in training.epochs())
        assert (first[rated] != 0).all()
        assert np.allclose(second - first, first, atol=1e-6) is not fresh
