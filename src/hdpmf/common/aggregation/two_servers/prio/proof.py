"""Proofs that a shared vector is valid: FlpBBCGGI19 (Boneh et al. 2019, theorem 4.3).

A *circuit* says which vectors are valid: it calls one *gadget*, a polynomial of low degree, several
times on wires that are affine in the vector, and its outputs are all 0 (but for a small probability
over the joint randomness) only for valid vectors. The prover interpolates each wire over the calls
and sends the gadget of these polynomials, itself a polynomial, by its values at roots of unity.
Servers read the gadget's outputs from it, add the circuit's outputs with random factors that no
device can know, and check the polynomial at one random point.
"""

import math
from abc import ABC, abstractmethod

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import FIELD64, Field, kernels
from hdpmf.errors import PrioError


class Circuit(ABC):
    """A validity circuit: the vectors that are valid, and the part of them that is summed.

    Attributes:
        length: Elements of the vector that is shared.
        output_length: Elements that are summed.
        random_length: Elements of joint randomness per proof.
        outputs: Elements that are 0 for a valid vector.
        arity: Wires of the gadget.
        degree: Of the gadget.
        calls: Of the gadget.
        random_degree: An invalid vector makes all outputs 0 with at most this probability, times
            the field's size.
    """

    field: Field = FIELD64
    length: int
    output_length: int
    random_length: int
    outputs: int
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
    def result(
        self, called: np.ndarray, vector: np.ndarray, joint: np.ndarray, shares: int
    ) -> np.ndarray:
        """Return the circuit's outputs, from the gadget's ones and the vector."""

    @abstractmethod
    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a vector that is summed."""

    @property
    def span(self) -> int:
        """The points of a wire: its seed and the calls, up to a power of two."""
        return 1 << self.calls.bit_length()

    @property
    def polynomial_length(self) -> int:
        """Values by which the gadget's polynomial is sent."""
        return self.degree * (self.span - 1) + 1

    @property
    def size(self) -> int:
        """The roots of unity at the first of which these values are."""
        return 1 << (self.polynomial_length - 1).bit_length()

    @property
    def proof_length(self) -> int:
        """Elements of a proof."""
        return self.arity + self.polynomial_length

    @property
    def verifier_length(self) -> int:
        """Elements that a server gives for each proof."""
        return self.arity + 2

    @property
    def query_length(self) -> int:
        """Random elements that servers check a proof with: a point, and factors of outputs."""
        return 1 + (self.outputs if self.outputs > 1 else 0)


class PartsCircuit(Circuit):
    """A circuit whose wires are the first parts of its vector, each of so many items.

    Attributes:
        slots: Items of each part that a call takes.
    """

    items: int
    slots: int

    def wires(self, vector: np.ndarray, joint: np.ndarray, shares: int) -> np.ndarray:
        """Return the items of each part, padded with zeros."""
        parts = self.arity // self.slots
        padded = np.zeros((parts, self.calls * self.slots), self.field.dtype)
        padded[:, : self.items] = vector[: parts * self.items].reshape(parts, -1)
        return np.concatenate(padded.reshape(parts, self.calls, self.slots), axis=1)

    def inputs(
        self,
        weights: np.ndarray,
        seeds: np.ndarray,
        vector: np.ndarray,
        joint: np.ndarray,
        shares: int,
    ) -> np.ndarray:
        """As in ``Circuit``, without a copy of the wires."""
        return np.asarray(kernels().inputs_of_parts(weights, seeds, vector, self.items, self.slots))


def soundness_bits(circuit: Circuit, proofs: int) -> float:
    """An invalid vector passes with probability at most 2 to the minus this (the draft's formula).

    A proof fails to show it if the joint randomness hides the fault, if the factors of the outputs
    do, or if the random point is a root of the difference of the gadget's true polynomial and the
    one sent. Who tries n inputs has n chances of the first kind; the other two are drawn with the
    servers' key, which no device knows.
    """
    chances = circuit.random_degree + 1 + circuit.degree * (circuit.span - 1)
    return proofs * (math.log2(circuit.field.modulus - circuit.span) - math.log2(chances))


def best_chunk(elements: int, wires: int, degree: int) -> int:
    """Return the number of elements per call (``wires`` each) that gives the shortest proof."""
    spans = [1 << log for log in range(1, elements.bit_length() + 1)]
    chunks = {span: -(-elements // (span - 1)) for span in spans}
    return chunks[min(spans, key=lambda span: wires * chunks[span] + degree * (span - 1))]


def prove(circuit: Circuit, vector: np.ndarray, seeds: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Prove validity. Seeds are random elements, one per wire, which hide the wires."""
    rows = np.zeros((circuit.arity, circuit.span), circuit.field.dtype)
    rows[:, 0] = seeds
    rows[:, 1 : circuit.calls + 1] = circuit.wires(vector, joint, 1).T
    points = circuit.field.extend(rows, circuit.size)[:, : circuit.polynomial_length]
    return np.concatenate([seeds, circuit.gadget(np.ascontiguousarray(points), joint)])


def query(
    circuit: Circuit,
    vector: np.ndarray,
    proof: np.ndarray,
    random: np.ndarray,
    joint: np.ndarray,
    shares: int,
) -> np.ndarray:
    """Return a server's verifier share, from its shares of vector and proof.

    Raises:
        PrioError: At the random point a wire would be seen; it is one of ``span`` points of the
            whole field.
    """
    field, size, span, calls = circuit.field, circuit.size, circuit.span, circuit.calls
    seeds, values = proof[: circuit.arity], proof[circuit.arity :]
    point = random[-1:]
    if pow(field.integers(point)[0], span, field.modulus) == 1:
        raise PrioError(
            "the random point of this report would show an input; the report cannot be checked"
        )
    called = field.every(values, size, size // span, calls)
    result = circuit.result(called, vector, joint, shares)
    if circuit.outputs > 1:
        result = field.dot(random[:-1], result)
    weights = field.weights(point, span, span)[: calls + 1]
    inputs = circuit.inputs(weights, seeds, vector, joint, shares)
    value = field.dot(field.weights(point, size, len(values)), values)
    return np.concatenate([result, inputs, value])


def decide(circuit: Circuit, verifier: np.ndarray, joint: np.ndarray) -> bool:
    """Return True if the sum of all servers' verifier shares shows a valid vector."""
    found = circuit.gadget(verifier[1:-1].reshape(-1, 1), joint)
    difference = circuit.field.sub(found, verifier[-1:])
    return not (verifier[:1].any() or difference.any())
