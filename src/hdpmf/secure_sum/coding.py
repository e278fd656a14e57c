"""Signed integers as words, with the bounds that make their sum exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.primitives import WIDE_WORD, WORD


@dataclass(frozen=True)
class IntegerCoding:
    """How a device's integers become words, and a sum of words integers.

    The sum must stay below 2^31 in size (2^63 if words are wide), whatever each device sends within the bound. A
    number is one word, so that the sum of the words is a function of the sum of the numbers and tells nothing else.

    Attributes:
        bound: No number of any device is larger in size.
        participants: Devices in the sum, at most.
        wide: Use words of 64 bits.
    """

    bound: int
    participants: int
    wide: bool = False

    def __post_init__(self) -> None:
        if self.bound < 0 or self.participants < 1 or self.participants >= 1 << 31:
            raise SecureSumError("the bound must be 0 or more and the participants at least 1")
        if self.bound > self.largest_bound(self.participants, wide=self.wide):
            hint = "use fewer devices or a coarser grid" if self.wide else "use wide=True or a coarser grid"
            raise SecureSumError(
                f"{self.participants} numbers up to {self.bound} may add up to more than the words can hold; {hint}"
            )

    @staticmethod
    def largest_bound(participants: int, *, wide: bool = False) -> int:
        """The largest bound that so many devices may have."""
        return ((1 << (63 if wide else 31)) - 1) // participants

    @property
    def word(self) -> np.dtype[Any]:
        """The type of a word."""
        return WIDE_WORD if self.wide else WORD

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The words of a vector of integers."""
        values = np.asarray(values)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.signedinteger):
            raise SecureSumError("values to sum must be a vector of signed integers; put fractions on a grid first")
        if len(values) and not -self.bound <= int(values.min()) <= int(values.max()) <= self.bound:
            raise SecureSumError(f"a value is beyond the declared bound of {self.bound}; nothing was encoded")
        # Wide words are the same bytes: thousands of simulated devices need not hold their numbers twice.
        return values.astype(np.int64, copy=False).view(self.word) if self.wide else values.astype(self.word)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The integers behind a sum of words, as int64."""
        if total.ndim != 1 or total.dtype != self.word:
            raise SecureSumError("a sum to decode must be the vector of words that a secure sum gives")
        return total.view("<i8" if self.wide else "<i4").astype(np.int64)
