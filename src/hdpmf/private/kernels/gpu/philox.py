"""Counter-based noise: the same for a seed, row, epoch and purpose, in any order.

Philox4x32-10 (Salmon et al., 2011) turns a counter of four words and a key of two into four random
words. This is the generator in plain PyTorch; ``triton_engine`` has the same in a kernel, and a
test compares the two bit by bit.

Seeded, so for simulation only: noise that is released to anyone must come from
``hdpmf.common.privacy.sampling.noise``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NORMALS, EXPONENTIALS, STEPS, ORDER = 1, 2, 4, 5
"""What a draw is for: the last word of its counter, so that no two purposes share numbers."""

SHARED_ROW = 0xFFFFFFFF
"""The row whose draws all items share, where the recommender's h is one for all."""

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def words(
    seeds: Tensor, c0: Tensor, c1: Tensor, c2: int, c3: int | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four words (int64 below 2^32) per counter; arguments are broadcast."""
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


def order_words(seed: int, users: Tensor, items: Tensor, epoch: int) -> Tensor:
    """One random word for each pair of user and item, whatever table it is in."""
    return words(torch.tensor(seed, device=users.device), users.long(), items.long(), epoch, ORDER)[
        0
    ]


def _quads(
    seeds: Tensor, rows: Tensor, width: int, epoch: int, purpose: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    quads = torch.arange(width // 4, device=rows.device)
    return words(seeds[..., None], rows[..., None], quads, epoch, purpose)


def _multiply(x: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Return high and low word of a product of 32-bit words, without overflow."""
    upper = (x >> 16) * multiplier
    lower = (x & 0xFFFF) * multiplier
    middle = upper + (lower >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)


def _uniform(word: Tensor) -> Tensor:
    """(k + 1/2) / 2^24 from the upper 24 bits: never 0 and never 1."""
    return ((word >> 8).to(torch.float32) + 0.5) * 2.0**-24


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return two normals of two words.

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
