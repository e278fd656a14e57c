"""Models for lists: item-side numbers only, in 8 bits.

Raw ratings of a user go in, and a score for every item comes out. No recommender publishes one: it
tells who rated what. The higher a rating, the more the item counts: its input is the rating's
height above the lowest one.

Two forms, to whose scores an item's own number is added:

- ``linear``: scores = (x E) D^T + x S, with a low-rank part (E, D) and the S of the largest entries
  per item that the low-rank part misses. Item-item models (EASE) and pair-wise ones (BPR) are of
  this form.
- ``factors``: the vector z of a user is solved for, as implicit ALS does, and scores are D z.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Form = Literal["linear", "factors"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Bytes:
    """A matrix in 8 bits: whole numbers from -127 to 127 and a unit for each column."""

    whole: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Bytes:
        """The nearest such matrix."""
        unit = np.maximum(np.abs(matrix).max(axis=0, initial=0.0), 1e-30) / 127.0
        return cls(np.rint(matrix / unit).astype(np.int8), unit.astype(np.float32))

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Some rows as numbers."""
        return np.asarray(self.whole[positions] * self.unit)

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.whole.nbytes + self.unit.nbytes


quiet_products = np.errstate(invalid="ignore")
"""For products of small float32 matrices. The flag was raised in one of many runs of a test, for
finite numbers and results that were right in all others; why is not known. A model's numbers are
finite."""


def _positions(n_items: int) -> type[np.unsignedinteger[Any]]:
    """The smallest whole numbers that count so many items."""
    return np.uint16 if n_items <= 1 << 16 else np.uint32


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Entries:
    """Some single entries of an item-item matrix, by the item that they are an input of.

    Attributes:
        start: Where each item's entries begin.
        items: The items that they are for, in 2 bytes each where the catalogue allows it.
        whole: Their values, whole numbers from -127 to 127.
        unit: One for all.
    """

    start: np.ndarray
    items: np.ndarray
    whole: np.ndarray
    unit: float

    @classmethod
    def none(cls, n_items: int) -> Entries:
        """No entries."""
        return cls(
            np.zeros(n_items + 1, np.int32),
            np.zeros(0, _positions(n_items)),
            np.zeros(0, np.int8),
            1.0,
        )

    @classmethod
    def largest(cls, matrix: np.ndarray, per_column: int) -> Entries:
        """The largest entries of each column."""
        n = len(matrix)
        chosen = np.argpartition(-np.abs(matrix), per_column, axis=0)[:per_column]
        rows, columns = chosen.ravel(order="F"), np.repeat(np.arange(n), per_column)
        return cls.of(rows, columns, matrix[rows, columns], n)

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, n_items: int) -> Entries:
        """Entries from item to item, in any order."""
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        unit = float(max(np.abs(values).max(initial=0.0), 1e-30) / 127.0)
        start = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_items)))).astype(
            np.int32
        )
        return cls(
            start, columns.astype(_positions(n_items)), np.rint(values / unit).astype(np.int8), unit
        )

    def add(self, scores: np.ndarray, items: np.ndarray, inputs: np.ndarray) -> None:
        """Add what these inputs give to the scores."""
        for item, value in zip(items.tolist(), inputs.tolist(), strict=True):
            here = slice(self.start[item], self.start[item + 1])
            np.add.at(scores, self.items[here], value * self.unit * self.whole[here])

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.start.nbytes + self.items.nbytes + self.whole.nbytes


