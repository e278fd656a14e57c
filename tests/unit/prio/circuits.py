"""What only the draft's vectors need: Field128, and circuits that no task of ours has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import FIELD64, Field, Prio3
from hdpmf.common.aggregation.two_servers.prio.proof import Circuit, best_chunk
from hdpmf.common.aggregation.two_servers.prio.rank_one import bits_of, weights_of


class _Field128(Field):
    """Field128 in Python's whole numbers, an array of objects."""

    name = "Field128"
    modulus = 2**128 - 28 * 2**64 + 1
    size = 16
    dtype: np.dtype[Any] = np.dtype(object)

    def encode(self, vector):
        return b"".join(int(value).to_bytes(self.size, "little") for value in vector.ravel())

    def elements_of(self, words):
        found = [int(high) << 64 | int(low) for low, high in words.reshape(-1, 2)]
        return np.array([value for value in found if value < self.modulus], object)

    def add(self, a, b):
        return (a + b) % self.modulus

    def sub(self, a, b):
        return (a - b) % self.modulus

    def mul(self, a, b):
        return a * b % self.modulus

    def combine(self, factors, rows):
        return (factors[:, None] * rows).sum(axis=0, initial=0) % self.modulus

    def powers(self, base, count):
        return self.vector([pow(base[0], power, self.modulus) for power in range(1, count + 1)])

    def transform(self, rows, roots):
        size = 2 * len(roots)
        every = [*roots, *(self.modulus - root for root in roots)]
        table = [[every[i * k % size] for i in range(size)] for k in range(rows.shape[1])]
        return rows.dot(np.array(table, object)) % self.modulus

    def lagrange(self, point, nodes, scales):
        found = []
        for place, scale in enumerate(scales):
            for other in np.delete(nodes, place):
                scale = scale * (point[0] - other) % self.modulus
            found.append(scale)
        return self.vector(found)


FIELD128 = _Field128()


class SumVec(Circuit):
    """Vectors of numbers up to ``largest``, in bits."""

    degree = 2
    outputs = 1

    def __init__(self, entries: int, largest: int, chunk: int = 0, field: Field = FIELD64) -> None:
        self.field = field
        self.largest = largest
        self.weights = weights_of(largest)
        self.output_length = entries
        self.length = entries * len(self.weights)
        self.chunk = chunk or best_chunk(self.length, 2, self.degree)
        self.calls = self.random_length = -(-self.length // self.chunk)
        self.random_degree = self.chunk
        self.arity = 2 * self.chunk

    def encode(self, values):
        return self.field.secret(bits_of(np.array(values), self.largest).T.ravel())

    def wires(self, vector, joint, shares):
        field = self.field
        padded = np.zeros(self.calls * self.chunk, field.dtype)
        padded[: self.length] = vector
        factors = [field.powers(joint[call : call + 1], self.chunk) for call in range(self.calls)]
        less = field.vector([pow(shares, -1, field.modulus)])
        pairs = np.empty((len(padded), 2), field.dtype)
        pairs[:, 0] = field.mul(np.concatenate(factors), padded)
        pairs[:, 1] = field.sub(padded, np.full(len(padded), less[0]))
        return pairs.reshape(self.calls, self.arity)

    def gadget(self, points, joint):
        ones = self.field.vector([1] * self.chunk)
        return self.field.combine(ones, self.field.mul(points[::2], points[1::2]))

    def result(self, called, vector, joint, shares):
        return self.field.dot(self.field.vector([1] * self.calls), called)

    def truncate(self, vector):
        rows = np.ascontiguousarray(vector.reshape(self.output_length, -1).T)
        return self.field.combine(self.field.vector(self.weights), rows)


class Polynomial(Circuit):
    """Each element is a root of a polynomial: Count, Sum and HigherDegree of the draft."""

    random_length = 0
    random_degree = 0
    arity = 1

    def __init__(self, roots: int, weights: Sequence[int]) -> None:
        self.degree = self.roots = roots
        self.weights = weights
        self.length = self.calls = self.outputs = len(weights)
        self.output_length = 1

    def encode(self, value: int) -> np.ndarray:
        if len(self.weights) == 1:
            return FIELD64.vector([value])
        return SumVec(1, sum(self.weights)).encode([value])

    def wires(self, vector, joint, shares):
        return vector.reshape(-1, 1)

    def gadget(self, points, joint):
        product = points[0]
        for root in range(1, self.roots):
            product = FIELD64.mul(
                product, FIELD64.sub(points[0], np.full(points.shape[1], root, np.uint64))
            )
        return product

    def result(self, called, vector, joint, shares):
        return called

    def truncate(self, vector):
        return FIELD64.dot(FIELD64.vector(self.weights), vector)


class Count(Polynomial):
    """One bit; the gadget is a product of two wires."""

    arity = 2

    def __init__(self) -> None:
        super().__init__(2, [1])

    def wires(self, vector, joint, shares):
        return np.stack([vector, vector], axis=1)

    def gadget(self, points, joint):
        return FIELD64.mul(points[0], points[1])

    def result(self, called, vector, joint, shares):
        return FIELD64.sub(called, vector)


class Multihot(SumVec):
    """Bits, at most ``most`` of them 1 (MultihotCountVec), or for None exactly one (Histogram)."""

    outputs = 2

    def __init__(self, entries: int, chunk: int, most: int | None) -> None:
        self.counted = None if most is None else SumVec(1, most, field=FIELD128)
        further = self.counted.length if self.counted else 0
        super().__init__(entries + further, 1, chunk, FIELD128)
        self.output_length = entries

    def encode(self, value):
        if self.counted is None:
            return FIELD128.vector([value == place for place in range(self.output_length)])
        bits = FIELD128.vector([int(bit) for bit in value])
        return np.concatenate([bits, self.counted.encode([sum(value)])])

    def result(self, called, vector, joint, shares):
        claimed = FIELD128.vector([pow(shares, -1, FIELD128.modulus)])
        if self.counted is not None:
            claimed = self.counted.truncate(vector[self.output_length :])
        total = vector[: self.output_length].sum(keepdims=True)
        return np.concatenate(
            [super().result(called, vector, joint, shares), (total - claimed) % FIELD128.modulus]
        )

    def truncate(self, vector):
        return vector[: self.output_length]


def vdaf_of(kind: str, given: dict[str, Any]) -> Prio3:
    """The VDAF of a file of vectors."""
    length, chunk = given.get("length"), given.get("chunk_length")
    largest = given.get("max_measurement")
    circuit, identifier = {
        "Prio3Count": lambda: (Count(), 1),
        "Prio3Sum": lambda: (Polynomial(2, SumVec(1, largest).weights), 2),
        "Prio3SumVec": lambda: (SumVec(length, largest, chunk, FIELD128), 3),
        "Prio3Histogram": lambda: (Multihot(length, chunk, None), 4),
        "Prio3MultihotCountVec": lambda: (Multihot(length, chunk, given["max_weight"]), 5),
        "Prio3SumVecWithMultiproof": lambda: (SumVec(length, largest, chunk), 0xFFFFFFFF),
        "Prio3HigherDegree": lambda: (Polynomial(3, [1]), 0xFFFFFFFF),
    }[kind]()
    proofs = 3 if kind == "Prio3SumVecWithMultiproof" else 1
    context = bytes.fromhex(given["ctx"])
    return Prio3(circuit, identifier, proofs=proofs, servers=given["shares"], context=context)
