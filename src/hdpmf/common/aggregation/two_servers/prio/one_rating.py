"""Our own circuit, "one rating per item": a valid vector is one that a legal user may send.

For each item a vector has a weight from 0 to 64 in two digits of 0 to 8 (lower + 7 upper), the
level of the rating, and its score; and for each call of the gadget a subtotal. Valid is a vector in
which

1. both digits of every weight are 0 to 8, so that the weight is a whole number from 0 to 64;
2. every level is one of the scale;
3. every score is its weight times the public code of its level;
4. every subtotal is the sum over the call's items of weight times the public ruler of the level.

Scores, weights and the sum of subtotals are summed. Numbers may be negative: an element stands for
the whole number that is nearest to zero.

**Soundness.** A call checks ``slots`` items. Its constraints, 4 slots + 1, are polynomials in wires
that do not depend on randomness; the gadget adds them with the powers of one random r as factors,
so that a fault in a call leaves a polynomial in r that is not 0, of degree at most 4 slots + 1.
Each call is an output of its own. So a proof's joint randomness hides a fault with probability at
most (4 slots + 1) / p: ``random_degree``. The gadget's degree is that of a digit's constraint, 9,
or that of the levels'. With 3,706 items and five levels there are 31 calls of 120 slots, and three
proofs in Field64 fail with probability 2^-163 (``soundness_bits``).

That the gadget knows r is no loss: r is fixed, by hashes of the shares, before the proof is made,
so the proof system's theorem holds for the circuit with that r. Servers compute r again before they
decide (``Prio3.verify``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.arithmetic import UPPER
from hdpmf.common.aggregation.two_servers.prio.field import Field, kernels
from hdpmf.common.aggregation.two_servers.prio.prio3 import Prio3, stated
from hdpmf.common.aggregation.two_servers.prio.proof import PartsCircuit, best_chunk
from hdpmf.errors import ConfigError, PrioError

LARGEST_WEIGHT = 64
_DIGITS = 9  # values of a digit
_MOST_LEVELS = 16
_CONSTANTS = 17  # 0 to 16, which the gadget subtracts; no mutant: further ones are not used


class OneRatingPerItem(PartsCircuit):
    """At most one rating of a known scale per item.

    ``codes`` are the whole numbers that levels stand for in scores, ``rulers`` those in the total.
    """

    random_length = 1

    def __init__(self, items: int, codes: Sequence[int], rulers: Sequence[int]) -> None:
        self.codes = tuple(map(int, codes))
        self.rulers = tuple(map(int, rulers))
        self.levels = len(self.codes)
        if items < 1 or not 2 <= self.levels <= _MOST_LEVELS or len(self.rulers) != self.levels:
            raise ConfigError(
                f"there must be an item and 2 to {_MOST_LEVELS} levels, each with a code and a "
                "ruler"
            )
        self.items = items
        self.output_length = 2 * items + 1
        self.degree = max(_DIGITS, self.levels)
        self.slots = best_chunk(items, 3, self.degree)
        self.calls = -(-items // self.slots)
        self.arity = 3 * self.slots
        self.length = 4 * items + self.calls
        self.outputs = self.calls
        self.random_degree = 4 * self.slots + 1
        self._constants = self.field.vector(range(_CONSTANTS))
        self._polynomials = np.stack(
            [_through(values, self.field) for values in (self.codes, self.rulers)]
        )

    def encode(self, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """The vector of a user with these weights (0 where there is no rating) and levels.

        Tables are read whole and digits come from arithmetic, so that neither time nor memory tells
        a rating.
        """
        weights = np.asarray(weights, np.int64)
        levels = np.asarray(levels, np.int64)
        if weights.shape != (self.items,) or levels.shape != (self.items,):
            raise PrioError(
                f"expected weights and levels of {self.items} items; nothing was shared"
            )
        if bool(
            (
                (weights < 0) | (weights > LARGEST_WEIGHT) | (levels < 0) | (levels >= self.levels)
            ).any()
        ):
            raise PrioError("a weight or a level is off its range; nothing was shared")
        upper = np.minimum(weights // UPPER, _DIGITS - 1)
        scores, ruled = (
            weights * sum(code * (levels == level) for level, code in enumerate(table))
            for table in (self.codes, self.rulers)
        )
        subtotals = np.add.reduceat(ruled, np.arange(0, self.items, self.slots))
        return self.field.secret(
            np.concatenate([weights - UPPER * upper, upper, levels, scores, subtotals])
        )

    def gadget(self, points: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """Sum constraints 1 and 2 and the wires' part of 3 and 4 over all slots, weighted."""
        factors = self._factors(joint)
        # Constraints 3 and 4 are the weight times a polynomial of the level each: add these first.
        valued = kernels().rating_values(factors, self._polynomials)
        own = factors[: 3 * self.slots].reshape(3, self.slots)
        return np.asarray(kernels().sum_of_constraints(points, own, valued, self._constants))

    def result(
        self, called: np.ndarray, vector: np.ndarray, joint: np.ndarray, shares: int
    ) -> np.ndarray:
        """The calls, less the scores and subtotals, which are no wires."""
        factors = self._factors(joint)
        return np.asarray(kernels().rating_result(called, vector, factors, self.items, self.slots))

    def truncate(self, vector: np.ndarray) -> np.ndarray:
        """Scores, weights, total."""
        upper = self._constants[UPPER : UPPER + 1]
        return np.asarray(kernels().rating_outputs(vector, self.items, upper))

    def _factors(self, joint: np.ndarray) -> np.ndarray:
        """Return powers of the first random element, one per constraint."""
        return self.field.powers(joint, 4 * self.slots + 1)


def _through(values: Sequence[int], field: Field) -> np.ndarray:
    """The polynomial whose value at 0, 1, 2, ... these are, from the lowest coefficient."""
    total = [0] * len(values)
    for index, value in enumerate(values):
        basis = [1]
        scale = value
        for other in range(len(values)):
            if other != index:
                basis = [
                    low - other * high for low, high in zip([0, *basis], [*basis, 0], strict=True)
                ]
                scale = scale * pow(index - other, -1, field.modulus) % field.modulus
        total = [
            so_far + scale * coefficient for so_far, coefficient in zip(total, basis, strict=True)
        ]
    return field.vector(total)


def prio3_one_rating(
    items: int, codes: Sequence[int], rulers: Sequence[int], context: bytes
) -> Prio3:
    """Prio3 with the circuit ``OneRatingPerItem``.

    The circuit's parameters follow the application's context in every hash, so that the proof of a
    report for another task, or for other parameters, does not hold.
    """
    circuit = OneRatingPerItem(items, codes, rulers)
    table = stated(4, *circuit.codes, *circuit.rulers, circuit.levels, items)
    return Prio3(circuit, 0xFFFF1001, proofs=3, context=context + table)
