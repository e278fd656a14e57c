"""Our own circuit, "vector, bounded squares": whole numbers whose squares add up to little.

For each of n entries a vector has two digits; for some further entries, which nobody sums, too; and
for each call of the gadget a subtotal. Valid is a vector in which

1. every digit is 0 to 2 h, or -h to h if entries are signed, so that every entry, lower +
   (2 h + 1) upper, is a whole number from 0 (or -``reach``) to ``reach``; h is the smallest for
   which this is at least ``largest``, which no honest entry is above;
2. every subtotal is the sum of the squares of the call's entries;
3. the subtotals add up to ``bound``: the squares of the n entries to at most that.

The further entries make up what is left of the bound. A device takes the largest root that fits,
again and again; however much is left, ``fill`` entries are enough.

**Soundness.** A call's 2 slots + 1 constraints are polynomials in wires that do not depend on
randomness; the gadget adds them with the powers of one random r as factors, so that a fault leaves
a polynomial in r that is not 0, of degree at most 2 slots + 1: ``random_degree``. Each call is an
output, and constraint 3 is one more. Nothing wraps around: with constraint 1 the squares of all
entries add up to a whole number below 2^52 < p, which constraints 2 and 3 make equal to the bound.
With 3,706 entries up to 80 three proofs in Field64 fail with probability 2^-164
(``soundness_bits``).

**Two digits instead of bits.** They cost a gadget of degree 2 h + 1. The leader's share of 3,706
entries up to 80 has 72 KB, of 20,000 350 KB; with bits, each checked by a product, and a product
for each square it would have 225 KB and 1.16 MB; with one digit 56 KB and 222 KB, but a gadget of
degree 81 instead of 9, and so forty times as many products on the device. What other largest
entries cost: ``benchmarks/prio.py --largest``.
"""

from itertools import accumulate

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import kernels
from hdpmf.common.aggregation.two_servers.prio.prio3 import Prio3, stated
from hdpmf.common.aggregation.two_servers.prio.proof import PartsCircuit, best_chunk
from hdpmf.errors import ConfigError, PrioError

_LARGEST_HALF = 16  # a gadget of degree 33
_MOST = 1 << 52  # roots of smaller numbers are exact in floating point


class BoundedVector(PartsCircuit):
    """Entries from 0, or from -``reach``, to ``reach``, of squared length up to ``bound``."""

    random_length = 1

    def __init__(self, entries: int, largest: int, bound: int, signed: bool) -> None:
        reaches = [(2 if signed else 4) * half * (half + 1) for half in range(_LARGEST_HALF + 1)]
        if entries < 1 or not 1 <= largest <= reaches[-1]:
            raise ConfigError(
                f"a vector has an entry, and its largest entry is from 1 to {reaches[-1]}"
            )
        half = next(half for half, reach in enumerate(reaches) if reach >= largest)
        self.reach = reaches[half]
        self.fill = bound // self.reach**2 + _most_roots(self.reach**2 - 1)
        if not (bound >= 1 and (entries + self.fill) * self.reach**2 < _MOST):
            raise ConfigError("squares must add up to at least 1 and less than 2^52")
        self.largest, self.bound, self.signed = largest, bound, signed
        self.output_length = entries
        self.items = entries + self.fill
        self.half, self.degree = half, 2 * half + 1
        self.slots = best_chunk(self.items, 2, self.degree)
        self.calls = -(-self.items // self.slots)
        self.outputs = self.calls + 1
        self.arity = 2 * self.slots
        self.length = 2 * self.items + self.calls
        self.random_degree = 2 * self.slots + 1
        middle = 0 if signed else half
        squares = (k * k for k in range(1, half + 1))
        self._constants = self.field.vector([middle, self.degree, *squares])

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The vector of such entries, by the same steps whatever they are."""
        values = np.asarray(values, np.int64)
        if values.shape != (self.output_length,):
            raise PrioError(f"expected {self.output_length} entries; nothing was shared")
        lowest = -self.largest if self.signed else 0
        rest = self.bound - (values.clip(-self.largest, self.largest) ** 2).sum()
        if bool(((values < lowest) | (values > self.largest)).any() | (rest < 0)):
            raise PrioError("a vector is off its range or too long; nothing was shared")
        further = np.zeros(self.fill, np.int64)
        for place in range(self.fill):
            further[place] = np.minimum(np.sqrt(rest).astype(np.int64), self.reach)
            rest -= further[place] ** 2
        every = np.concatenate([values, further])
        offset = self.half if self.signed else 0
        upper, lower = np.divmod(every + offset * (self.degree + 1), self.degree)
        digits = lower - offset, upper - offset
        subtotals = np.add.reduceat(every**2, np.arange(0, self.items, self.slots))
        return self.field.secret(np.concatenate([*digits, subtotals]))

    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """Sum constraint 1 and the wires' part of 2 over all slots, weighted."""
        factors = self._factors(joint)
        return np.asarray(kernels().sum_of_digits(points, factors, self._constants))

    def result(
        self, called: np.ndarray, vector: np.ndarray, joint: np.ndarray, shares: int
    ) -> np.ndarray:
        """The calls less their subtotals, which are no wires; and constraint 3."""
        field, subtotals = self.field, vector[2 * self.items :]
        claimed = field.mul(np.full(self.calls, self._factors(joint)[-1]), subtotals)
        bound = field.vector([self.bound * pow(shares, -1, field.modulus)])
        total = field.dot(field.vector([1] * self.calls), subtotals)
        return np.concatenate([field.sub(called, claimed), field.sub(total, bound)])

    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """The entries behind the digits, without further ones."""
        lower, upper = vector[: 2 * self.items].reshape(2, -1)[:, : self.output_length]
        return self.field.add(lower, self.field.times(self.degree, upper))

    def _factors(self, joint: np.ndarray) -> np.ndarray:
        """Return powers of the random element, one per constraint."""
        return self.field.powers(joint, self.arity + 1)


def _most_roots(number: int) -> int:
    """So many largest roots are enough for any whole number up to this one.

    The least number that needs one more root than n is n + ((n + 1) / 2)^2.
    """
    least = accumulate(range(64), lambda n, _: n + ((n + 1) // 2) ** 2, initial=1)
    return next(count for count, needs in enumerate(least) if needs > number)


def prio3_bounded_vector(
    entries: int, largest: int, bound: int, signed: bool, context: bytes
) -> Prio3:
    """Prio3 with the circuit ``BoundedVector``; its parameters follow the application's context."""
    circuit = BoundedVector(entries, largest, bound, signed)
    parameters = stated(8, entries, largest, bound, int(signed))
    return Prio3(circuit, 0xFFFF1003, proofs=3, context=context, parameters=parameters)
