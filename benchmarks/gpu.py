"""Tests and benchmark of the GPU backend, on a machine with a GPU: ``python benchmarks/gpu.py``.

Needs PyTorch, Triton and NumPy; what needs more (pytest, a Parquet reader, hdpmf's dependencies and
ML-1M) is left out where that is missing, with a line that says so. Prints Markdown, as it stands in
``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from hdpmf.private.kernels.gpu.layout import Table  # noqa: E402
from hdpmf.private.kernels.gpu.solvers import GpuRun, GpuTraining  # noqa: E402

GPU = torch.device("cuda")
EPOCHS = 100
SIZES = {"100M": (100_000_000, 480_000, 17_770), "400M": (400_000_000, 4_000_000, 200_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        default=["tests", "batch", "plain", "accuracy", "parquet", "table3"],
    )
    parts = parser.parse_args().parts
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
        f"{time.strftime('%d %B %Y')}\n",
        flush=True,
    )
    for part in parts:
        {
            "tests": tests,
            "batch": batch,
            "plain": plain,
            "accuracy": accuracy,
            "parquet": parquet,
            "table3": table3,
        }[part]()
        gc.collect()
        torch.cuda.empty_cache()


def tests() -> None:
    """The unit tests of the GPU, on the GPU."""
    if subprocess.run([sys.executable, "-c", "import pytest, scipy"], check=False).returncode:
        print("tests: left out (pytest and scipy are needed)\n", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "pytest.ini"
        config.write_text("[pytest]\nmarkers =\n    gpu: needs a GPU\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            str(config),
            "--rootdir",
            folder,
            "--import-mode=importlib",
            "--confcutdir",
            str(ROOT / "tests" / "unit" / "gpu"),
            str(ROOT / "tests" / "unit" / "gpu"),
        ]
        paths = os.pathsep.join(
            [
                str(ROOT / "src"),
                str(ROOT / "tests" / "unit" / "gpu"),
                os.environ.get("PYTHONPATH", ""),
            ]
        )
        environment = {**os.environ, "HDPMF_TEST_DEVICE": "cuda", "PYTHONPATH": paths}
        ended = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True
        )
    print("tests:", *ended.stdout.strip().splitlines()[-12:], sep="\n    ", end="\n\n", flush=True)


def batch() -> None:
    """Epochs of HDPMF, and how far they are from what the memory allows."""
    bandwidth = copy_bandwidth()
    print(f"Copy on the device: {bandwidth / 1e12:.2f} TB/s, read and written.\n")
    print(
        "| ratings | K | 100 epochs, s | ms per epoch | bytes per epoch | floor, ms | "
        "times the floor | sorting, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, (n, n_users, n_items) in SIZES.items():
        users, items, values = world(n, n_users, n_items)
        table = Table(users, items, values, n_users, n_items)
        for K in (10, 32, 64):
            begin = clock()
            training = hdpmf(table, K)
            sorting = clock() - begin
            warm = hdpmf(table, K, epochs=2)
            warm.finish()
            del warm
            begin = clock()
            training.finish()
            seconds = clock() - begin
            moved = must_move(n, n_users, n_items, K)
            floor = moved / bandwidth
            print(
                f"| {name} x {n_users:,} x {n_items:,} | {K} | {seconds:.3f} | "
                f"{seconds / EPOCHS * 1e3:.2f} | "
                f"{moved / 1e9:.2f} GB | {floor * 1e3:.2f} | {seconds / EPOCHS / floor:.1f} | "
                f"{sorting:.2f} |",
                flush=True,
            )
            if not bool(torch.isfinite(training.V).all()):
                raise SystemExit("the factors are not finite")
            del training
            torch.cuda.empty_cache()
        del table, users, items, values
    print()


def must_move(n: int, n_users: int, n_items: int, K: int) -> int:
    """Bytes that an epoch must move: every rating (partner and target) twice, U and V read twice
    and written once.
    """
    return 2 * n * 8 + 3 * (n_users + n_items) * K * 4


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    source, copy = (
        torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device=GPU),
        torch.empty(1 << 31, device=GPU, dtype=torch.uint8),
    )
    return 2 * (1 << 31) / timed(lambda: copy.copy_(source), 10)


def plain() -> None:
    """The same epochs in plain PyTorch, as one would write them: lookups and index_add."""
    print("| 100M ratings, K = 10 | ms per epoch | |")
    print("|---|---|---|")
    n, n_users, n_items = SIZES["100M"]
    users, items, values = world(n, n_users, n_items)
    table = Table(users, items, values, n_users, n_items)
    training = hdpmf(table, 10)
    epochs = training.epochs()
    next(epochs)
    begin = clock()
    for _ in range(20):
        next(epochs)
    ours = (clock() - begin) / 20
    print(f"| **hdpmf** | {ours * 1e3:.2f} | |")
    del training, epochs, table
    torch.cuda.empty_cache()
    U, V = torch.randn(n_users, 10, device=GPU) * 0.1, torch.randn(n_items, 10, device=GPU) * 0.1
    item_steps = torch.rsqrt(torch.bincount(items, minlength=n_items).clamp(min=1).float())[:, None]
    user_steps = torch.rsqrt(torch.bincount(users, minlength=n_users).clamp(min=1).float())[:, None]
    who, what = users.long(), items.long()
    noise = torch.distributions.Laplace(0.0, 25.0)

    def epoch(rate: float = 0.01, reg: float = 0.01) -> None:
        nonlocal U, V
        u = torch.nn.functional.embedding(who, U)
        residual = (u * torch.nn.functional.embedding(what, V)).sum(1) - values
        gradient = torch.zeros_like(V).index_add_(0, what, residual[:, None] * u)
        del u
        V = V - rate * item_steps * (2 * gradient + noise.sample(V.shape).to(GPU) + 2 * reg * V)
        v = torch.nn.functional.embedding(what, V)
        residual = (torch.nn.functional.embedding(who, U) * v).sum(1) - values
        gradient = torch.zeros_like(U).index_add_(0, who, residual[:, None] * v)
        U = U - rate * user_steps * 2 * (gradient + reg * U)
        U = U / torch.linalg.vector_norm(U, dim=1, keepdim=True).clamp(min=1.0)

    theirs = timed(epoch, 3)
    print(
        f"| embedding lookups and index_add | {theirs * 1e3:.1f} | hdpmf is "
        f"{theirs / ours:.0f} times faster |\n",
        flush=True,
    )


def accuracy() -> None:
    """Float32 on the GPU against float64, 20 epochs without noise; beside it, float32 in plain
    PyTorch.
    """
    n, n_users, n_items, K = 5_000_000, 50_000, 5_000, 10
    users, items, values = world(n, n_users, n_items)
    first = factors(n_users, K, 1), factors(n_items, K, 2)
    weights = 0.1 + 0.9 * torch.rand(
        n_users, device=GPU, generator=torch.Generator(GPU).manual_seed(3)
    )
    print(
        "| 20 epochs of 5M ratings, no noise: distance from float64 | U | V | U, plain "
        "PyTorch | V, plain PyTorch |"
    )
    print("|---|---|---|---|---|")
    for words, target in (
        ("HDPMF's targets (ratings times weights)", values * weights[users.long()]),
        ("raw ratings, where busy users' steps are too long to converge", values),
    ):
        table = Table(users, items, target, n_users, n_items)
        training = GpuTraining(table, GpuRun("batch", K, (0.01,) * 20, 0.01, 1), *first)
        training.finish()
        exact, single = (
            plain_epochs(users, items, target, first, kind)
            for kind in (torch.float64, torch.float32)
        )
        far = [
            float(torch.linalg.vector_norm(one.double() - right) / torch.linalg.vector_norm(right))
            for one, right in zip(
                (training.U[:, :K], training.V[:, :K], *single), (*exact, *exact), strict=True
            )
        ]
        print(f"| {words} | {' | '.join(f'{one:.1e}' for one in far)} |")
    print(flush=True)


def plain_epochs(users, items, values, first, kind):
    """Twenty epochs in plain PyTorch of some precision."""
    U, V = (one.to(kind) for one in first)
    who, what, target = users.long(), items.long(), values.to(kind)
    item_steps = torch.rsqrt(torch.bincount(items, minlength=len(V)).clamp(min=1).to(kind))[:, None]
    user_steps = torch.rsqrt(torch.bincount(users, minlength=len(U)).clamp(min=1).to(kind))[:, None]
    for _ in range(20):
        residual = (U[who] * V[what]).sum(1) - target
        V = V - 0.01 * item_steps * 2 * (
            torch.zeros_like(V).index_add_(0, what, residual[:, None] * U[who]) + 0.01 * V
        )
        residual = (U[who] * V[what]).sum(1) - target
        U = U - 0.01 * user_steps * 2 * (
            torch.zeros_like(U).index_add_(0, who, residual[:, None] * V[what]) + 0.01 * U
        )
        U = U / torch.linalg.vector_norm(U, dim=1, keepdim=True).clamp(min=1.0)
    return U, V


def parquet() -> None:
    """From a file to factors: read, sort, train, write."""
    try:
        file, writer = _parquet_file()
    except ImportError:
        print("parquet: left out (polars or pyarrow is needed)\n", flush=True)
        return
    from parquet_ratings import read_parquet

    times: dict[str, float] = {}
    with file:
        path = Path(file.name) / "ratings.parquet"
        megabytes = path.stat().st_size / 1e6
        start = begin = clock()
        user_ids, item_ids, blocks = read_parquet(path, GPU)
        times["read, copy to the GPU, find ids"] = -begin + (begin := clock())
        users, items, target = (torch.cat(columns) for columns in zip(*blocks, strict=True))
        del blocks
        users, items = (
            torch.searchsorted(ids, of.long()).int()
            for ids, of in ((user_ids, users), (item_ids, items))
        )
        n_users, n_items = len(user_ids), len(item_ids)
        times["positions for ids"] = -begin + (begin := clock())
        table = Table(users, items, target, n_users, n_items)
        training = hdpmf(table, 10)
        times["sort both ways"] = -begin + (begin := clock())
        training.finish()
        times["train 100 epochs (with compilation, if this process has not trained before)"] = (
            -begin + (begin := clock())
        )
        np.savez(
            Path(file.name) / "V.npz", items=item_ids.cpu().numpy(), factors=training.factors()
        )
        times["write V"] = -begin + (begin := clock())
        total = begin - start
    print(
        f"| from a Parquet file ({megabytes:,.0f} MB, {writer}) of 100M ratings to V, K = 10 | s |"
    )
    print("|---|---|")
    for what, seconds in times.items():
        print(f"| {what} | {seconds:.2f} |")
    print(f"| **in all** | **{total:.2f}** |\n", flush=True)


def _parquet_file() -> tuple[tempfile.TemporaryDirectory[str], str]:
    n, n_users, n_items = SIZES["100M"]
    columns = {
        name: column.cpu().numpy().astype(kind)
        for name, column, kind in zip(
            ("user", "item", "rating"),
            world(n, n_users, n_items),
            (np.int32, np.int32, np.float32),
            strict=True,
        )
    }
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "ratings.parquet"
    try:
        import polars as pl

        pl.DataFrame(columns).write_parquet(
            path, compression="zstd", compression_level=1, row_group_size=1 << 22
        )
        return folder, "written by Polars"
    except ImportError:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(
            pyarrow.table(columns), path, compression="zstd", row_group_size=1 << 22
        )
        return folder, "written by PyArrow"


def table3() -> None:
    """The paper's Table III for ML-1M: four methods, both K, grids and folds, five seeds."""
    try:
        from hdpmf.common.data import find_dataset
        from hdpmf.lab.experiments import Store, collect, parse_experiment, resolve, run_experiments
    except ImportError as error:
        print(f"table3: left out ({error})\n", flush=True)
        return
    if find_dataset("ml-1m") is None:
        print("table3: left out (set HDPMF_DATA to a folder that has ML-1M)\n", flush=True)
        return
    text = """
name = "table3"
title = "Table III"
datasets = ["ml-1m"]
methods = ["mf", "hdpmf", "pdpmf", "dpmf"]
factors = [10, 5]
"""
    experiment, files = resolve(parse_experiment(text, "table3"))
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        begin = clock()
        done = run_experiments([experiment], store, files=files, on="gpu")
        seconds = clock() - begin
        cells = collect(store, experiment)
        fitting = sum(result.metrics.get("fit_seconds", 0.0) for result in store.results().values())
    print(
        f"Table III for ML-1M: {done.total} runs in {seconds:.1f} s, everything "
        f"included ({done.ran}); {fitting:.1f} s "
        "of that is training (with compilation), the rest reading, splitting and "
        "measuring on the CPU.\n"
    )
    print("| K | method | MSE | MAE | learning rate, reg |")
    print("|---|---|---|---|---|")
    for cell in cells:
        chosen = ", ".join(f"{value:g}" for value in cell.hyperparameters.values())
        print(
            f"| {cell.factors} | {cell.label} | {cell.mse.mean:.4f} ± {cell.mse.std:.4f} | "
            f"{cell.mae.mean:.4f} ± {cell.mae.std:.4f} | {chosen} |"
        )
    print(flush=True)


