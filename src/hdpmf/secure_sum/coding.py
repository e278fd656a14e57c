"""Signed integers as words modulo 2^32, with the bounds that make their sum exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.primitives import WORD

_HALF = 1 << 31


@dataclass(frozen=True)
class IntegerCoding:
    """How a device's integers become words, and a sum of words integers.

    With one word per number the sum must stay below 2^31 in size, whatever each device sends within the bound. With
    ``wide``, a number takes two words: its low bits, few enough that their sum does not overflow, and the rest.

    Attributes:
        bound: No number of any device is larger in size.
        participants: Devices in the sum, at most.
        wide: Use two words per number.
    """

    bound: int
    participants: int
    wide: bool = False

    def __post_init__(self) -> None:
        if self.bound < 0 or self.participants < 1 or self.participants >= 1 << 31:
            raise SecureSumError("the bound must be 0 or more and the participants at least 1")
        largest = (self.bound >> self.low_bits) + 1 if self.wide else self.bound
        if largest * self.participants >= _HALF:
            hint = "use fewer devices or a coarser grid" if self.wide else "use wide=True or a coarser grid"
            raise SecureSumError(
                f"{self.participants} numbers up to {self.bound} may add up to more than the words can hold; {hint}"
            )

    @property
    def low_bits(self) -> int:
        """Bits of a number that go into the low word, if there are two."""
        return 32 - (self.participants - 1).bit_length()

    def length(self, n_values: int) -> int:
        """Words for that many numbers."""
        return 2 * n_values if self.wide else n_values

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The words of a vector of integers."""
        values = np.asarray(values)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.signedinteger):
            raise SecureSumError("values to sum must be a vector of signed integers; put fractions on a grid first")
        if len(values) and not -self.bound <= int(values.min()) <= int(values.max()) <= self.bound:
            raise SecureSumError(f"a value is beyond the declared bound of {self.bound}; nothing was encoded")
        if not self.wide:
            return values.astype(WORD)
        wide = values.astype(np.int64)
        low = wide & ((1 << self.low_bits) - 1)
        return np.concatenate([low.astype(WORD), (wide >> self.low_bits).astype(WORD)])

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The integers behind a sum of words, as int64."""
        if total.ndim != 1 or total.dtype != WORD or (self.wide and len(total) % 2):
            raise SecureSumError("a sum to decode must be the vector of words that a secure sum gives")
        if not self.wide:
            return total.view("<i4").astype(np.int64)
        low, high = np.split(total, 2)
        return (high.view("<i4").astype(np.int64) << self.low_bits) + low.astype(np.int64)
