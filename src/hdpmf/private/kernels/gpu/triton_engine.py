"""Launch the passes, which are Triton kernels.

Factors are padded tensors of shape (rows, width); every function changes ``own`` in place.

No floating-point atomics anywhere: a segment's sum is written once, a row adds its segments' sums
in a fixed order. The same seed gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_kernels as kernels
from hdpmf.private.kernels.gpu.layout import Side, Visits

if TYPE_CHECKING:
    from hdpmf.private.kernels.gpu.solvers import GpuRun


def residual_sums(side: Side, own: Tensor, other: Tensor) -> Tensor:
    """Per segment, the sum over ratings of ``c (other . own - t) other``."""
    width, n_segments = own.shape[1], side.n_segments
    out = torch.empty((n_segments, width), device=own.device)
    if n_segments:
        kernels.sum_segments[(n_segments,)](
            side.start, side.length, side.row, side.partner, side.target,
            side.target if side.coefficient is None else side.coefficient, own, other, out,
            WIDTH=width, TILE=_tile(width, len(side.partner) // max(side.n_rows, 1)),
            WEIGHTED=side.coefficient is not None, num_warps=1,
        )  # fmt: skip
    return out


def step(
    side: Side,
    sums: Tensor,
    own: Tensor,
    run: GpuRun,
    steps: Tensor,
    rate: float,
    unit_ball: bool = False,
    noise: bool = False,
    epoch: int = 0,
) -> None:
    """Step each row to ``own - step rate (2 (sum + reg own) + noise)``; project if ``unit_ball``.

    Args:
        sums: What ``residual_sums`` returned.
        steps: Step of each row.
        noise: Whether to add the run's noise; that of items alone has any.
        epoch: Selects the noise.
    """
    width = own.shape[1]
    rows = max(4, 512 // width)
    kernels.step_rows[(-(-side.n_rows // rows),)](
        side.first, side.parts, sums, own, steps,
        rate, run.reg, run.seed, run.noise_scale, epoch, side.n_rows, run.n_factors,
        ROWS=rows, WIDTH=width, NOISE=run.noise if noise else "none", UNIT_BALL=unit_ball,
        num_warps=4,
    )  # fmt: skip


def _tile(width: int, ratings_per_row: int) -> int:
    """Return how many ratings a program takes at a time, as measured on an H200.

    More hide latency; too many waste lanes at the ends of short rows.
    """
    return 64 if width <= 16 and ratings_per_row >= 1024 else 32


def visit_ratings(
    visits: Visits,
    own: Tensor,
    other: Tensor,
    run: GpuRun,
    rate: float,
    unit_ball: bool = False,
    shares: Tensor | None = None,
    epoch: int = 0,
) -> None:
    """Make one SGD step of each row for each of its ratings, in the order of ``visits``.

    The other side stays fixed. With ``shares`` every rating adds its own share of the run's noise:
    there is one for each row.
    """
    n_rows, width = own.shape
    lanes = max(1, 128 // width)
    kernels.visit_ratings[(-(-n_rows // lanes),)](
        visits.begin, visits.ranked, visits.partner, visits.target,
        visits.target if visits.coefficient is None else visits.coefficient,
        own, other, own if shares is None else shares,
        rate, run.reg, run.seed, run.noise_scale, epoch, n_rows, run.n_factors,
        LANES=lanes, WIDTH=width, WEIGHTED=visits.coefficient is not None,
        NOISE="none" if shares is None else run.noise, UNIT_BALL=unit_ball, num_warps=1,
    )  # fmt: skip


def random_words(seed: int, users: Tensor, items: Tensor, epoch: int) -> Tensor:
    """Return a random 32-bit word (in int64) per rating, of seed, epoch, user and item only."""
    out = torch.empty(len(users), dtype=torch.int64, device=users.device)
    if len(users):
        kernels.write_words[(-(-len(users) // 256),)](
            out, users, items, seed, epoch, len(users), BLOCK=256
        )
    return out
