"""Models for lists, as devices get them: item-side numbers only, in 8 bits.

A device puts its own raw ratings in and gets a score for every item out. Nothing is sent, then or later. The higher a
rating, the more the item counts: its input is the rating's height above the lowest one.

Three forms, all small enough for a phone:

- ``linear``: scores = (x E) D^T + x S, with a low-rank part (E, D) and the S of the largest entries per item that the
  low-rank part misses. Item-item models (EASE) and pair-wise ones (BPR) are of this form.
- ``autoencoder``: scores = tanh(x E / |x| + h) D^T + o.
- ``factors``: the device solves for its own vector z, as implicit ALS does, and scores are D z.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hdpmf.errors import ModelFileError
from hdpmf.public.parts import Arrays, read_part, write_part

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Form = Literal["linear", "autoencoder", "factors"]

LIST_FACTS, _NUMBERS = "lists.json", "lists.safetensors"


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
        return cls(np.zeros(n_items + 1, np.int32), np.zeros(0, _positions(n_items)), np.zeros(0, np.int8), 1.0)

    @classmethod
    def largest(cls, matrix: np.ndarray, per_column: int) -> Entries:
        """The largest entries of each column."""
        n = len(matrix)
        chosen = np.argpartition(-np.abs(matrix), per_column, axis=0)[:per_column]
        rows, columns = chosen.ravel(order="F"), np.repeat(np.arange(n), per_column)
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        values = matrix[rows, columns]
        unit = float(max(np.abs(values).max(initial=0.0), 1e-30) / 127.0)
        start = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n)))).astype(np.int32)
        return cls(start, columns.astype(_positions(n)), np.rint(values / unit).astype(np.int8), unit)

    def add(self, scores: np.ndarray, items: np.ndarray, inputs: np.ndarray) -> None:
        """Add what these inputs give to the scores."""
        for item, value in zip(items.tolist(), inputs.tolist(), strict=True):
            here = slice(self.start[item], self.start[item + 1])
            np.add.at(scores, self.items[here], value * self.unit * self.whole[here])

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.start.nbytes + self.items.nbytes + self.whole.nbytes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ListModel:
    """A model for lists.

    Attributes:
        form: How scores are computed; see the module.
        encode: E, one row per item.
        decode: D, one row per item.
        entries: S.
        hidden: h.
        output: o.
        strength: Of ``factors``: the regularisation, and the weight of items that were not rated.
        heads: Positions in the catalogue of the items that it knows, ascending; None: all of them. The rows above are
            theirs. Other items come last in every list.
        n_items: How many items the catalogue has.
        about: Where it comes from: kind, data, claim, what compression cost.
    """

    form: Form
    encode: Bytes
    decode: Bytes
    entries: Entries
    hidden: np.ndarray
    output: np.ndarray
    strength: tuple[float, float] = (0.0, 0.0)
    heads: np.ndarray | None = None
    n_items: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.heads is None:
            object.__setattr__(self, "n_items", len(self.decode.whole))

    def __repr__(self) -> str:
        return f"ListModel({self.about.get('kind', self.form)}, {self.n_items} items, {self.n_bytes / 1e6:.2f} MB)"

    @property
    def n_bytes(self) -> int:
        """What a device has to hold."""
        arrays = self.hidden.nbytes + self.output.nbytes + (0 if self.heads is None else self.heads.nbytes)
        return self.encode.n_bytes + self.decode.n_bytes + self.entries.n_bytes + arrays

    def scores(self, items: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """A score for every item.

        Args:
            items: Positions of what a user has rated.
            inputs: How much each counts: the rating's height above the lowest one.
        """
        if self.heads is not None:
            places = np.searchsorted(self.heads, items)
            known = self.heads[np.minimum(places, len(self.heads) - 1)] == items
            return np.asarray(self._spread(self._scores(places[known], inputs[known])[None])[0])
        return self._scores(items, inputs)

    def _spread(self, scores: np.ndarray) -> np.ndarray:
        """Scores of heads as scores of all items."""
        if self.heads is None:
            return scores
        everything = np.repeat(scores.min(axis=1, keepdims=True) - 1.0, self.n_items, axis=1)
        everything[:, self.heads] = scores
        return np.asarray(everything)

    def _scores(self, items: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        if self.form == "factors":
            latent = self._solve(items, inputs)
        else:
            latent = inputs @ self.encode.rows(items)
            if self.form == "autoencoder":
                latent = np.tanh(latent / max(float(np.sqrt(inputs @ inputs)), 1e-6) + self.hidden)
        scores = np.asarray(self.decode.whole @ (self.decode.unit * latent) + self.output, np.float64)
        self.entries.add(scores, items, inputs)
        return scores

    def many(self, own: csr_matrix) -> np.ndarray:
        """Scores of all items for many users; ``own`` has one row of inputs for each."""
        from scipy.sparse import csr_matrix

        if self.heads is not None:
            own = own[:, self.heads]
        if self.form == "factors":
            rows = (slice(*own.indptr[user : user + 2]) for user in range(own.shape[0]))
            gram = self._gram()
            latent = np.array([self._solve(own.indices[row], own.data[row], gram) for row in rows])
        else:
            latent = own @ (self.encode.whole * self.encode.unit)
            if self.form == "autoencoder":
                length = np.sqrt(np.asarray(own.multiply(own).sum(axis=1)))
                latent = np.tanh(latent / np.maximum(length, 1e-6) + self.hidden)
        scores = (latent * self.decode.unit) @ self.decode.whole.T.astype(np.float32) + self.output
        if len(self.entries.items):
            entries = (self.entries.whole * np.float32(self.entries.unit), self.entries.items, self.entries.start)
            scores += (own @ csr_matrix(entries, shape=(scores.shape[1],) * 2)).toarray()
        return self._spread(np.asarray(scores))

    def _solve(self, items: np.ndarray, inputs: np.ndarray, gram: np.ndarray | None = None) -> np.ndarray:
        """The vector that fits what was rated, against all else with a small weight."""
        system, pulls = self.system(items, inputs, gram)
        return np.asarray(np.linalg.solve(system, pulls.sum(axis=0)))

    def system(
        self, items: np.ndarray, inputs: np.ndarray, gram: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of ``factors``: the equations for a user's vector. A typical rating counts 1.

        Args:
            items: Positions of what a user has rated.
            inputs: How much each counts.
            gram: What all items add to the matrix, where it is at hand: for many users it is the same.

        Returns:
            Their matrix, and what each rated item adds to their right-hand side, one row each.
        """
        reg, unrated = self.strength
        inputs = inputs / max(float(inputs.mean()), 1e-6) if len(inputs) else inputs
        own = self.decode.rows(items).astype(np.float64)
        pulls = inputs[:, None] * own
        gram = self._gram() if gram is None else gram
        return unrated * gram + reg * np.eye(own.shape[1]) + own.T @ pulls, pulls

    def _gram(self) -> np.ndarray:
        whole = self.decode.whole.astype(np.float64) * self.decode.unit
        return np.asarray(whole.T @ whole)

    def write(self, folder: Path) -> None:
        """Write its files into a folder."""
        arrays: Arrays = {
            "encode": self.encode.whole,
            "encode_unit": self.encode.unit,
            "decode": self.decode.whole,
            "decode_unit": self.decode.unit,
            "entries_start": self.entries.start,
            "entries_items": self.entries.items,
            "entries": self.entries.whole,
            "hidden": self.hidden,
            "output": self.output,
        }
        if self.heads is not None:
            arrays["heads"] = self.heads
        facts = {
            "form": self.form,
            "unit": self.entries.unit,
            "strength": list(self.strength),
            "n_items": self.n_items,
            "about": self.about,
        }
        write_part(folder, LIST_FACTS, facts, _NUMBERS, arrays)

    @classmethod
    def read(cls, folder: Path) -> ListModel:
        """Read what ``write`` wrote."""
        _, facts, found = read_part(folder / LIST_FACTS, folder / _NUMBERS)
        try:
            entries = Entries(found["entries_start"], found["entries_items"], found["entries"], float(facts["unit"]))
            model = cls(
                facts["form"],
                Bytes(found["encode"], found["encode_unit"]),
                Bytes(found["decode"], found["decode_unit"]),
                entries,
                found["hidden"],
                found["output"],
                (float(facts["strength"][0]), float(facts["strength"][1])),
                found.get("heads"),
                int(facts["n_items"]),
                dict(facts["about"]),
            )
            model.check()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFileError(f"{folder} is not a model for lists that this version can read ({error})") from error
        return model

    def check(self) -> None:
        """Raise ValueError if the parts do not fit each other: what comes from a recommender may be anything."""
        n, rank = self.decode.whole.shape
        start = self.entries.start
        sparse = (
            start.shape == (n + 1,)
            and start[0] == 0
            and start[-1] == len(self.entries.items) == len(self.entries.whole)
            and bool((np.diff(start) >= 0).all())
            and (len(self.entries.items) == 0 or (self.entries.items.min() >= 0 and self.entries.items.max() < n))
        )
        encoded = self.encode.whole.shape == ((0, rank) if self.form == "factors" else (n, rank))
        units = self.encode.unit.shape == self.decode.unit.shape == self.hidden.shape == (rank,)
        finite = all(
            bool(np.isfinite(array).all()) for array in (self.encode.unit, self.decode.unit, self.hidden, self.output)
        )
        heads = self.heads
        placed = (
            self.n_items == n
            if heads is None
            else (
                heads.shape == (n,)
                and n > 0
                and heads[0] >= 0
                and heads[-1] < self.n_items
                and bool((np.diff(heads) > 0).all())
            )
        )
        if self.form not in ("linear", "autoencoder", "factors") or not (
            placed and sparse and encoded and units and finite and self.output.shape == (n,)
        ):
            raise ValueError("its parts do not fit each other")
