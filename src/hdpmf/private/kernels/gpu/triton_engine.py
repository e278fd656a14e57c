"""Launch the passes, which are Triton kernels.

Factors are padded tensors of shape (rows, runs, width); every function changes ``own`` in place.

No floating-point atomics anywhere: a segment's sum is written once, a row adds its segments' sums
in a fixed order. The same seed gives the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_kernels as kernels
from hdpmf.private.kernels.gpu.layout import RatingColumns, RunTensors, Side, Visits


def residual_sums(
    side: Side, columns: RatingColumns, runs: RunTensors, own: Tensor, other: Tensor
) -> Tensor:
    """Per segment and run, the sum over ratings of ``c (other . own - t) other``."""
    n_runs, width = own.shape[1], own.shape[2]
    out = torch.empty((side.n_segments, n_runs, width), device=own.device)
    if side.n_segments == 0:
        return out
    coefficient, members = columns.coefficient, columns.members
    kernels.sum_segments[(side.n_segments, n_runs)](
        side.start, side.length, side.row, side.partner,
        columns.target,
        columns.target if coefficient is None else coefficient,
        side.partner if members is None else members,
        runs.view, own, other, out,
        n_runs, _stride(columns.target), _stride(coefficient),
        WIDTH=width, TILE=_tile(width, len(side.partner) // max(side.n_rows, 1)),
        WEIGHTED=coefficient is not None, MASKED=members is not None,
        num_warps=1,
    )  # fmt: skip
    return out


def step(
    side: Side,
    sums: Tensor,
    own: Tensor,
    runs: RunTensors,
    steps: Tensor,
    rates: Tensor,
    n_factors: int,
    unit_ball: bool = False,
    noise: str = "none",
    epoch: int = 0,
) -> None:
    """Step each row to ``own - step rate (2 (sum + reg own) + noise)``; project if ``unit_ball``.

    Args:
        sums: What ``residual_sums`` returned.
        steps: Step of each row in each view, of shape (views, rows) or (1, rows) for all.
        n_factors: K; the columns beyond it stay 0.
        noise: ``none``, ``item`` (Laplace, h per row) or ``shared`` (Laplace, one h for all rows).
        epoch: Selects the noise.
    """
    n_runs, width = own.shape[1], own.shape[2]
    rows = _rows_per_program(width)
    kernels.step_rows[(-(-side.n_rows // rows), n_runs)](
        side.first, side.parts, sums, own, steps, rates,
        runs.view, runs.reg, runs.seed, runs.noise_scale,
        epoch, side.n_rows, n_runs, _stride(steps), n_factors,
        ROWS=rows, WIDTH=width, NOISE=noise, UNIT_BALL=unit_ball,
        num_warps=4,
    )  # fmt: skip


def _stride(column: Tensor | None) -> int:
    """Return the distance between views; 0 where all share one row."""
    return 0 if column is None or len(column) == 1 else int(column.stride(0))


def _tile(width: int, ratings_per_row: int) -> int:
    """Return how many ratings a program takes at a time, as measured on an H200.

    More hide latency; too many waste lanes at the ends of short rows.
    """
    return 64 if width <= 16 and ratings_per_row >= 1024 else 32


def _rows_per_program(width: int) -> int:
    return max(4, 512 // width)


def visit_ratings(
    visits: Visits,
    columns: RatingColumns,
    runs: RunTensors,
    own: Tensor,
    other: Tensor,
    rates: Tensor,
    n_factors: int,
    unit_ball: bool = False,
    noise: str = "none",
    shares: Tensor | None = None,
    epoch: int = 0,
) -> None:
    """Make one SGD step of each row for each of its ratings, in the order of ``visits``.

    The other side stays fixed. The arguments are those of ``step``; every rating adds its own share
    of the noise: ``shares`` has one of each row, of shape (views, rows) or (1, rows).
    """
    n_rows, n_runs, width = own.shape
    lanes = max(1, 128 // width)
    coefficient, members = columns.coefficient, columns.members
    kernels.visit_ratings[(-(-n_rows * n_runs // lanes),)](
        visits.begin, visits.ranked, visits.partner,
        columns.target,
        columns.target if coefficient is None else coefficient,
        visits.partner if members is None else members,
        own, other, rates, rates if shares is None else shares,
        runs.view, runs.reg, runs.seed, runs.noise_scale,
        epoch, n_rows * n_runs, n_runs,
        _stride(columns.target), _stride(coefficient), _stride(shares), n_factors,
        LANES=lanes, WIDTH=width, WEIGHTED=coefficient is not None, MASKED=members is not None,
        NOISE=noise, UNIT_BALL=unit_ball,
        num_warps=1,
    )  # fmt: skip


def random_words(seed: int, users: Tensor, items: Tensor, epoch: int) -> Tensor:
    """Return a random 32-bit word (in int64) per rating, of seed, epoch, user and item only."""
    out = torch.empty(len(users), dtype=torch.int64, device=users.device)
    if len(users):
        kernels.write_words[(-(-len(users) // 256),)](
            out, users, items, seed, epoch, len(users), BLOCK=256
        )
    return out
