"""The two prime fields of the draft (arrays, bytes, transforms), and the expandable hash.

That is TurboSHAKE128 (RFC 9861): Keccak-p[1600] with 12 rounds. The draft's XofTurboShake128 hashes
``len(tag) | tag | seed | binder`` with domain byte 1. The permutation is written for LLVM directly,
lane by lane and without a jump: from Python code Numba needs ten seconds to compile it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from hdpmf.common.aggregation.two_servers.prio.arithmetic import (
    MODULUS64,
    MODULUS128,
    add_vectors,
    combine_rows,
    mul_vectors,
    powers,
    sub_vectors,
    transform,
)
from hdpmf.errors import PrioError

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
    lanes = -(-size // 8)  # no mutant: of more of them the first bytes are the same
    return xof_lanes(tag, seed, binder, lanes).tobytes()[:size]


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


_GENERATOR = 7  # of the multiplicative group of either field


@dataclass(frozen=True)
class Field:
    """A prime field whose elements are one or two words."""

    name: str
    modulus: int
    words: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 * self.words

    @property
    def dtype(self) -> np.dtype[Any]:
        """An array's type."""
        return (
            np.dtype(np.uint64)
            if self.words == 1
            else np.dtype([("low", np.uint64), ("high", np.uint64)])
        )

    def vector(self, values: Sequence[int]) -> np.ndarray:
        """Public whole numbers, negative ones too, as elements."""
        joined = b"".join((value % self.modulus).to_bytes(self.size, "little") for value in values)
        return np.frombuffer(joined, self.dtype).copy()

    def secret(self, values: np.ndarray) -> np.ndarray:
        """Secret whole numbers (int64) as elements; the same steps whatever their sign."""
        above, below = (np.zeros(values.size, self.dtype) for _ in range(2))
        for out, part in ((above, np.maximum(values, 0)), (below, np.maximum(-values, 0))):
            out.view(np.uint64)[:: self.words] = part.ravel().astype(np.uint64)
        return self.sub(above, below).reshape(values.shape)

    def integers(self, vector: np.ndarray) -> list[int]:
        """The whole numbers of elements, the nearest to zero."""
        encoded = self.encode(vector)
        half = self.modulus // 2
        found = (
            int.from_bytes(encoded[i : i + self.size], "little")
            for i in range(0, len(encoded), self.size)
        )
        return [value - self.modulus if value > half else value for value in found]

    def encode(self, vector: np.ndarray) -> bytes:
        """Elements as bytes, little-endian."""
        return vector.tobytes()

    def decode(self, encoded: bytes, count: int) -> np.ndarray:
        """So many elements, or an error."""
        if len(encoded) != count * self.size:
            raise PrioError(
                f"expected {count} elements of {self.name} in {count * self.size} bytes, not "
                f"{len(encoded)}"
            )
        vector = np.frombuffer(bytearray(encoded), self.dtype)
        if not bool(self._below(vector).all()):
            raise PrioError(
                f"a number is not an element of {self.name}: it is not below the modulus"
            )
        return vector

    def expand(self, tag: bytes, seed: bytes, binder: bytes, count: int) -> np.ndarray:
        """Return pseudorandom elements, by rejection sampling."""
        spare = 0
        while True:
            lanes = xof_lanes(tag, seed, binder, (count + spare) * self.words)
            found = self.elements_of(lanes)
            if len(found) >= count:  # no mutant: a longer stream begins with the same elements
                return found[:count]
            spare += 1 + count - len(found)

    def elements_of(self, lanes: np.ndarray) -> np.ndarray:
        """The elements among random words."""
        vector = lanes.view(self.dtype)
        below = self._below(vector)
        return vector if bool(below.all()) else vector[below]

    def _below(self, vector: np.ndarray) -> np.ndarray:
        if self.words == 1:
            return np.asarray(vector < np.uint64(self.modulus))
        high = np.uint64(self.modulus >> 64)  # the modulus has a low word of 1
        return np.asarray(
            (vector["high"] < high) | ((vector["high"] == high) & (vector["low"] == 0))
        )

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Element by element; shapes must be the same."""
        return np.asarray(add_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def sub(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Element by element; shapes must be the same."""
        return np.asarray(sub_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def mul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Element by element; shapes must be the same."""
        return np.asarray(mul_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def times(self, factor: int, vector: np.ndarray) -> np.ndarray:
        """A public whole number times each element."""
        return self.mul(np.full(vector.shape, self.vector([factor])[0]), vector)

    def combine(self, factors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sum of a matrix's rows, each times its factor."""
        return np.asarray(combine_rows(factors, rows))

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The sum of products, as a vector of one element."""
        return self.combine(a, b.reshape(-1, 1))

    def total(self, vector: np.ndarray) -> np.ndarray:
        """The sum of a vector, as a vector of one element."""
        return self.dot(np.full(len(vector), self.vector([1])[0]), vector)

    def powers(self, base: np.ndarray, count: int) -> np.ndarray:
        """So many powers of a vector's only element, from the first one on."""
        return np.asarray(powers(base, count))

    def evaluate(self, rows: np.ndarray, size: int) -> np.ndarray:
        """Evaluate polynomials (rows of coefficients) at the ``size`` powers of a root of unity."""
        return np.asarray(transform(rows, _reversal(rows.shape[1]), _roots(self, size, False)))

    def interpolate(self, rows: np.ndarray) -> np.ndarray:
        """The coefficients behind such values."""
        size = rows.shape[1]
        found = np.asarray(transform(rows, _reversal(size), _roots(self, size, True)))
        return self.times(pow(size, -1, self.modulus), found)


@cache
def _reversal(size: int) -> np.ndarray:
    indices = np.zeros(1, np.int64)
    while len(indices) < size:
        indices = np.concatenate([2 * indices, 2 * indices + 1])
    return indices


@cache
def _roots(field: Field, size: int, inverse: bool) -> np.ndarray:
    root = pow(_GENERATOR, (field.modulus - 1) // size, field.modulus)
    if inverse:
        root = pow(root, -1, field.modulus)
    found = [1]
    while len(found) < size // 2:
        found.append(found[-1] * root % field.modulus)
    return field.vector(found)


FIELD64 = Field("Field64", MODULUS64, 1)
FIELD128 = Field("Field128", MODULUS128, 2)
