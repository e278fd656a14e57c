"""The passes in plain PyTorch: to read, to test the kernels against, and without Triton. Slow.

Factors are padded tensors of shape (rows, runs, width). Every function changes its ``own`` factors
in place.

Noise is counter-based: the same numbers for the same seed, row, epoch and purpose, in whatever
order they are drawn. Philox4x32-10 (Salmon et al., 2011) turns a counter of four words and a key of
two into four random words. ``triton_engine`` has the same in a kernel, and a test compares the two
bit by bit. Seeded, so for simulation only: noise that is released to anyone must come from
``hdpmf.common.privacy.sampling.noise``.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu.layout import Levels, Queues, RatingColumns, RunTensors, Side, Visits

NORMALS, EXPONENTIALS, STEPS, ORDER = 1, 2, 4, 5
"""Purposes of draws: the last word of a counter, so that no two purposes share numbers."""

SHARED_ROW = 0xFFFFFFFF
"""The row whose draws all items share, where the recommender's h is one for all."""

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def words(
    seeds: Tensor, c0: Tensor, c1: Tensor, c2: int, c3: int | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four words (int64, below 2^32) for each counter; arguments are broadcast."""
    seeds, x0, x1, x3 = torch.broadcast_tensors(
        seeds, c0, c1, torch.as_tensor(c3, device=c0.device)
    )
    key0, key1 = seeds & _WORD, (seeds >> 32) & _WORD
    x2 = torch.full_like(x0, c2)
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(x0, _MULTIPLIERS[0])
        high1, low1 = _multiply(x2, _MULTIPLIERS[1])
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0, key1 = (key0 + _WEYL[0]) & _WORD, (key1 + _WEYL[1]) & _WORD
    return x0, x1, x2, x3


def normals(seeds: Tensor, rows: Tensor, width: int, epoch: int, purpose: int) -> Tensor:
    """Return standard normals of shape ``broadcast(seeds, rows) + (width,)``.

    The width is a multiple of four.
    """
    w0, w1, w2, w3 = _quads(seeds, rows, width, epoch, purpose)
    a, b = _box_muller(w0, w1)
    c, d = _box_muller(w2, w3)
    return torch.stack((a, b, c, d), dim=-1).flatten(-2)


def step_normals(seeds: Tensor, rows: Tensor, width: int, steps: Tensor, epoch: int) -> Tensor:
    """The normals of some step (counted from 0) of each row, in the shape of ``normals``."""
    quads = torch.arange(width // 4, device=rows.device)
    w0, w1, w2, w3 = words(
        seeds[..., None], rows[..., None], steps[..., None], epoch, STEPS + 16 * quads
    )
    a, b = _box_muller(w0, w1)
    c, d = _box_muller(w2, w3)
    return torch.stack((a, b, c, d), dim=-1).flatten(-2)


def exponentials(seeds: Tensor, rows: Tensor, width: int, epoch: int, purpose: int) -> Tensor:
    """Exp(1) draws, in the shape of ``normals``."""
    drawn = [-torch.log(_uniform(word)) for word in _quads(seeds, rows, width, epoch, purpose)]
    return torch.stack(drawn, dim=-1).flatten(-2)


def _quads(
    seeds: Tensor, rows: Tensor, width: int, epoch: int, purpose: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    quads = torch.arange(width // 4, device=rows.device)
    return words(seeds[..., None], rows[..., None], quads, epoch, purpose)


def _multiply(x: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Return the high and low word of a product of 32-bit words.

    Signed 64-bit arithmetic must not overflow on the way.
    """
    upper = (x >> 16) * multiplier
    lower = (x & 0xFFFF) * multiplier
    middle = upper + (lower >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)


def _uniform(word: Tensor) -> Tensor:
    """(k + 1/2) / 2^24 from the upper 24 bits: never 0 and never 1."""
    return ((word >> 8).to(torch.float32) + 0.5) * 2.0**-24


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return two normals from two words.

    Two bits of the second choose a quadrant, the others an angle within +-45 degrees.
    """
    radius = torch.sqrt(-2.0 * torch.log(_uniform(first)))
    angle = ((second >> 2) - 2**29).to(torch.float32) * (math.pi / 4 / 2**29)
    sine, cosine = torch.sin(angle), torch.cos(angle)
    turned = (second & 1).bool()
    a, b = torch.where(turned, sine, cosine) * radius, torch.where(turned, cosine, sine) * radius
    return torch.where(((second ^ (second >> 1)) & 1).bool(), -a, a), torch.where(
        (second & 2).bool(), -b, b
    )


Sums = Tensor


def residual_sums(
    side: Side, columns: RatingColumns, runs: RunTensors, own: Tensor, other: Tensor
) -> Sums:
    """Per row and run, the sum over ratings of ``c (other . own - t) other``."""
    rows = side.row_of_ratings()
    out = torch.zeros_like(own)
    for run, view in enumerate(runs.view.tolist()):
        target, coefficient, members = columns.of_view(view)
        gathered = other[side.partner.long(), run]
        residual = (gathered * own[rows, run]).sum(1) - target
        if coefficient is not None:
            residual = residual * coefficient
        if members is not None:
            residual = torch.where(members, residual, 0.0)
        out[:, run].index_add_(0, rows, residual[:, None] * gathered)
    return out


def empty_sums(side: Side, factors: Tensor) -> Sums:
    """Room for the sums of all rows."""
    return torch.zeros((side.n_rows, *factors.shape[1:]), device=factors.device)


def sum_range(
    side: Side,
    partner: Tensor,
    columns: RatingColumns,
    runs: RunTensors,
    own: Tensor,
    other: Tensor,
    out: Sums,
    first_segment: int,
    end_segment: int,
    first_rating: int,
) -> None:
    """Add the sums of some segments to ``out``.

    ``partner`` and ``columns`` hold the ratings from ``first_rating`` on.
    """
    chosen = slice(first_segment, end_segment)
    start, length, row = side.start[chosen] - first_rating, side.length[chosen], side.row[chosen]
    count = int(length.sum())
    piece = Side(side.n_rows, count, partner[:count], start, length, row, side.first, side.parts)
    coefficient = None if columns.coefficient is None else columns.coefficient[:, :count]
    out += residual_sums(
        piece, RatingColumns(columns.target[:, :count], coefficient), runs, own, other
    )


def step(
    side: Side,
    sums: Sums,
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
        own: Factors to change.
        steps: Step of each row in each view, of shape (views, rows) or (1, rows) for all.
        rates: Learning rate of each run.
        n_factors: K; the columns beyond it stay 0.
        unit_ball: Scale rows down to length 1 where they are longer.
        noise: ``none``, ``item`` (Laplace, h per row) or ``shared`` (Laplace, one h for all rows).
        epoch: Selects the noise.
    """
    gradient = 2.0 * (sums + runs.reg[:, None] * own)
    if noise != "none":
        drawn = draw_noise(runs, side.n_rows, n_factors, own.shape[-1], noise, epoch)
        gradient = gradient + drawn
    view = torch.clamp(runs.view.long(), max=len(steps) - 1)
    moved = own - (steps[view].T * rates)[:, :, None] * gradient
    moved[..., n_factors:] = 0.0
    if unit_ball:
        moved = in_unit_ball(moved)
    own.copy_(moved)


def draw_noise(
    runs: RunTensors, n_rows: int, n_factors: int, width: int, noise: str, epoch: int
) -> Tensor:
    """The noise of one epoch on the sums of all rows, of shape (rows, runs, width)."""
    rows = torch.arange(n_rows, device=runs.seed.device)[:, None]
    drawn = normals(runs.seed, rows, width, epoch, NORMALS)
    h_rows = torch.full_like(rows, SHARED_ROW) if noise == "shared" else rows
    spread = torch.sqrt(2.0 * exponentials(runs.seed, h_rows, width, epoch, EXPONENTIALS))
    drawn = drawn * spread * runs.noise_scale[:, None]
    drawn[..., n_factors:] = 0.0
    return drawn


def in_unit_ball(x: Tensor) -> Tensor:
    """Vectors along the last dimension, scaled down to length 1 where they are longer."""
    return x / torch.sqrt(torch.clamp((x * x).sum(-1, keepdim=True), min=1.0))


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

    The other side stays fixed.

    Args:
        visits: Which ratings each row visits, in which order.
        columns: Facts of ratings in that order.
        own: Factors to change.
        other: Factors of the other side.
        rates: Learning rate of each run.
        n_factors: K.
        unit_ball: After every step, scale down to length 1 what is longer.
        noise: ``none``, ``item`` or ``shared``, as for ``step``; here every rating adds its own
            share.
        shares: A rating's share of the noise of each row, of shape (views, rows) or (1, rows).
        epoch: Selects the noise.
    """
    counts = torch.diff(visits.begin)
    views = runs.view.long()
    keep = (1.0 - 2.0 * rates * runs.reg)[:, None]
    deviation = None
    rows = torch.arange(len(counts), device=own.device)[:, None]
    if noise != "none" and shares is not None:
        h_rows = torch.full_like(rows, SHARED_ROW) if noise == "shared" else rows
        h = exponentials(runs.seed, h_rows, own.shape[-1], epoch, EXPONENTIALS)
        share = shares[torch.clamp(views, max=len(shares) - 1)].T * runs.noise_scale * rates
        deviation = torch.sqrt(2.0 * h) * share[:, :, None]
        deviation[..., n_factors:] = 0.0
    done = torch.zeros((len(counts), len(runs)), dtype=torch.int64, device=own.device)
    for visit in range(int(counts.max())):
        present = visit < counts
        at = torch.where(present, visits.begin[:-1] + visit, 0)
        factors = other[visits.partner[at].long()]
        residual = columns.target[torch.clamp(views, max=len(columns.target) - 1)][:, at].T - (
            factors * own
        ).sum(-1)
        if columns.coefficient is not None:
            rows_of_view = torch.clamp(views, max=len(columns.coefficient) - 1)
            residual = residual * columns.coefficient[rows_of_view][:, at].T
        moved = own * keep + factors * (2.0 * rates * residual)[:, :, None]
        if deviation is not None:
            moved = moved - deviation * step_normals(runs.seed, rows, own.shape[-1], done, epoch)
        if unit_ball:
            moved = in_unit_ball(moved)
        active = present[:, None].expand(-1, len(runs))
        if columns.members is not None:
            active = active & (columns.members[at][:, None] >> runs.view & 1).bool()
        own.copy_(torch.where(active[:, :, None], moved, own))
        done += active


def step_levels(levels: Levels, runs: RunTensors, U: Tensor, V: Tensor, rates: Tensor) -> None:
    """Step both vectors of each rating, level after level: non-private MF (``JointSolver``)."""
    first, start = levels.first.tolist(), levels.start.tolist()
    for run, view in enumerate(runs.view.tolist()):
        rate, keep = 2.0 * rates[run], 1.0 - 2.0 * rates[run] * runs.reg[run]
        own = start[first[view] : first[view + 1]]
        for begin, end in pairwise(own):
            who, what = levels.users[begin:end].long(), levels.items[begin:end].long()
            u, v = U[who, run], V[what, run]
            step = (rate * (levels.target[begin:end] - (u * v).sum(-1)))[:, None]
            V[what, run] = v * keep + u * step
            U[who, run] = in_unit_ball(u * keep + v * step)


def find_levels(queues: Queues) -> Tensor:
    """The level of each place: one more than that of the ratings it must wait for."""
    levels = torch.empty_like(queues.user)
    bases = queues.base.tolist()
    for order, view in enumerate(queues.view.tolist()):
        positions = slice(bases[order], bases[order + 1])
        user, turn = queues.user[positions].tolist(), queues.turn[positions].tolist()
        bounds = queues.begin[view].tolist()
        cursors, turns, found, number = bounds[:-1], [0] * queues.n_users, [0] * len(user), 0
        while any(cursor < end for cursor, end in zip(cursors, bounds[1:], strict=True)):
            ready = [
                item
                for item, position in enumerate(cursors)
                if position < bounds[item + 1] and turns[user[position]] == turn[position]
            ]
            for item in ready:
                position = cursors[item]
                found[position] = number
                turns[user[position]] += 1
                cursors[item] += 1
            number += 1
        levels[positions] = torch.tensor(found, dtype=levels.dtype, device=levels.device)
    return levels


def random_words(seed: int, users: Tensor, items: Tensor, epoch: int) -> Tensor:
    """Return a random 32-bit word (in int64) per rating.

    It depends on seed, epoch, user and item only, not on the rating's position.
    """
    key = torch.tensor(seed, device=users.device)
    return words(key, users.long(), items.long(), epoch, ORDER)[0]
