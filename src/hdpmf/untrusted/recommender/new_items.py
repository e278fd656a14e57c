"""Items that came after training, placed by what is public: released numbers and item features.

Nobody is asked anything: it is post-processing of what was released, so it costs no privacy. What
others think of a new item is learned in the next training alone.

Each number of a new item is what a ridge regression on the features of known items says; without
features it is the mean over these. On ML-100K with a fifth of the items held out of training,
docs/tutorial.md has what that is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from msgspec.structs import replace as changed

from hdpmf.common.data import IdIndex, ItemTable
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.model.device_fit import DeviceFit, log_popularity, with_more_items
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.untrusted.recommender.rounds import Catalogue
from hdpmf.untrusted.recommender.sums import RIDGE, SPREAD, with_constant


@dataclass(frozen=True, repr=False, eq=False)
class NewItems:
    """Items to be placed at the end of a catalogue.

    Attributes:
        items: Ids of all items, the new ones last.
        counts: How much each known item counts: how often it is rated, so that errors are small
            where ratings are. Without it (all alike) the error on ML-100K's new items is 2 to 15 %
            larger, because few people rate what few people like.
        table: Public facts about all of them, where there are any.
    """

    items: IdIndex
    counts: np.ndarray
    table: ItemTable | None
    features: ItemFeatures | None

    @classmethod
    def of(
        cls,
        items: IdIndex,
        counts: np.ndarray,
        table: ItemTable | None,
        features: ItemFeatures | None,
    ) -> NewItems:
        """Give new items of which nothing is known the mean features."""
        counts = np.maximum(counts.astype(np.float64), 0.0)
        counts = counts if counts.any() else np.ones(len(counts))
        if features is not None:
            matrix = features.matrix.copy()
            new = matrix[len(counts) :]
            new[~new.any(axis=1)] = np.average(matrix[: len(counts)], axis=0, weights=counts)
            features = replace(features, matrix=matrix)
        return cls(items, counts, table, features)

    @property
    def n_known(self) -> int:
        """How many items the model knew."""
        return len(self.counts)

    @property
    def n_new(self) -> int:
        """How many items are new."""
        return len(self.items) - self.n_known

    def rows(self, known: np.ndarray, *, alike: bool = False) -> np.ndarray:
        """Return a row of numbers for every item: those of known ones, and the new ones'.

        With ``alike`` all known items count alike.
        """
        columns = self._columns[: self.n_known]
        weighted = columns if alike else columns * (self.counts / self.counts.mean())[:, None]
        ridge = np.full(columns.shape[1], RIDGE)
        ridge[0] = 1e-3
        system = weighted.T @ columns + np.diag(ridge)
        placed = self._columns[self.n_known :] @ np.linalg.solve(system, weighted.T @ known)
        return np.concatenate([known, placed.astype(known.dtype)])

    def numbers(self, known: np.ndarray, *, alike: bool = False) -> np.ndarray:
        """Return a number for every item, as `rows` does."""
        return self.rows(known[:, None], alike=alike)[:, 0]

    def catalogue(self, known: Catalogue) -> Catalogue:
        """Return a catalogue with factors for the new items, too."""
        raters = np.rint(self._popularity(known.raters.astype(np.float64)))
        if known.trained.any():
            raters[self.n_known :] = np.maximum(raters[self.n_known :], 1)
        return Catalogue(
            self.items,
            self.rows(known.factors),
            raters.astype(known.raters.dtype),
            known.scale,
            self.table,
        )

    def facts(self, known: ItemFacts) -> ItemFacts:
        """Return released facts with those of the new items, which are less certain."""
        bias = self.numbers(known.bias)
        return changed(
            known,
            catalogue=fingerprint(self.items, self.features),
            bias=bias,
            variance=np.append(known.variance, np.full(self.n_new, SPREAD)).astype(np.float32),
            popularity=self._popularity(known.popularity),
        )

    def fit(self, known: DeviceFit, facts: ItemFacts, noise: float) -> DeviceFit:
        """Return what devices fit vectors to, with rows for the new items.

        Args:
            known: That of the known items, which stays as it is.
            facts: About all items.
            noise: Variance of a rating around a good prediction.
        """
        return with_more_items(known, facts, self.features, noise)

    def lists(self, known: ListModel) -> ListModel:
        """Return a model for lists that knows the new items.

        What the model keeps of single pairs of items (`Entries`) it cannot say of new ones.
        """
        heads = np.arange(self.n_known) if known.heads is None else known.heads
        part = self._only(heads)
        new = np.arange(self.n_known, len(self.items), dtype=np.int32)
        return replace(
            known,
            encode=part._bytes(known.encode),
            decode=part._bytes(known.decode),
            entries=Entries(
                np.append(known.entries.start, np.full(self.n_new, known.entries.start[-1])).astype(
                    known.entries.start.dtype
                ),
                known.entries.items,
                known.entries.whole,
                known.entries.unit,
            ),
            output=part.numbers(known.output, alike=True) if len(known.output) else known.output,
            heads=None
            if known.heads is None
            else np.concatenate([known.heads, new]).astype(known.heads.dtype),
            n_items=len(self.items),
        )

    def _only(self, heads: np.ndarray) -> NewItems:
        """Return the new items, with only these of the known ones."""
        kept = np.concatenate([heads, np.arange(self.n_known, len(self.items))])
        features = self.features
        if features is not None:
            features = replace(features, matrix=features.matrix[kept])
        return NewItems(IdIndex(np.arange(len(kept))), self.counts[heads], None, features)

    def _bytes(self, known: Bytes) -> Bytes:
        placed = self.rows(known.whole.astype(np.float64), alike=True)[self.n_known :]
        whole = np.rint(np.clip(placed, -127, 127)).astype(np.int8)
        return Bytes(np.concatenate([known.whole, whole]), known.unit)

    def _popularity(self, known: np.ndarray) -> np.ndarray:
        logs = self.numbers(log_popularity(known.astype(np.float64)), alike=True)[self.n_known :]
        return np.concatenate([known, np.exp(logs).astype(known.dtype)])

    @cached_property
    def _columns(self) -> np.ndarray:
        matrix = None if self.features is None else self.features.matrix
        return with_constant(matrix, len(self.items))
