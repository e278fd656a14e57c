"""The message that brings a model for lists to devices: item-side numbers, the same for everybody.

It follows the item facts, which name its SHA-256, in an envelope of its own part, so that a device
can measure it before it looks inside. `hdpmf.common.model.list_model` computes with it.
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Literal

import numpy as np

from hdpmf.common.protocol.messages import MAX_FACTORS, MAX_ITEMS, _Message

Form = Literal["linear", "autoencoder", "factors"]

BYTES_PER_ITEM = 540
"""Most bytes of a model for lists per item of the catalogue: 2.0 MB at the 3,706 of ML-1M.

The largest kind, an autoencoder with 256 hidden units, has two rows of 256 bytes and 8 bytes per
item; EASE has 294.
"""

FREE_BYTES = 64 * 1024
"""And beside that: units, names, what does not grow with the items."""

_LARGEST = 1e6
"""No honest number is near it, and with smaller ones no score overflows."""
_WEAKEST = 1e-6
_MAX_ABOUT, _MAX_WORDS = 32, 200
_POSITIONS = (np.int32, np.uint16, np.uint32)


class ListTable(_Message, frozen=True):
    """Recommender to device: a model for lists. Matrices have 8 bits and a unit per column.

    Attributes:
        form: The way to compute scores.
        encode: One row per item that the model knows; none where devices solve for their vectors.
        decode: One row per item that the model knows.
        start: Start of each such item's single entries.
        items: The items that these are for.
        entries: Their values, in ``entries_unit``.
        hidden: Added to the output of ``encode``.
        output: Added to the output of ``decode``.
        strength: Of ``factors``: the regularisation, and the weight of items that were not rated.
        heads: Positions of the items that the model knows, ascending; None for all.
        about: Its origin, in names and plain values.
    """

    form: Form
    n_items: int
    encode: np.ndarray
    encode_unit: np.ndarray
    decode: np.ndarray
    decode_unit: np.ndarray
    start: np.ndarray
    items: np.ndarray
    entries: np.ndarray
    entries_unit: float
    hidden: np.ndarray
    output: np.ndarray
    strength: tuple[float, float] = (0.0, 0.0)
    heads: np.ndarray | None = None
    about: dict[str, str | int | float | bool | dict[str, float] | None] = {}  # noqa: RUF012  # msgspec copies it

    def _check(self) -> None:
        matrices = all(
            array.ndim == 2 and array.dtype == np.int8 for array in (self.encode, self.decode)
        )
        self._require(matrices, "encode and decode must be matrices of int8")
        n, rank = self.decode.shape
        self._require(1 <= self.n_items <= MAX_ITEMS, f"n_items must be from 1 to {MAX_ITEMS}")
        self._require(rank <= MAX_FACTORS, f"there may be {MAX_FACTORS} columns at most")
        rows = 0 if self.form == "factors" else n
        self._require(self.encode.shape == (rows, rank), "encode and decode must fit each other")
        for name, length in (
            ("encode_unit", rank),
            ("decode_unit", rank),
            ("hidden", rank),
            ("output", n),
        ):
            array = getattr(self, name)
            fits = array.dtype == np.float32 and array.shape == (length,)
            self._require(fits, f"{name} must be {length} numbers of float32")
            self._require(
                bool((np.abs(array) <= _LARGEST).all()),
                f"{name} must be finite and below {_LARGEST:g}",
            )
        self._check_entries(n)
        self._check_heads(n)
        self._check_strength()
        short = all(len(str(word)) <= _MAX_WORDS for pair in self.about.items() for word in pair)
        self._require(len(self.about) <= _MAX_ABOUT and short, "about must be a few short words")

    def _check_entries(self, n: int) -> None:
        start = self.start
        items = self.items
        self._require(
            start.dtype == np.int32 and start.shape == (n + 1,),
            "start must be int32, one per item and one",
        )
        self._require(
            items.dtype in _POSITIONS and items.ndim == 1, "items must be a vector of whole numbers"
        )
        whole = self.entries.dtype == np.int8 and self.entries.shape == items.shape
        self._require(whole, "entries must be int8, one for each of items")
        # By comparison only: differences of far numbers wrap around.
        ascending = (
            start[0] == 0 and start[-1] == len(items) and bool((start[1:] >= start[:-1]).all())
        )
        self._require(ascending, "start must be ascending, from 0 to the number of entries")
        self._require(
            bool(((items >= 0) & (items < n)).all()),
            "entries must be for items that the model knows",
        )
        self._require(
            0 < self.entries_unit <= _LARGEST, "the unit of the entries must be a positive number"
        )

    def _check_heads(self, n: int) -> None:
        heads = self.heads
        if heads is None:
            self._require(n == self.n_items, "the model must have a row for every item")
            return
        self._require(
            heads.dtype in _POSITIONS and heads.shape == (n,),
            "heads must be positions, one per row",
        )
        inside = n > 0 and bool(((heads >= 0) & (heads < self.n_items)).all())
        self._require(
            inside and bool((heads[1:] > heads[:-1]).all()),
            "heads must be positions of items, ascending",
        )

    def _check_strength(self) -> None:
        reg, unrated = self.strength
        self._require(
            math.isfinite(reg) and 0 <= reg <= _LARGEST, "the regularisation must be a number"
        )
        self._require(
            math.isfinite(unrated) and 0 <= unrated <= _LARGEST,
            "the weight of the unrated must be a number",
        )
        if self.form == "factors":
            largest = float(
                ((self.decode * self.decode_unit.astype(np.float64)) ** 2)
                .sum(axis=1)
                .max(initial=1e-12)
            )
            self._require(
                reg >= _WEAKEST * largest,
                "with so little regularisation a device's vector is not determined",
            )


def digest_of(table: bytes) -> str:
    """The SHA-256 of an encoded `ListTable`, by which facts name it."""
    return sha256(table).hexdigest()
