"""Orders items by a model for lists that the recommender trained, into which each device puts its raw ratings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hdpmf.public.lists import ListModel, quiet_products
from hdpmf.shard.choosing import heights
from hdpmf.shard.devices import Devices
from hdpmf.shard.reasons import Parts
from hdpmf.shard.recommending import ListOrder


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ByListModel:
    """Orders items by a model for lists.

    Attributes:
        devices: The users, with what they rated.
        lists: The model.
        otherwise: Orders items for those of whom it knows nothing: they rated nothing, or everything lowest.
    """

    devices: Devices
    lists: ListModel
    otherwise: ListOrder | None = None

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        own = heights(self.devices, users)
        scores = self.lists.many(own)
        unknown = np.flatnonzero(own.sum(axis=1) == 0)
        if self.otherwise is not None and len(unknown):
            scores[unknown] = self.otherwise.scores(users[unknown])
        return scores

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """What the scores of each user's list are made of: what each rated item adds, and what everybody gets."""
        own = heights(self.devices, users)
        for row, items in enumerate(lists):
            here = slice(own.indptr[row], own.indptr[row + 1])
            inputs = own.data[here]
            if self.otherwise is not None and not inputs.any():
                yield from self.otherwise.parts(users[row : row + 1], [items])
            else:
                yield list_parts(self.lists, own.indices[here].astype(np.int64), inputs, items)


@quiet_products
def list_parts(lists: ListModel, rated: np.ndarray, inputs: np.ndarray, items: np.ndarray) -> Parts:
    """What the scores of ``items`` are made of for somebody who rated ``rated``.

    Linear forms are sums over what was rated. So is the solution of ``factors``: each rated item has a part in the
    right-hand side. In an ``autoencoder`` a hidden unit's rise above its value without input is shared out as its input
    is (the rescale rule of DeepLIFT, Shrikumar et al. 2017), so that the sum is exact there, too.
    """
    places, shown = lists.places(rated), lists.places(items)
    inside = places >= 0
    rated, known, known_inputs = rated[inside], places[inside], inputs[inside]
    decode = lists.decode.rows(shown).astype(np.float64)
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
            slope = (np.tanh(lists.hidden + rise) - resting) / np.where(flat, 1.0, rise)
            encoded = encoded * np.where(flat, 1.0 - resting**2, slope)
        own = encoded @ decode.T + _entries(lists, known, known_inputs, shown)
    everyone = np.asarray(lists.decode.whole @ (lists.decode.unit * resting) + lists.output, np.float64)
    base = float(everyone.mean())
    popularity = everyone[shown] - base
    if (shown < 0).any():
        # Items that it does not know come last, whatever anybody rated.
        last = float(lists.scores(rated, known_inputs).min())
        own[:, shown < 0] = 0.0
        popularity[shown < 0] = last - base
    return Parts(base=base, popularity=popularity, rated=rated, own=own)


def _entries(lists: ListModel, rated: np.ndarray, inputs: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """What single entries add to the scores of the shown items, one row per rated item."""
    found = np.zeros((len(rated), len(shown)))
    entries = lists.entries
    if len(entries.items) == 0:
        return found
    column = np.full(len(entries.start) - 1, -1)
    column[shown[shown >= 0]] = np.flatnonzero(shown >= 0)
    counts = entries.start[rated + 1] - entries.start[rated]
    rows = np.repeat(np.arange(len(rated)), counts)
    at = np.arange(len(rows)) + np.repeat(entries.start[rated] - (np.cumsum(counts) - counts), counts)
    columns = column[entries.items[at]]
    here = columns >= 0
    np.add.at(found, (rows[here], columns[here]), entries.whole[at[here]] * entries.unit * inputs[rows[here]])
    return found
