"""The parts of a person's scores: what each rating, taste, popularity and stars add. PRIVATE.

They add up to the score. Reasons are made of them, on the private side only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from hdpmf.common.model.device_fit import POPULARITY, RATINGS
from hdpmf.common.model.list_model import ListModel, quiet_products

Kind = Literal["own", "popularity", "taste", "stars"]

GENERAL: dict[str, Kind] = {POPULARITY: "popularity", RATINGS: "stars"}
"""Columns of taste that say no more about an item than these kinds of parts do."""


def _nothing() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class TasteParts:
    """A person's taste in features of some items, and the ratings that it comes from. PRIVATE.

    Attributes:
        names: Of the features.
        apart: How far above what people choose each item has each feature, one row per feature.
        present: Which features an item has at all, one row per feature.
        rated: Positions of what the person rated.
        liked: Which of these have a high rating.
        pulls: What each of these adds to the taste for each feature, one row per rating.
        shared: Which features these have, one row per rating.
        leaning: How much more of each feature the person chooses than people in general.
    """

    names: tuple[str, ...]
    apart: np.ndarray
    present: np.ndarray
    rated: np.ndarray
    liked: np.ndarray
    pulls: np.ndarray
    shared: np.ndarray
    leaning: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The part of each feature in the score of each item, one row per feature."""
        return np.asarray(self.apart * self.pulls.sum(axis=0)[:, None])


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class Parts:
    """The parts of a person's scores of some items, which add up to the score of each. PRIVATE.

    Attributes:
        base: What a usual item has. The other parts are what sets an item apart from it.
        popularity: For each item, of what people choose in general.
        stars: Of the predicted rating; empty where it has no part.
        rated: Positions of what the person rated, as far as ``own`` knows it.
        own: Of each of these, one row each.
        taste: Of features; None where they have no part.
    """

    base: float
    popularity: np.ndarray
    stars: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rated: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    own: np.ndarray = field(default_factory=_nothing)
    taste: TasteParts | None = None

    @property
    def kinds(self) -> dict[Kind, np.ndarray]:
        """The sum of each kind of part, for each item.

        A taste for what many choose, or for what others rate highly, says nothing about the item
        that popularity and stars do not say. So it counts with these.
        """
        none = np.zeros(len(self.popularity))
        found: dict[Kind, np.ndarray] = {
            "own": self.own.sum(axis=0) if self.own.size else none,
            "popularity": self.popularity,
            "taste": none,
            "stars": self.stars if self.stars.size else none,
        }
        if self.taste is not None:
            for name, size in zip(self.taste.names, self.taste.sizes, strict=True):
                kind = GENERAL.get(name, "taste")
                found[kind] = found[kind] + size
        return found

    @property
    def scores(self) -> np.ndarray:
        """All parts together."""
        return np.asarray(self.base + sum(self.kinds.values()))


def joined(parts: Parts, lists: Parts, *, times: float, plus: float = 0.0) -> Parts:
    """Return the parts of scores that are ``parts + times * lists + plus``.

    Args:
        parts: Of choose and like.
        lists: Of a model for lists, for the same items.
        times: How much the model for lists counts.
        plus: What every item gets besides.
    """
    return replace(
        parts,
        base=parts.base + times * lists.base + plus,
        popularity=parts.popularity + times * lists.popularity,
        rated=lists.rated,
        own=times * lists.own,
    )


@quiet_products
def list_parts(
    lists: ListModel,
    rated: np.ndarray,
    inputs: np.ndarray,
    items: np.ndarray,
    shares: np.ndarray | None = None,
) -> Parts:
    """Return the parts of the scores of ``items`` for somebody who rated ``rated``.

    Linear forms are sums over what was rated. So is the solution of ``factors``: each rated item
    has a part in the right-hand side. In an ``autoencoder`` a hidden unit's rise above its value
    without input is shared out as its input is (the rescale rule of DeepLIFT, Shrikumar et al.
    2017), so that the sum is exact there, too.

    Args:
        lists: The model.
        rated: Positions of what was rated.
        inputs: How far above the lowest, each.
        items: Positions of the items that are scored.
        shares: Of each item of the catalogue in what people choose; what ratings add is then
            counted from what they add to that. Without it nothing is taken off.
    """
    positions, shown = lists.positions(rated), lists.positions(items)
    inside = positions >= 0
    rated, known, known_inputs = rated[inside], positions[inside], inputs[inside]
    decode = lists.decode.rows(shown).astype(np.float64)
    usual = None
    if shares is not None:
        usual = shares if lists.heads is None else shares[lists.heads]
        decode = np.vstack([decode, (usual @ lists.decode.whole) * lists.decode.unit])
    resting = np.zeros(decode.shape[1])
    if lists.form == "factors":
        system, pulls = lists.system(known, known_inputs)
        own = pulls @ np.linalg.solve(system, decode.T)
    else:
        encoded = known_inputs[:, None] * lists.encode.rows(known)
        if lists.form == "autoencoder":
            encoded /= max(float(np.sqrt(known_inputs @ known_inputs)), 1e-6)
            resting = np.tanh(lists.hidden)
            rise = encoded.sum(axis=0)
            flat = np.abs(rise) < 1e-9
            divisor = np.where(flat, 1.0, rise)  # no mutant: where it is flat it is not used
            slope = (np.tanh(lists.hidden + rise) - resting) / divisor
            encoded = encoded * np.where(flat, 1.0 - resting**2, slope)
        own = encoded @ decode.T + _entries(lists, known, known_inputs, shown, usual)
    everyone = np.asarray(
        lists.decode.whole @ (lists.decode.unit * resting) + lists.output, np.float64
    )
    base = float(everyone.mean() if usual is None else usual @ everyone)
    popularity = everyone[shown] - base
    if usual is not None:
        base += float(own[:, -1].sum())
        own = own[:, :-1] - own[:, -1:]
    if (shown < 0).any():
        # Items that it does not know come last for everybody.
        last = float(lists.scores(rated, known_inputs).min())
        own[:, shown < 0] = 0.0
        popularity[shown < 0] = last - base
    return Parts(base=base, popularity=popularity, rated=rated, own=own)


def _entries(
    lists: ListModel,
    rated: np.ndarray,
    inputs: np.ndarray,
    shown: np.ndarray,
    usual: np.ndarray | None,
) -> np.ndarray:
    """Return what single entries add to the scores of the shown items, one row per rated item.

    With ``usual`` there is one more column: what they add to these shares of all items.
    """
    found = np.zeros((len(rated), len(shown) + (usual is not None)))
    entries = lists.entries
    if len(entries.items) == 0:
        return found
    column = np.full(len(entries.start) - 1, -1)
    column[shown[shown >= 0]] = np.flatnonzero(shown >= 0)
    counts = entries.start[rated + 1] - entries.start[rated]
    rows = np.repeat(np.arange(len(rated)), counts)
    at = np.arange(len(rows)) + np.repeat(
        entries.start[rated] - (np.cumsum(counts) - counts), counts
    )
    values = entries.whole[at] * entries.unit * inputs[rows]
    columns = column[entries.items[at]]
    here = columns >= 0
    np.add.at(found, (rows[here], columns[here]), values[here])
    if usual is not None:
        found[:, -1] = np.bincount(rows, values * usual[entries.items[at]], len(rated))
    return found
