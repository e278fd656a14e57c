"""Yardsticks for lists: models that order items and are not private. They are trained on who rated what, in the clear.

They do not say how much somebody would like an item: a predicted rating is the user's own mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from hdpmf.methods import check
from hdpmf.methods.configurations import ListOptions
from hdpmf.models.base import Callback
from hdpmf.models.baselines import Baseline
from hdpmf.privacy.sampling import seed_of
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.public.lists import ListModel
from hdpmf.ratings import Ratings
from hdpmf.recommender.lists import Presence, train_list_model
from hdpmf.shard.choosing import heights


@dataclass(eq=False, repr=False)
class ListYardstick(ListOptions, Baseline):
    """A model for lists without privacy.

    Args:
        on: ``cpu``, ``gpu`` or ``auto``, for the neural one.
        n_threads: Threads; every core by default. The result does not depend on it.
        rng: An int, a numpy Generator, or None for another result every time.

    Attributes:
        lists_: What devices would get.
    """

    kind: ClassVar[str] = ""
    can_rank: ClassVar[bool] = True

    lists_: ListModel = field(init=False)

    def fit(
        self,
        train: Ratings,
        weights: PrivacyWeights | None = None,
        *,
        validation: Ratings | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Learn who rates what with whom; weights, validation and callbacks are accepted and not needed."""
        check(self)
        super().fit(train)
        presence = Presence(train.user_codes, train.item_codes, train.n_users, train.n_items)
        self.lists_ = train_list_model(self.kind, presence, seed=seed_of(self.rng) % 2**31, on=self.on)
        return self

    def _candidates(self) -> np.ndarray:
        return self._ever_rated()

    def _list_scores(self, users: np.ndarray) -> np.ndarray:
        return self.lists_.many(heights(self.devices_, users))


class MostPopular(ListYardstick):
    """What most people rated, for everyone."""

    kind = "popular"


class ItemKNN(ListYardstick):
    """What is rated by the same people as what one has rated."""

    kind = "knn"


class EASE(ListYardstick):
    """A linear item-item model in closed form."""

    kind = "ease"


class IALS(ListYardstick):
    """Implicit alternating least squares."""

    kind = "ials"


class BPR(ListYardstick):
    """A pair-wise model."""

    kind = "bpr"


class NeuralLists(ListYardstick):
    """A denoising autoencoder."""

    kind = "neural"
