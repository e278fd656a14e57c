"""Our own circuit, "rank one, bounded trace": the products of one short row, each pair once.

A vector has the bits of a row a of m whole numbers, the bits of a slack, and p_jk for j <= k, which
are summed. Valid is a vector in which

1. every bit is 0 or 1, so that every a_j is a whole number from 0 to ``largest`` and the slack one
   from 0 to ``bound`` (the last bit counts what makes all ones the largest number, as in the
   draft);
2. p_jk = a_j a_k for all pairs;
3. sum p_jj + slack = ``bound``, so that the row's squared length is at most ``bound``.

Constraint 2 is one product instead of m (m + 1) / 2, at a random vector u: (u a)^2 is compared with
the sum of u_j u_k p_jk over all ordered pairs. The number u a is checked like a further bit x, by
x (x - 1), and what the gadget gives for it is compared with that sum less u a.

**Soundness.** A call of the gadget adds ``chunk`` products, each with its power of a random r, and
is an output of its own.

- A bit that is none leaves a polynomial in r that is not 0, of degree at most ``chunk``, in its
  call: the joint randomness hides it with probability at most chunk / p.
- If all bits are bits and a product is wrong, the difference of the two sums is a polynomial in u
  of degree 2 that is not 0, because p is odd: a pair's coefficient is twice its fault. It is 0 at u
  with probability at most 2 / p (Schwartz and Zippel), and r is 0 with 1 / p.
- If only constraint 3 is broken, its output is not 0. Nothing wraps around: with constraints 1 and
  2 its left side is a whole number below m largest^2 + bound + 1 < 2^63 < p.

So ``random_degree`` is the larger of chunk and 3. At 300 heads of 10 bits three proofs in Field64
fail with probability 2^-169 (``soundness_bits``).
"""

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import kernels
from hdpmf.common.aggregation.two_servers.prio.prio3 import Prio3, stated
from hdpmf.common.aggregation.two_servers.prio.proof import Circuit, best_chunk
from hdpmf.errors import ConfigError, PrioError

_MOST = 1 << 62


