"""The public model's items: how much each is rated, how well, and how uncertain noise makes that."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.methods import method_named
from hdpmf.protocol import ItemFacts
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.public.model import PublicModel
from hdpmf.public.title_search import TitleSearch
from hdpmf.service.folder import ServiceFolder
from hdpmf.service.released import weight_deviations

_PER_STAR = 4.0
"""Item facts are in one to five stars, whatever the scale is."""


class ModelItems:
    """What a public model says of items.

    Args:
        model: Of a run.
        deviations: Of the noise in each item's weight; None where that is not known.

    Attributes:
        rated: Whether it says how well items are rated; otherwise it only says how much.
        weighted: Whether how much is a sum of privacy weights, not of raters.
    """

    def __init__(self, model: PublicModel, deviations: np.ndarray | None) -> None:
        self.model = model
        numbers, method = model.numbers, method_named(str(model.about["method"]))
        self.rated = isinstance(numbers, ItemFacts) and not method.lists_only
        self.weighted = method.family == "sums"
        self._deviations = deviations
        self._table = catalogue_table(model.items, model.scale, model.item_table)
        self._search = TitleSearch(self._table)
        if isinstance(numbers, ItemFacts):
            per_star = model.scale.width / _PER_STAR
            self._popularity = numbers.popularity
            self._rating = model.scale.low + (numbers.mean + numbers.bias - 1.0) * per_star
            self._uncertain = np.sqrt(numbers.variance) * per_star
        else:
            self._popularity = numbers.raters
            self._rating = self._uncertain = np.zeros(len(numbers.raters))

    def most_popular(self, n: int) -> list[dict[str, Any]]:
        """Items with most raters."""
        return self._rows(_first(self._popularity, n))

    def most_liked(self, n: int) -> list[dict[str, Any]]:
        """Items that are rated best, less what is uncertain about that."""
        return self._rows(_first(self._rating - self._uncertain, n)) if self.rated else []

    def find(self, words: str, n: int) -> list[dict[str, Any]]:
        """Items with these words in the title."""
        return self._rows(self._search.find(words, n))

    def _rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        table, scale = self._table, self.model.scale
        return [
            {
                "item": table.ids[place],
                "title": (table.titles[place] if table.titles else "") or table.ids[place],
                "popularity": float(self._popularity[place]),
                "popularity_noise": None if self._deviations is None else float(self._deviations[place]),
                "rating": float(np.clip(self._rating[place], scale.low, scale.high)) if self.rated else None,
                "rating_uncertain": float(self._uncertain[place]) if self.rated else None,
            }
            for place in places
        ]


class LatestItems:
    """The items of the newest model, read once for each model."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._place: Path | None = None
        self._items: ModelItems | None = None

    def get(self) -> ModelItems | None:
        """What there is now; None before the first run has ended."""
        link = self._folder.path / "model"
        with self._lock:
            if not link.exists():
                return None
            place = link.resolve()
            if self._items is None or place != self._place:
                model = PublicModel.load(place)
                deviations = weight_deviations(self._folder, bytes.fromhex(str(model.about["run"])))
                self._items, self._place = ModelItems(model, deviations), place
            return self._items


def _first(values: np.ndarray, n: int) -> list[int]:
    return [int(place) for place in np.argsort(-values, kind="stable")[:n]]
