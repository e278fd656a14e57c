from __future__ import annotations

import numpy as np
import pytest
import torch

from hdpmf.private.kernels.gpu import triton_engine
from hdpmf.private.kernels.gpu.layout import pad
from hdpmf.private.kernels.gpu.solvers import BatchSolver
from hdpmf.private.kernels.gpu.streaming import Block, Stream, StreamedBatchSolver
from tests.unit.gpu.gpu_worlds import World, make_runs

pytestmark = pytest.mark.slow


def blocks_of(world, device, size, weighted):
    def blocks():
        for begin in range(0, world.n, size):
            part = slice(begin, begin + size)
            arrays = (
                world.users[part],
                world.items[part],
                world.target[part],
                world.coefficient[part],
            )
            users, items, target, coefficient = (
                torch.from_numpy(one.copy()).to(device) for one in arrays
            )
            yield Block(users, items, target, coefficient if weighted else None)

    return blocks


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_a_time", [10, 1000])
def test_streaming_gives_the_same_bits(device, monkeypatch, at_a_time, weighted):
    monkeypatch.setattr(
        "hdpmf.private.kernels.gpu.layout.lay_out.__defaults__", (8, 4 * 8 * 4)
    )  # short segments, small blocks
    monkeypatch.setattr("hdpmf.private.kernels.gpu.layout.segments.__defaults__", (8, True))
    monkeypatch.setattr(
        "hdpmf.private.kernels.gpu.layout.partners_per_block.__defaults__", (4 * 8 * 4,)
    )
    world = World()
    results = []
    for streamed in (False, True):
        if streamed:
            stream = Stream(
                blocks_of(world, device, 7, weighted), world.n_users, world.n_items, device
            )
            solver = StreamedBatchSolver(
                stream, world.n_factors, at_a_time=at_a_time, engine=triton_engine
            )
        else:
            solver = BatchSolver(
                world.table(device, weighted), world.n_factors, engine=triton_engine
            )
        U, V = (pad(torch.from_numpy(x)[:, None]).to(device) for x in (world.U, world.V))
        runs = make_runs(device, seeds=(3,), scales=(1.0,))
        for epoch in (1, 2):
            solver.epoch(U, V, runs, torch.tensor([0.05], device=device), epoch, "item")
        results.append((U.cpu().numpy(), V.cpu().numpy(), solver.raters.cpu().numpy()))
    for in_memory, streamed in zip(*results, strict=True):
        assert np.array_equal(in_memory, streamed)


def test_the_plain_engine_streams_too():
    world = World()
    cpu = torch.device("cpu")
    stream = Stream(blocks_of(world, cpu, 9, True), world.n_users, world.n_items, cpu)
    solver = StreamedBatchSolver(stream, world.n_factors, at_a_time=12)
    plain = BatchSolver(world.table("cpu", True), world.n_factors)
    results = []
    for one in (solver, plain):
        U, V = (pad(torch.from_numpy(x)[:, None]) for x in (world.U, world.V))
        one.epoch(U, V, make_runs("cpu"), torch.tensor([0.05]), 1)
        results.append(V)
    assert torch.allclose(*results, atol=1e-6)