def hdpmf(table, K: int, epochs: int = EPOCHS) -> GpuTraining:
    """HDPMF with its noise, one run."""
    rates = tuple(
        0.01 if e <= 0.25 * epochs else 0.002 if e <= 0.75 * epochs else 0.0004
        for e in range(1, epochs + 1)
    )
    scale = 2.0 * K**0.5 * 4.0
    return GpuTraining(
        table,
        GpuRun("batch", K, rates, 0.01, 7, "item", scale),
        factors(table.n_users, K, 1),
        factors(table.n_items, K, 2),
    )


def factors(n: int, K: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=GPU).manual_seed(seed)
    return torch.randn(n, K, generator=generator, device=GPU) * 0.1


def world(n: int, n_users: int, n_items: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ratings with popular items and busy users, in random order under random ids; a pair may be
    drawn twice.
    """
    generator = torch.Generator(device=GPU).manual_seed(0)

    def draw(count: int, exponent: float) -> torch.Tensor:
        chance = (torch.arange(count, device=GPU, dtype=torch.float64) + 0.01 * count) ** -exponent
        up_to = torch.cumsum(chance / chance.sum(), 0)
        label = torch.randperm(count, generator=generator, device=GPU).int()
        out = torch.empty(n, dtype=torch.int32, device=GPU)
        for part in out.split(50_000_000):
            uniform = torch.rand(len(part), generator=generator, device=GPU, dtype=torch.float64)
            part.copy_(label[torch.searchsorted(up_to, uniform).clamp_(max=count - 1)])
        return out

    values = torch.randint(1, 6, (n,), generator=generator, device=GPU).float()
    return draw(n_users, 0.6), draw(n_items, 1.0), values


def clock() -> float:
    """Seconds, when the device has done all it was asked to."""
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(work: Callable[[], object], times: int) -> float:
    """Median seconds."""
    work()
    seconds = []
    for _ in range(times):
        begin = clock()
        work()
        seconds.append(clock() - begin)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
