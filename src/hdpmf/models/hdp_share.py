"""HDPShare: secure sums of everybody, sharpened by those who show what they rated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.methods.options import ShareOptions
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.model.priors import Prior
from hdpmf.common.privacy.sampling import SeededNoise, seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import ItemFacts
from hdpmf.models.one_round import OneRound
from hdpmf.private.client.ranking import BlendedOrder, ChooseAndLike, ListOrder
from hdpmf.private.client.sharing import ShareClient, bound_by_level
from hdpmf.untrusted.recommender.new_items import NewItems
from hdpmf.untrusted.recommender.sharing import Shared, facts_from_shares


@dataclass(eq=False, repr=False)
class HDPShare(ShareOptions, OneRound):
    """Secure sums of everybody; who shares more makes stars and lists better for all.

    Each rating has a level (``PrivacyWeights.with_levels``). *Hidden* ones, which is all of them
    where nobody says otherwise, have exactly the guarantee of HDPSum, whatever others show. *Seen*
    ones have that of HDPBit: which items they are about is visible. *Open* ones are published. With
    nobody sharing, results are those of HDPSum.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        max_ratings: A limit for a person's hidden ratings, as in HDPSum, and the most visible ones
            that are sent, drawn at random; all are used on the device.
        coding: As for HDPSum; bits are about a threshold.
        features: As for HDPSum.
        prior: As for HDPSum.
        list_model: The model that sharpens lists, trained on what people show.
        on: As for HDPSum.
        n_threads: As for HDPSum.
        rng: As for HDPSum.

    Attributes:
        lists_: The model for lists, or None where nobody shows enough to make lists better.
    """

    lists_: ListModel | None = field(init=False, default=None)

    def _ask(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        features: ItemFeatures | None,
        prior: Prior | None,
    ) -> tuple[ItemFacts, int]:
        survey = replace(self._survey(train, features), sharing=True)
        seed = seed_of(self.rng)
        if self.max_ratings is not None:
            draws = SeededNoise(seed, stream=4).uniforms(len(train))
            train, weights = bound_by_level(train, weights, self.max_ratings, draws)
        client = ShareClient(
            train,
            weights,
            SeededNoise(seed, stream=3),
            epsilon=survey.epsilon,
            catalogue=survey.catalogue,
            simulation=True,
        )
        client.accept(survey)
        found = facts_from_shares(
            survey,
            [client.contribute()],
            [Shared(*client.shared())],
            features,
            list_model=self.list_model,
            seed=seed % 2**31,
            on=self.on,
            n_threads=self.n_threads,
        )
        self.lists_ = found.lists
        return client.check(found.facts), client.n_silent

    def _order(self) -> ListOrder:
        choose = super()._order()
        blend = self.facts_.blend
        if self.lists_ is None or blend == 0 or not isinstance(choose, ChooseAndLike):
            return choose
        return BlendedOrder(choose, self.lists_, blend)

    def _place(self, new: NewItems) -> None:
        super()._place(new)
        self.lists_ = None if self.lists_ is None else new.lists(self.lists_)

    def _popularity(self) -> np.ndarray:
        """As HDPSum's, or what the recommender has learned from those who share."""
        raters = self.facts_.raters
        return super()._popularity() if raters is None else raters.astype(np.float64)

    def _design(self) -> str:
        return "A"