class RankOne(Circuit):
    """All products of two entries of a row from 0 to ``largest`` of squared length up to ``bound``.

    The products are in the order p_11, p_12, ..., p_1m, p_22, ...
    """

    degree = 2

    def __init__(self, heads: int, largest: int, bound: int) -> None:
        if not (heads >= 1 and largest >= 1 and bound >= 1 and heads * largest**2 + bound < _MOST):
            raise ConfigError(
                "a row has a head, a largest entry and a bound of 1 or more, and squares that add "
                "up to less than 2^62"
            )
        self.heads, self.largest, self.bound = heads, largest, bound
        self.output_length = heads * (heads + 1) // 2
        self._entries, self._slack = weights_of(largest), weights_of(bound)
        self.bits = heads * len(self._entries) + len(self._slack)
        self.length = self.bits + self.output_length
        self.random_length = 1 + heads
        self.chunk = best_chunk(self.bits + 1, 2, self.degree)
        self.calls = -(-(self.bits + 1) // self.chunk)
        self.outputs = self.calls + 1
        self.arity = 2 * self.chunk
        self.random_degree = max(self.chunk, 3)
        before = np.arange(heads)
        self._diagonal = before * heads - before * (before - 1) // 2

    def encode(self, row: np.ndarray) -> np.ndarray:
        """The vector of a row, by the same steps whatever is in it."""
        row = np.asarray(row, np.int64)
        if row.shape != (self.heads,):
            raise PrioError(f"expected a row of {self.heads} entries; nothing was shared")
        slack = self.bound - (row.clip(0, self.largest) ** 2).sum(keepdims=True)
        if bool(((row < 0) | (row > self.largest)).any() | (slack < 0).any()):
            raise PrioError("a row is off its range or too long; nothing was shared")
        products = np.outer(row, row)[np.triu_indices(self.heads)]
        bits = [bits_of(row, self.largest).ravel(), bits_of(slack, self.bound).ravel()]
        return np.concatenate([*bits, products]).astype(self.field.dtype)

    def wires(self, vector: np.ndarray, joint: np.ndarray, shares: int) -> np.ndarray:
        """For each checked number: it times its power of the randomness, and it less 1."""
        numbers, factors = self._checked(vector, joint)
        pairs = np.empty((self.calls, self.chunk, 2), self.field.dtype)
        pairs[:, :, 0] = self.field.mul(np.tile(factors, (self.calls, 1)), numbers)
        pairs[:, :, 1] = self.field.sub(numbers, np.full_like(numbers, self._part(1, shares)[0]))
        return pairs.reshape(self.calls, self.arity)

    def inputs(
        self,
        weights: np.ndarray,
        seeds: np.ndarray,
        vector: np.ndarray,
        joint: np.ndarray,
        shares: int,
    ) -> np.ndarray:
        """As in ``Circuit``: both wires of a pair from one sum."""
        field = self.field
        numbers, factors = self._checked(vector, joint)
        sums = field.combine(weights[1:], numbers)
        ones = field.combine(weights[1:], np.tile(self._part(1, shares), (self.calls, 1)))
        pairs = np.empty((self.chunk, 2), field.dtype)
        pairs[:, 0] = field.mul(factors, sums)
        pairs[:, 1] = field.sub(sums, np.full(self.chunk, ones[0]))
        return field.add(pairs.ravel(), field.mul(np.full(self.arity, weights[0]), seeds))

    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """The sum over pairs of wires of their products."""
        return np.asarray(kernels().sum_of_products(points))

    def result(
        self, called: np.ndarray, vector: np.ndarray, joint: np.ndarray, shares: int
    ) -> np.ndarray:
        """The calls, the last one less what products claim for u a; and constraint 3."""
        field = self.field
        products = vector[self.bits :]
        numbers, factors = self._checked(vector, joint)
        place = self.bits % self.chunk
        squared = np.asarray(kernels().quadratic(joint[1:], products))
        claimed = field.sub(squared, numbers[-1, place : place + 1])
        slack = vector[self.bits - len(self._slack) : self.bits]
        trace = field.add(
            field.dot(field.vector([1] * self.heads), products[self._diagonal]),
            field.dot(field.vector(self._slack), slack),
        )
        return np.concatenate(
            [
                called[:-1],
                field.sub(called[-1:], field.mul(factors[place : place + 1], claimed)),
                field.sub(trace, self._part(self.bound, shares)),
            ]
        )

    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """The products."""
        return vector[self.bits :]

    def _checked(self, vector: np.ndarray, joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that a call checks, a row each (bits, u a, zeros), and their factors."""
        field, planes = self.field, len(self._entries)
        bits = vector[: self.heads * planes].reshape(planes, self.heads)
        row = field.combine(field.vector(self._entries), bits)
        numbers = np.zeros(self.calls * self.chunk, field.dtype)
        numbers[: self.bits] = vector[: self.bits]
        numbers[self.bits : self.bits + 1] = field.dot(joint[1:], row)
        return numbers.reshape(self.calls, self.chunk), field.powers(joint[:1], self.chunk)

    def _part(self, number: int, shares: int) -> np.ndarray:
        """A server's part of a public number."""
        return self.field.vector([number * pow(shares, -1, self.field.modulus)])


def weights_of(largest: int) -> list[int]:
    """What bits count of numbers from 0 to ``largest``: all ones are just that."""
    below = largest.bit_length() - 1
    return [*(1 << bit for bit in range(below)), largest + 1 - (1 << below)]


def bits_of(values: np.ndarray, largest: int) -> np.ndarray:
    """The bits of such numbers, a row for each weight."""
    *lower, last = weights_of(largest)
    top = (values >= 1 << len(lower)).astype(np.int64)
    rest = values - last * top
    return np.stack([*(rest >> bit & 1 for bit in range(len(lower))), top])


def prio3_rank_one(heads: int, largest: int, bound: int, context: bytes) -> Prio3:
    """Prio3 with the circuit ``RankOne``; its parameters follow the application's context."""
    circuit = RankOne(heads, largest, bound)
    parameters = stated(8, heads, largest, bound)
    return Prio3(circuit, 0xFFFF1002, proofs=3, context=context, parameters=parameters)
