"""Proofs that a shared vector is valid: FlpGeneric (Boneh et al. 2019, theorem 4.3), and SumVec.

A *circuit* says which vectors are valid: it calls one *gadget*, a polynomial of low degree, several
times on wires that are affine in the vector, and is 0 (with high probability over the joint
randomness) only for valid vectors. The prover interpolates each wire over the calls and sends the
gadget of these polynomials, itself a polynomial; servers read the gadget's outputs from it, and
check it at one random point.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import Field, kernels
from hdpmf.errors import ConfigError, PrioError


class Circuit(ABC):
    """A validity circuit: the vectors that are valid, and the part of them that is summed.

    Attributes:
        length: Elements of the vector that is shared.
        output_length: Elements that are summed.
        random_length: Elements of joint randomness per proof.
        arity: Wires of the gadget.
        degree: Of the gadget.
        calls: Of the gadget.
        random_degree: An invalid vector makes the circuit 0 with at most this probability, times
            the field's size.
    """

    field: Field
    length: int
    output_length: int
    random_length: int
    arity: int
    degree: int
    calls: int
    random_degree: int

    @abstractmethod
    def wires(self, vector: np.ndarray, joint: np.ndarray, shares: int) -> np.ndarray:
        """Return the gadget's inputs, a row per call.

        Constants are divided by the number of shares.
        """

    def inputs(
        self,
        weights: np.ndarray,
        seeds: np.ndarray,
        vector: np.ndarray,
        joint: np.ndarray,
        shares: int,
    ) -> np.ndarray:
        """Return the sum of the seeds and the wires of each call, each times its weight."""
        rows = np.concatenate([seeds.reshape(1, -1), self.wires(vector, joint, shares)])
        return self.field.combine(weights, rows)

    @abstractmethod
    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The gadget at many points: a row of ``points`` is a wire, a column is a point."""

    @abstractmethod
    def result(self, outputs: np.ndarray, vector: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """Return the circuit's value, one element, from the gadget's outputs and the vector."""

    @abstractmethod
    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a vector that is summed."""

    @property
    def span(self) -> int:
        """The points of a wire: its seed and the calls, up to a power of two."""
        return 1 << self.calls.bit_length()

    @property
    def polynomial_length(self) -> int:
        """Coefficients of the gadget's polynomial."""
        return self.degree * (self.span - 1) + 1

    @property
    def proof_length(self) -> int:
        """Elements of a proof."""
        return self.arity + self.polynomial_length

    @property
    def verifier_length(self) -> int:
        """Elements that a server gives for each proof."""
        return self.arity + 2


def soundness_bits(circuit: Circuit, proofs: int) -> float:
    """An invalid vector passes with probability at most 2 to the minus this (the draft's formula).

    A proof fails to show it if the joint randomness hides the fault, or if the random point is a
    root of the difference of the gadget's true polynomial and the one sent. Who tries n inputs has
    n chances.
    """
    chances = circuit.random_degree + circuit.degree * (circuit.span - 1)
    return proofs * (math.log2(circuit.field.modulus - circuit.span) - math.log2(chances))


def best_chunk(elements: int, wires: int, degree: int) -> int:
    """Return the number of elements per call (``wires`` each) that gives the shortest proof."""
    spans = [1 << log for log in range(1, elements.bit_length() + 1)]
    chunks = {span: -(-elements // (span - 1)) for span in spans}
    return chunks[min(spans, key=lambda span: wires * chunks[span] + degree * (span - 1))]


def prove(circuit: Circuit, vector: np.ndarray, seeds: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Prove validity. Seeds are random elements, one per wire, which hide the wires."""
    field = circuit.field
    rows = np.zeros((circuit.arity, circuit.span), field.dtype)
    rows[:, 0] = seeds
    rows[:, 1 : circuit.calls + 1] = circuit.wires(vector, joint, 1).T
    size = 1 << (circuit.polynomial_length - 1).bit_length()
    points = field.evaluate(field.interpolate(rows), size)
    polynomial = field.interpolate(circuit.gadget(points, joint).reshape(1, -1))[0]
    return np.concatenate([seeds, polynomial[: circuit.polynomial_length]])


def query(
    circuit: Circuit,
    vector: np.ndarray,
    proof: np.ndarray,
    point: np.ndarray,
    joint: np.ndarray,
    shares: int,
) -> np.ndarray:
    """Return a server's verifier share, from its shares of vector and proof.

    Raises:
        PrioError: At this point a wire would be seen; it is one of ``span`` points of the whole
            field.
    """
    field = circuit.field
    seeds = proof[: circuit.arity]
    polynomial = proof[circuit.arity :]
    weights, values, value, power = field.at_point(polynomial, point, circuit.span)
    if field.is_one(power):
        raise PrioError(
            "the random point of this report would show an input; the report cannot be checked"
        )
    calls = circuit.calls
    result = circuit.result(values[1 : calls + 1], vector, joint)
    inputs = circuit.inputs(weights[: calls + 1], seeds, vector, joint, shares)
    return np.concatenate([result, inputs, value])


def decide(circuit: Circuit, verifier: np.ndarray, joint: np.ndarray) -> bool:
    """Return True if the sum of all servers' verifier shares shows a valid vector."""
    found = circuit.gadget(verifier[1:-1].reshape(-1, 1), joint)
    difference = circuit.field.sub(found, verifier[-1:])
    return circuit.field.are_zero(np.concatenate([verifier[:1], difference]))


class SumVec(Circuit):
    """Vectors of ``entries`` numbers below 2^bits. Each bit b is checked by b (b - 1) = 0.

    Args:
        chunk: Bits that a call of the gadget checks; without it that with the shortest proof.
    """

    random_length = 1
    degree = 2

    def __init__(self, field: Field, entries: int, bits: int, chunk: int | None = None) -> None:
        if entries < 1 or not 1 <= bits <= 62 or (chunk is not None and chunk < 1):
            raise ConfigError(
                "a vector has at least 1 entry of 1 to 62 bits, and a chunk at least 1 bit"
            )
        self.field = field
        self.bits = bits
        self.output_length = entries
        self.length = self.random_degree = entries * bits
        self.chunk = best_chunk(self.length, 2, self.degree) if chunk is None else chunk
        self.calls = -(-self.length // self.chunk)
        self.arity = 2 * self.chunk

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The bits of a vector, the lowest first."""
        values = np.asarray(values, np.int64)
        if values.shape != (self.output_length,) or bool(
            ((values < 0) | (values >> self.bits != 0)).any()
        ):
            raise PrioError(
                f"expected {self.output_length} numbers of {self.bits} bits; nothing was shared"
            )
        return self.field.secret((values[:, None] >> np.arange(self.bits)) & 1).ravel()

    def wires(self, vector: np.ndarray, joint: np.ndarray, shares: int) -> np.ndarray:
        """For each bit: the bit times a power of the joint randomness, and the bit less 1."""
        field = self.field
        padded = np.zeros(self.calls * self.chunk, self.field.dtype)
        padded[: self.length] = vector
        less = field.vector([pow(shares, -1, field.modulus)])
        pairs = np.empty((len(padded), 2), field.dtype)
        pairs[:, 0] = field.mul(field.powers(joint, len(padded)), padded)
        pairs[:, 1] = field.sub(padded, np.full(len(padded), less[0]))
        return pairs.reshape(self.calls, self.arity)

    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The sum over pairs of wires of their products."""
        return np.asarray(kernels().sum_of_products(points))

    def result(self, outputs: np.ndarray, vector: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The sum over all calls."""
        return self.field.total(outputs)

    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """The numbers behind the bits."""
        weights = self.field.vector([1 << bit for bit in range(self.bits)])
        return self.field.combine(weights, np.ascontiguousarray(vector.reshape(-1, self.bits).T))
