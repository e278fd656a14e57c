"""The passes in plain PyTorch: what ``triton_engine`` is tested against, and stands in for it where
whole models are trained, for Triton's interpreter takes minutes there.
"""

from __future__ import annotations

import math

import torch

NORMALS, EXPONENTIALS, STEPS, ORDER = 1, 2, 4, 5
SHARED_ROW = 0xFFFFFFFF
_WORD = 0xFFFFFFFF


def words(seeds, c0, c1, c2, c3):
    """Four Philox4x32-10 words (int64, below 2^32) for each counter; arguments are broadcast."""
    seeds, x0, x1, x3 = torch.broadcast_tensors(seeds, c0, c1, torch.as_tensor(c3))
    key0, key1 = seeds & _WORD, (seeds >> 32) & _WORD
    x2 = torch.full_like(x0, c2)
    for _ in range(10):
        high0, low0 = _multiply(x0, 0xD2511F53)
        high1, low1 = _multiply(x2, 0xCD9E8D57)
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0, key1 = (key0 + 0x9E3779B9) & _WORD, (key1 + 0xBB67AE85) & _WORD
    return x0, x1, x2, x3


def _multiply(x, multiplier):
    """High and low word of a product; signed 64-bit arithmetic must not overflow on the way."""
    lower = (x & 0xFFFF) * multiplier
    middle = (x >> 16) * multiplier + (lower >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)


def _uniform(word):
    return ((word >> 8).to(torch.float32) + 0.5) * 2.0**-24


def _box_muller(first, second):
    radius = torch.sqrt(-2.0 * torch.log(_uniform(first)))
    angle = ((second >> 2) - 2**29).to(torch.float32) * (math.pi / 4 / 2**29)
    sine, cosine = torch.sin(angle), torch.cos(angle)
    turned = (second & 1).bool()
    a = torch.where(turned, sine, cosine) * radius
    b = torch.where(turned, cosine, sine) * radius
    a = torch.where(((second ^ (second >> 1)) & 1).bool(), -a, a)
    return a, torch.where((second & 2).bool(), -b, b)


def _normals_of(drawn):
    w0, w1, w2, w3 = drawn
    return torch.stack((*_box_muller(w0, w1), *_box_muller(w2, w3)), dim=-1).flatten(-2)


def normals(seeds, rows, width, epoch, purpose):
    """Standard normals of shape ``broadcast(seeds, rows) + (width,)``, four to a counter."""
    quads = torch.arange(width // 4)
    return _normals_of(words(seeds[..., None], rows[..., None], quads, epoch, purpose))


def step_normals(seeds, rows, width, steps, epoch):
    """The normals of some step (counted from 0) of each row."""
    purposes = STEPS + 16 * torch.arange(width // 4)
    return _normals_of(words(seeds[..., None], rows[..., None], steps[..., None], epoch, purposes))


def exponentials(seeds, rows, width, epoch, purpose):
    """Exp(1) draws, in the shape of ``normals``."""
    drawn = words(seeds[..., None], rows[..., None], torch.arange(width // 4), epoch, purpose)
    return torch.stack([-torch.log(_uniform(word)) for word in drawn], dim=-1).flatten(-2)


def random_words(seed, users, items, epoch):
    return words(torch.tensor(seed), users.long(), items.long(), epoch, ORDER)[0]


def draw_noise(run, n_rows, width, epoch):
    """The noise of one epoch on the sums of all rows, of shape (rows, width)."""
    seed, rows = torch.tensor(run.seed), torch.arange(n_rows)
    h_rows = torch.full_like(rows, SHARED_ROW) if run.noise == "shared" else rows
    spread = torch.sqrt(2.0 * exponentials(seed, h_rows, width, epoch, EXPONENTIALS))
    drawn = normals(seed, rows, width, epoch, NORMALS) * spread * run.noise_scale
    drawn[..., run.n_factors :] = 0.0
    return drawn


def in_unit_ball(x):
    return x / torch.sqrt(torch.clamp((x * x).sum(-1, keepdim=True), min=1.0))


def residual_sums(side, own, other):
    """Per row, where kernels have a sum for each segment."""
    by_position = torch.argsort(side.start)
    rows = torch.repeat_interleave(side.row[by_position].long(), side.length[by_position].long())
    gathered = other[side.partner.long()]
    residual = (gathered * own[rows]).sum(1) - side.target
    if side.coefficient is not None:
        residual = residual * side.coefficient
    out = torch.zeros((side.n_rows, own.shape[1]))
    return out.index_add_(0, rows, residual[:, None] * gathered)


def step(side, sums, own, run, steps, rate, unit_ball=False, noise=False, epoch=0):
    gradient = 2.0 * (sums + run.reg * own)
    if noise and run.noise != "none":
        gradient += draw_noise(run, side.n_rows, own.shape[-1], epoch)
    moved = own - (steps * rate)[:, None] * gradient
    moved[..., run.n_factors :] = 0.0
    own.copy_(in_unit_ball(moved) if unit_ball else moved)


def visit_ratings(visits, own, other, run, rate, unit_ball=False, shares=None, epoch=0):
    counts = torch.diff(visits.begin)
    seed, rows, width = torch.tensor(run.seed), torch.arange(len(counts)), own.shape[-1]
    deviation = None
    if shares is not None and run.noise != "none":
        h_rows = torch.full_like(rows, SHARED_ROW) if run.noise == "shared" else rows
        h = exponentials(seed, h_rows, width, epoch, EXPONENTIALS)
        deviation = torch.sqrt(2.0 * h) * (shares * run.noise_scale * rate)[:, None]
        deviation[..., run.n_factors :] = 0.0
    for visit in range(int(counts.max())):
        active = visit < counts
        at = torch.where(active, visits.begin[:-1] + visit, 0)
        factors = other[visits.partner[at].long()]
        residual = visits.target[at] - (factors * own).sum(-1)
        if visits.coefficient is not None:
            residual = residual * visits.coefficient[at]
        moved = own * (1.0 - 2.0 * rate * run.reg) + factors * (2.0 * rate * residual)[:, None]
        if deviation is not None:
            done = torch.full_like(rows, visit)
            moved = moved - deviation * step_normals(seed, rows, width, done, epoch)
        if unit_ball:
            moved = in_unit_ball(moved)
        own.copy_(torch.where(active[:, None], moved, own))
