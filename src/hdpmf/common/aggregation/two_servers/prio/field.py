"""Field64 of the draft (arrays, bytes, polynomials by their values), and the expandable hash.

That is TurboSHAKE128 (RFC 9861): Keccak-p[1600] with 12 rounds. The draft's XofTurboShake128 hashes
``len(tag) | tag | len(seed) | seed | binder`` with domain byte 1.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import plain
from hdpmf.common.aggregation.two_servers.prio.arithmetic import MODULUS
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
    sizes = len(tag).to_bytes(2, "little"), bytes([len(seed)])
    return turboshake128((sizes[0], tag, sizes[1], seed, *binder), _DOMAIN, count)


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


_GENERATOR = 7  # of the multiplicative group


class Field:
    """Field64: an element is a word, below the modulus."""

    name = "Field64"
    modulus = MODULUS
    size = 8
    """Bytes of an element."""
    dtype: np.dtype[Any] = np.dtype(np.uint64)

    def vector(self, values: Sequence[int]) -> np.ndarray:
        """Public whole numbers, negative ones too, as elements."""
        return np.array([value % self.modulus for value in values], self.dtype)

    def secret(self, values: np.ndarray) -> np.ndarray:
        """Secret whole numbers (int64) as elements; the same steps whatever their sign."""
        above, below = (part.astype(self.dtype) for part in (values.clip(0), (-values).clip(0)))
        return self.sub(above, below)

    def integers(self, vector: np.ndarray) -> list[int]:
        """The whole numbers of elements, the nearest to zero."""
        half = self.modulus // 2
        return [value - self.modulus if value > half else value for value in vector.tolist()]

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
        words = np.frombuffer(bytearray(encoded), np.uint64)
        vector = self.elements_of(words)
        if len(vector) != count:
            raise PrioError(
                f"a number is not an element of {self.name}: it is not below the modulus"
            )
        return vector

    def expand(self, tag: bytes, seed: bytes, binder: bytes, count: int) -> np.ndarray:
        """Return pseudorandom elements, by rejection sampling."""
        spare = 0
        while True:
            lanes = xof_lanes(tag, seed, (binder,), (count + spare) * self.size // 8)
            found = self.elements_of(lanes)
            if len(found) >= count:  # no mutant: a longer stream begins with the same elements
                return found[:count]
            spare += 1 + count - len(found)

    def elements_of(self, words: np.ndarray) -> np.ndarray:
        """The elements among random words."""
        below = words < np.uint64(self.modulus)
        return words if bool(below.all()) else words[below]

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

    def powers(self, base: np.ndarray, count: int) -> np.ndarray:
        """So many powers of a vector's only element, from the first one on."""
        return np.asarray(kernels().powers(base, count))

    def transform(self, rows: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """As the kernel: polynomials, rows of coefficients, at the powers of a root of unity."""
        return np.asarray(kernels().transform(rows, _reversal(rows.shape[1]), roots))

    def lagrange(self, point: np.ndarray, nodes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """As the kernel."""
        return np.asarray(kernels().lagrange(point, nodes, scales))

    def extend(self, rows: np.ndarray, size: int) -> np.ndarray:
        """Polynomials, given by values at all powers of a root of unity, at those of another."""
        span = rows.shape[1]
        inverse = np.concatenate([_roots(self, span)[:1], _roots(self, span)[:0:-1]])[: span // 2]
        scaled = self.times(pow(span, -1, self.modulus), rows)
        return self.transform(self.transform(scaled, inverse), _roots(self, size)[: size // 2])

    def weights(self, point: np.ndarray, size: int, count: int) -> np.ndarray:
        """How a polynomial's first ``count`` values make its value at a point.

        Its values are those at the ``size`` powers of a root of unity, and it has no more than
        ``count`` coefficients.
        """
        return self.lagrange(point, _roots(self, size)[:count], _scales(self, size, count))

    def every(self, values: np.ndarray, size: int, step: int, count: int) -> np.ndarray:
        """Every ``step``-th value of such a polynomial, ``count`` of them after the first one."""
        rest = self.combine(values, _rest(self, len(values), size, step, count))
        return np.concatenate([values[step::step][:count], rest])


@cache
def _reversal(size: int) -> np.ndarray:
    indices = np.zeros(1, np.int64)
    while len(indices) < size:
        indices = np.concatenate([2 * indices, 2 * indices + 1])
    return indices


@cache
def _roots(field: Field, size: int) -> np.ndarray:
    """The powers of a root of unity, from 1 on."""
    root = pow(_GENERATOR, (field.modulus - 1) // size, field.modulus)
    found = [1]
    while len(found) < size:
        found.append(found[-1] * root % field.modulus)
    return field.vector(found)


@cache
def _scales(field: Field, size: int, count: int) -> np.ndarray:
    """The scales of the kernel ``lagrange`` for the first ``count`` of these roots.

    The product over j != k of w^k - w^j, with the products P(k) of the first w^i - 1, is
    w^(k (k - 1) / 2) P(k) for j < k, and (-w^k)^r P(r) for the r that are above.
    """
    prime, roots = field.modulus, _roots(field, size).tolist()
    products = [1]
    for root in roots[1:count]:
        products.append(products[-1] * (root - 1) % prime)
    found = []
    for k in range(count):
        rest = count - 1 - k
        power = roots[(k * (k - 1) // 2 + k * rest) % size]
        found.append(pow((-1) ** rest * power * products[k] * products[rest], -1, prime))
    return field.vector(found)


@cache
def _rest(field: Field, known: int, size: int, step: int, count: int) -> np.ndarray:
    """How known values make those of ``Field.every`` that are not among them; a column each."""
    roots = _roots(field, size)
    missing = [place for place in range(step, step * count + 1, step) if place >= known]
    columns = [field.weights(roots[place : place + 1], size, known) for place in missing]
    return np.stack(columns, axis=1) if columns else np.empty((known, 0), field.dtype)


FIELD64 = Field()
