"""The expandable hash: TurboSHAKE128 (RFC 9861), that is Keccak-p[1600] with 12 rounds.

The draft's XofTurboShake128 hashes ``len(tag) | tag | seed | binder`` with domain byte 1. The
permutation is written for LLVM directly, lane by lane and without a jump: from Python code Numba
needs ten seconds to compile it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

RATE_LANES = 21
_DOMAIN = 1
_LANE = ir.IntType(64)
_ROTATIONS = (  # of lane (x, y), by x and then y
    (0, 36, 3, 41, 18),
    (1, 44, 10, 45, 2),
    (62, 6, 43, 15, 61),
    (28, 55, 25, 21, 56),
    (27, 20, 39, 8, 14),
)
_ROUNDS = (
    *(0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003),
    *(0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A),
    *(0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008),
)


def xof_lanes(tag: bytes, seed: bytes, binder: bytes, count: int) -> np.ndarray:
    """The first ``count`` words of 64 bits."""
    return turboshake128(b"".join((bytes([len(tag)]), tag, seed, binder)), _DOMAIN, count)


def derive_seed(tag: bytes, seed: bytes, binder: bytes, size: int) -> bytes:
    """The first ``size`` bytes."""
    return xof_lanes(tag, seed, binder, -(-size // 8)).tobytes()[:size]


def turboshake128(message: bytes, domain: int, count: int) -> np.ndarray:
    """The first ``count`` words of 64 bits, little-endian, of TurboSHAKE128."""
    padded = bytearray(message)
    padded.append(domain)
    padded.extend(bytes(-len(padded) % (8 * RATE_LANES)))
    padded[-1] ^= 0x80
    out = np.empty(-(-count // RATE_LANES) * RATE_LANES, np.uint64)
    _sponge(np.frombuffer(padded, "<u8"), out)
    return out[:count]


def _rotated(builder: Any, lane: Any, by: int) -> Any:
    if by == 0:
        return lane
    return builder.or_(
        builder.shl(lane, ir.Constant(_LANE, by)), builder.lshr(lane, ir.Constant(_LANE, 64 - by))
    )


def _round(
    builder: Any, lanes: dict[tuple[int, int], Any], constant: int
) -> dict[tuple[int, int], Any]:
    """One round of Keccak: theta, rho and pi, chi, iota."""
    xor = builder.xor
    coordinates = list(product(range(5), range(5)))
    parity = []
    for x in range(5):
        column = lanes[x, 0]
        for y in range(1, 5):
            column = xor(column, lanes[x, y])
        parity.append(column)
    spread = [xor(parity[x - 1], _rotated(builder, parity[(x + 1) % 5], 1)) for x in range(5)]
    moved = {
        (y, (2 * x + 3 * y) % 5): _rotated(builder, xor(lanes[x, y], spread[x]), _ROTATIONS[x][y])
        for x, y in coordinates
    }
    after = {
        (x, y): xor(
            moved[x, y], builder.and_(builder.not_(moved[(x + 1) % 5, y]), moved[(x + 2) % 5, y])
        )
        for x, y in coordinates
    }
    after[0, 0] = xor(after[0, 0], ir.Constant(_LANE, constant))
    return after


@intrinsic
def _permute(context: Any, state: Any) -> Any:
    """Keccak-p[1600, 12] on an array of 25 words, lane (x, y) at x + 5 y."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointers = {
            (x, y): builder.gep(words, [ir.Constant(_LANE, x + 5 * y)])
            for x in range(5)
            for y in range(5)
        }
        lanes = {lane: builder.load(pointer) for lane, pointer in pointers.items()}
        for constant in _ROUNDS:
            lanes = _round(builder, lanes, constant)
        for lane, pointer in pointers.items():
            builder.store(lanes[lane], pointer)
        return context.get_dummy_value()

    return types.void(state), generate


@njit(nogil=True, cache=True)
def _sponge(message: Any, out: Any) -> None:
    """Absorb a padded message of whole blocks, then fill ``out``, whole blocks too."""
    state = np.zeros(25, np.uint64)
    last = len(message) - RATE_LANES
    for start in range(0, last + len(out), RATE_LANES):
        if start <= last:
            for i in range(RATE_LANES):
                state[i] ^= message[start + i]
        _permute(state)
        if start >= last:
            for i in range(RATE_LANES):
                out[start - last + i] = state[i]
