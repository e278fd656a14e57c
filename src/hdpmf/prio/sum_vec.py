"""The draft's circuit SumVec: every entry of a vector has so many bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hdpmf.errors import ConfigError, PrioError
from hdpmf.prio.arithmetic import add, get, mul, put
from hdpmf.prio.field import Field
from hdpmf.prio.proof import Circuit, best_chunk


class SumVec(Circuit):
    """Vectors of ``entries`` numbers below 2^bits. Each bit b is checked by b (b - 1) = 0.

    Args:
        chunk: Bits that a call of the gadget checks; without it that with the shortest proof.
    """

    random_length = 1
    degree = 2

    def __init__(self, field: Field, entries: int, bits: int, chunk: int | None = None) -> None:
        if entries < 1 or not 1 <= bits <= 62 or (chunk is not None and chunk < 1):
            raise ConfigError("a vector has at least 1 entry of 1 to 62 bits, and a chunk at least 1 bit")
        self.field, self.bits, self.output_length = field, bits, entries
        self.length = self.random_degree = entries * bits
        self.chunk = best_chunk(self.length, 2, self.degree) if chunk is None else chunk
        self.calls = -(-self.length // self.chunk)
        self.arity = 2 * self.chunk

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The bits of a vector, the lowest first."""
        values = np.asarray(values, np.int64)
        if values.shape != (self.output_length,) or bool(((values < 0) | (values >> self.bits != 0)).any()):
            raise PrioError(f"expected {self.output_length} numbers of {self.bits} bits; nothing was shared")
        return self.field.secret((values[:, None] >> np.arange(self.bits)) & 1).reshape(-1)

    def wires(self, vector: np.ndarray, joint: np.ndarray, shares: int) -> np.ndarray:
        """For each bit: the bit times a power of the joint randomness, and the bit less 1."""
        field, padded = self.field, np.zeros(self.calls * self.chunk, self.field.dtype)
        padded[: self.length] = vector
        less = field.vector([pow(shares, -1, field.modulus)])
        pairs = np.empty((len(padded), 2), field.dtype)
        pairs[:, 0] = field.mul(field.powers(joint, len(padded)), padded)
        pairs[:, 1] = field.sub(padded, np.full(len(padded), less[0]))
        return pairs.reshape(self.calls, self.arity)

    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The sum over pairs of wires of their products."""
        return np.asarray(_sum_of_products(points))

    def result(self, outputs: np.ndarray, vector: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The sum over all calls."""
        return self.field.total(outputs)

    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """The numbers behind the bits."""
        places = self.field.vector([1 << bit for bit in range(self.bits)])
        return self.field.combine(places, np.ascontiguousarray(vector.reshape(-1, self.bits).T))


@njit(nogil=True, cache=True)
def _sum_of_products(points: Any) -> Any:
    out = np.zeros(points.shape[1], points.dtype)
    for pair in range(0, len(points), 2):
        for i in range(points.shape[1]):
            put(out, i, add(get(out, i), mul(get(points, (pair, i)), get(points, (pair + 1, i)))))
    return out
