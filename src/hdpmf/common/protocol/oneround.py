"""The messages of the one-round designs.

::

    recommender                       client
        Survey            ──────────▶
                          ◀──────────   SumContribution or BitContribution, once in a rating's life
        ItemFacts         ──────────▶   (devices fit their own vectors; nothing is sent back)
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from hdpmf.common.protocol.messages import (
    MAX_ITEMS,
    _check_matrix,
    _Message,
    _positive,
    check_scale,
    check_vectors,
)


class Survey(_Message, frozen=True):
    """Recommender to clients: the public question.

    Attributes:
        design: ``A`` (sums over users) or ``L`` (one bit per rating).
        coding: The public curve that ratings are coded by.
        epsilon: The largest budget of a rating.
        catalogue: Fingerprint of the item ids and their public features.
        contributors: Number of users whose noise shares make the whole noise.
        scale_step: Of the public rating scale, where it has one.
    """

    design: Literal["A", "L"]
    coding: Literal["soft", "threshold", "linear"]
    epsilon: float
    n_items: int
    catalogue: str
    contributors: int
    scale_low: float
    scale_high: float
    scale_step: float | None

    def _check(self) -> None:
        self._require(_positive(self.epsilon), "epsilon must be a positive number")
        self._require(1 <= self.n_items <= MAX_ITEMS, f"n_items must be from 1 to {MAX_ITEMS}")
        self._require(self.contributors >= 1, "contributors must be at least 1")
        self._require(0 < len(self.catalogue) <= 128, "catalogue must be a fingerprint")
        check_scale(self, self.scale_low, self.scale_high, self.scale_step)


class SumContribution(_Message, frozen=True):
    """Client to recommender, by secure aggregation: whole numbers summed over users, with noise.

    Attributes:
        scores: Per item, the weighted coded ratings.
        weights: Per item, the weights.
        total: The weighted ratings of all items together.
    """

    scores: np.ndarray
    weights: np.ndarray
    total: int

    def _check(self) -> None:
        check_vectors(self, "scores", "weights")
        self._require(
            len(self.scores) == len(self.weights), "scores and weights must be of the same items"
        )


class BitContribution(_Message, frozen=True):
    """Client to recommender: one randomised bit per rating. The recommender sees every one of them.

    Attributes:
        senders: The device of each bit, counted within the client; the recommender sees it anyway.
        items: Position of each rating's item.
        units: Its privacy weight in 64ths, from 1 to 64.
        plus: 1 or 0.
    """

    senders: np.ndarray
    items: np.ndarray
    units: np.ndarray
    plus: np.ndarray

    def _check(self) -> None:
        check_vectors(self, "senders", "items", "units", "plus")
        for name in ("senders", "units", "plus"):
            self._require(
                len(getattr(self, name)) == len(self.items), f"{name} must be one per bit"
            )
        self._require(bool((self.items >= 0).all()), "items must be positions")
        self._require(bool((self.senders >= 0).all()), "senders must be positions")
        self._require(
            bool(((self.units >= 1) & (self.units <= 64)).all()), "units must be from 1 to 64"
        )
        self._require(bool(((self.plus == 0) | (self.plus == 1)).all()), "plus must be 0 or 1")


MAX_SIMILAR_ITEMS = 4096
MAX_SIMILAR_BYTES = 1 << 20
"""Most bytes of the similarity on a device: 128 columns of so many items, in 16 bits."""


class Similarity(_Message, frozen=True):
    """A part of ItemFacts: similarity of items by their raters, as columns to fit vectors to.

    Attributes:
        items: Positions of the items that it is about, ascending.
        columns: A row for each of them, in 16 bits.
        rest: For each of them, the variance of a rating that the columns leave, in stars squared.
        pull: How far a vector is expected to be drawn to the mean row of what its user rated.
    """

    items: np.ndarray
    columns: np.ndarray
    rest: np.ndarray
    pull: float

    def _check(self) -> None:
        check_vectors(self, "items")
        n = len(self.items)
        self._require(
            n <= MAX_SIMILAR_ITEMS, f"it may be about {MAX_SIMILAR_ITEMS:,} items at most"
        )
        ascending = bool((self.items[1:] > self.items[:-1]).all()) and (
            n == 0 or self.items[0] >= 0
        )
        self._require(ascending, "items must be positions, ascending")
        self._require(
            self.columns.ndim == 2 and self.columns.dtype == np.float16 and len(self.columns) == n,
            "columns must be a matrix of float16 with a row per item",
        )
        self._require(
            self.columns.nbytes <= MAX_SIMILAR_BYTES,
            f"columns may take {MAX_SIMILAR_BYTES:,} bytes at most",
        )
        self._require(bool(np.isfinite(self.columns).all()), "columns must be finite")
        _check_matrix(self, "rest", self.rest[None])
        self._require(
            self.rest.shape == (n,) and bool((self.rest >= 0).all()),
            "rest must be 0 or more, one per item",
        )
        self._require(math.isfinite(self.pull), "pull must be finite")


class ItemFacts(_Message, frozen=True):
    """Recommender to clients: estimates from the sums, to which devices fit their own vectors.

    Ratings are counted in stars, whatever their scale: 1 for its lower end, 5 for its upper.

    Attributes:
        catalogue: The survey's fingerprint.
        bias: Per item, its mean rating less the mean.
        variance: Per item, of the bias.
        popularity: Per item, the estimated weights of its raters.
        similarity: Of items by their raters, where that is in plain sight.
        prior: Name of the shipped population prior to fit vectors with; a device without it does
            without.
    """

    catalogue: str
    mean: float
    bias: np.ndarray
    variance: np.ndarray
    popularity: np.ndarray
    prior: str | None = None
    similarity: Similarity | None = None

    def _check(self) -> None:
        self._require(math.isfinite(self.mean), "mean must be finite")
        self._require(self.prior is None or 0 < len(self.prior) <= 64, "prior must be a short name")
        for name in ("bias", "variance", "popularity"):
            array = getattr(self, name)
            self._require(array.ndim == 1, f"{name} must be a vector")
            _check_matrix(self, name, array[None])
            self._require(len(array) == len(self.bias), f"{name} must be one per item")
        if self.similarity is not None and len(self.similarity.items):
            self._require(
                int(self.similarity.items[-1]) < len(self.bias), "similarity must be of these items"
            )
        self._require(bool((self.variance >= 0).all()), "variance must be 0 or more")
        self._require(bool((self.popularity >= 0).all()), "popularity must be 0 or more")


OneRoundMessage = Survey | SumContribution | BitContribution | ItemFacts
