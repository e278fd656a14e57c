"""The two prime fields of the draft (arrays, bytes, transforms), and the expandable hash.

That is TurboSHAKE128 (RFC 9861): Keccak-p[1600] with 12 rounds. The draft's XofTurboShake128 hashes
``len(tag) | tag | seed | binder`` with domain byte 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import plain
from hdpmf.common.aggregation.two_servers.prio.arithmetic import MODULUS64, MODULUS128
from hdpmf.errors import PrioError

_engine: Any = plain


def kernels() -> Any:
    """Loops over vectors, in NumPy or compiled: the same to the bit."""
    return _engine


def compile_kernels() -> None:
    """Use compiled loops from now on.

    Servers do, which check thousands of reports. A device makes one: it would load Numba for
    nothing (.43 s of processor time instead of .33 s for 3,706 items).
    """
    global _engine
    from hdpmf.common.aggregation.two_servers.prio import compiled

    _engine = compiled


_DOMAIN = 1

Buffer = bytes | memoryview
"""Bytes, or a part of them that nobody has copied."""


def xof_lanes(tag: bytes, seed: bytes, binder: Sequence[Buffer], count: int) -> np.ndarray:
    """The first ``count`` words of 64 bits; the binder is given in parts."""
    return turboshake128((bytes([len(tag)]), tag, seed, *binder), _DOMAIN, count)


def derive_seed(tag: bytes, seed: bytes, binder: Sequence[Buffer], size: int) -> bytes:
    """The first ``size`` bytes; the binder is given in parts."""
    lanes = -(-size // 8)  # no mutant: of more of them the first bytes are the same
    return xof_lanes(tag, seed, binder, lanes).tobytes()[:size]


def turboshake128(message: Sequence[Buffer], domain: int, count: int) -> np.ndarray:
    """The first ``count`` words of 64 bits, little-endian, of TurboSHAKE128.

    The message is given in parts, because a copy of a whole report takes time.
    """
    size = sum(map(len, message)) + 1
    padding = bytes(-size % (8 * plain.RATE_LANES))
    padded = bytearray().join((*message, bytes([domain]), padding))
    padded[-1] ^= 0x80
    out = np.empty(-(-count // plain.RATE_LANES) * plain.RATE_LANES, np.uint64)
    kernels().sponge(np.frombuffer(padded, "<u8"), out)
    return out[:count]


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
        if self.words == 1:
            return np.dtype(np.uint64)
        return np.dtype([("low", np.uint64), ("high", np.uint64)])

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

    def decode(self, encoded: Buffer, count: int) -> np.ndarray:
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
            lanes = xof_lanes(tag, seed, (binder,), (count + spare) * self.words)
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
        return np.asarray(kernels().add_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def sub(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Element by element; shapes must be the same."""
        return np.asarray(kernels().sub_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def mul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Element by element; shapes must be the same."""
        return np.asarray(kernels().mul_vectors(a.ravel(), b.ravel())).reshape(a.shape)

    def times(self, factor: int, vector: np.ndarray) -> np.ndarray:
        """A public whole number times each element."""
        return self.mul(np.full(vector.shape, self.vector([factor])[0]), vector)

    def combine(self, factors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sum of a matrix's rows, each times its factor."""
        return np.asarray(kernels().combine_rows(factors, rows))

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The sum of products, as a vector of one element."""
        return self.combine(a, b.reshape(-1, 1))

    def total(self, vector: np.ndarray) -> np.ndarray:
        """The sum of a vector, as a vector of one element."""
        return self.dot(np.full(len(vector), self.vector([1])[0]), vector)

    def powers(self, base: np.ndarray, count: int) -> np.ndarray:
        """So many powers of a vector's only element, from the first one on."""
        return np.asarray(kernels().powers(base, count))

    def evaluate(self, rows: np.ndarray, size: int) -> np.ndarray:
        """Evaluate polynomials (rows of coefficients) at the ``size`` powers of a root of unity."""
        return np.asarray(
            kernels().transform(rows, _reversal(rows.shape[1]), _roots(self, size, False))
        )

    def at_point(
        self, polynomial: np.ndarray, point: np.ndarray, span: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As the kernel ``at_point``, with the ``span`` powers of a root of unity."""
        one, scale = _one(self), _inverse(self, span)
        roots, inverse = _roots(self, span, False), _roots(self, span, True)
        found = kernels().at_point(polynomial, point, one, _reversal(span), roots, inverse, scale)
        return tuple(map(np.asarray, found))  # type: ignore[return-value]

    def is_one(self, element: np.ndarray) -> bool:
        """Return True if a public vector's only element is 1."""
        return element.tobytes() == _one(self).tobytes()

    def are_zero(self, vector: np.ndarray) -> bool:
        """Return True if all elements, which may be known, are 0."""
        return vector.tobytes() == bytes(vector.nbytes)

    def interpolate(self, rows: np.ndarray) -> np.ndarray:
        """The coefficients behind such values."""
        size = rows.shape[1]
        found = np.asarray(kernels().transform(rows, _reversal(size), _roots(self, size, True)))
        return self.times(pow(size, -1, self.modulus), found)


@cache
def _one(field: Field) -> np.ndarray:
    return field.vector([1])


@cache
def _inverse(field: Field, number: int) -> np.ndarray:
    return field.vector([pow(number, -1, field.modulus)])


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