@dataclass(frozen=True, repr=False, eq=False)
class ListModel:
    """A model for lists.

    Attributes:
        form: How scores are computed; see the module.
        encode: E, one row per item.
        decode: D, one row per item.
        entries: S.
        output: The own number of each item.
        strength: Of ``factors``: the regularisation, and the weight of items that were not rated.
        heads: Positions in the catalogue of the items that it knows, ascending; None: all of them.
            The rows above are theirs. Other items come last in every list.
        n_items: How many items the catalogue has.
        about: Where it comes from: kind, data, claim, what compression cost.
    """

    form: Form
    encode: Bytes
    decode: Bytes
    entries: Entries
    output: np.ndarray
    strength: tuple[float, float] = (0.0, 0.0)
    heads: np.ndarray | None = None
    n_items: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.heads is None:
            object.__setattr__(self, "n_items", len(self.decode.whole))

    def __repr__(self) -> str:
        return (
            f"ListModel({self.about.get('kind', self.form)}, {self.n_items} items, "
            f"{self.n_bytes / 1e6:.2f} MB)"
        )

    @property
    def n_bytes(self) -> int:
        """Its size."""
        arrays = self.output.nbytes + (0 if self.heads is None else self.heads.nbytes)
        return self.encode.n_bytes + self.decode.n_bytes + self.entries.n_bytes + arrays

    def scores(self, items: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """A score for every item.

        Args:
            items: Positions of what a user has rated.
            inputs: How much each counts: the rating's height above the lowest one.
        """
        positions = self.positions(items)
        known = positions >= 0
        return np.asarray(self._spread(self._scores(positions[known], inputs[known])[None])[0])

    def positions(self, items: np.ndarray) -> np.ndarray:
        """Rows of catalogue positions; -1 for an item that the model does not know."""
        if self.heads is None:
            return items
        positions = np.minimum(np.searchsorted(self.heads, items), len(self.heads) - 1)
        return np.where(self.heads[positions] == items, positions, -1)

    def _spread(self, scores: np.ndarray) -> np.ndarray:
        """Scores of heads as scores of all items."""
        if self.heads is None:
            return scores
        everything = np.repeat(scores.min(axis=1, keepdims=True) - 1.0, self.n_items, axis=1)
        everything[:, self.heads] = scores
        return np.asarray(everything)

    @quiet_products
    def _scores(self, items: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        if self.form == "factors":
            latent = self._solve(items, inputs)
        else:
            latent = inputs @ self.encode.rows(items)
        scores = np.asarray(
            self.decode.whole @ (self.decode.unit * latent) + self.output, np.float64
        )
        self.entries.add(scores, items, inputs)
        return scores

    def many(self, own: csr_matrix) -> np.ndarray:
        """Scores of all items for many users; ``own`` has one row of inputs for each."""
        return self._spread(self.many_known(own))

    @quiet_products
    def many_known(self, own: csr_matrix) -> np.ndarray:
        """Scores of the items that the model knows, for many users."""
        from scipy.sparse import csr_matrix

        if self.heads is not None:
            own = own[:, self.heads]
        if self.form == "factors":
            rows = (slice(*own.indptr[user : user + 2]) for user in range(own.shape[0]))
            latent = np.array([self._solve(own.indices[row], own.data[row]) for row in rows])
        else:
            latent = own @ (self.encode.whole * self.encode.unit)
        scores = (latent * self.decode.unit) @ self.decode.whole.T.astype(np.float32) + self.output
        if len(self.entries.items):
            entries = (
                self.entries.whole * np.float32(self.entries.unit),
                self.entries.items,
                self.entries.start,
            )
            scores += (own @ csr_matrix(entries, shape=(scores.shape[1],) * 2)).toarray()
        return np.asarray(scores)

    def _solve(self, items: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """The vector that fits what was rated, against all else with a small weight."""
        system, pulls = self.system(items, inputs)
        return np.asarray(np.linalg.solve(system, pulls.sum(axis=0)))

    def system(self, items: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of ``factors``: the equations for a user's vector. A typical rating counts 1.

        Returns:
            Their matrix, and what each rated item adds to their right-hand side, one row each.
        """
        reg, unrated = self.strength
        inputs = inputs / max(float(inputs.mean()), 1e-6) if len(inputs) else inputs
        own = self.decode.rows(items).astype(np.float64)
        pulls = inputs[:, None] * own
        return unrated * self._gram + reg * np.eye(own.shape[1]) + own.T @ pulls, pulls

    @cached_property
    def _gram(self) -> np.ndarray:
        """The part of the equations that is the same for every user."""
        whole = self.decode.whole.astype(np.float64) * self.decode.unit
        return np.asarray(whole.T @ whole)

    def check(self, n_items: int) -> None:
        """Raise ValueError unless it is of so many items and its parts fit each other."""
        n, rank = self.decode.whole.shape
        start, items = self.entries.start, self.entries.items
        heads = np.arange(n_items) if self.heads is None else self.heads
        consistent = (
            self.n_items == n_items
            and heads.shape == self.output.shape == (n,)
            and np.isin(heads, np.arange(n_items)).all()
            and self.encode.whole.shape == (0 if self.form == "factors" else n, rank)
            and self.encode.unit.shape == self.decode.unit.shape == (rank,)
            and start.shape == (n + 1,)
            and start[0] == 0
            and start[-1] == len(items) == len(self.entries.whole)
            and (start[1:] >= start[:-1]).all()
            and np.isin(items, np.arange(n)).all()
        )
        if not consistent:
            raise ValueError("the parts of the model for lists do not fit each other")
