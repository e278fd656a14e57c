"""HDPBit: one bit per rating, visible to the recommender, which keeps them as a data set."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from hdpmf.common.base.progress import stage
from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.methods.options import BitOptions
from hdpmf.common.model.device_fit import device_fit
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.sampling import ReleasedNoise, require_released, seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import BitContribution, ItemFacts, Survey
from hdpmf.models.one_round import Surveyed, wanted_features
from hdpmf.private.client import Devices
from hdpmf.private.client.ranking import ByPairs, ListOrder
from hdpmf.untrusted.recommender.bits import PATTERNS, facts_from_bits, numbered
from hdpmf.untrusted.recommender.lists.training import (
    FEW,
    train_list_model,
    weight_beside_popularity,
)
from hdpmf.untrusted.recommender.release import Release


@dataclass(eq=False, repr=False)
class HDPBit(BitOptions, Surveyed):
    """One bit per rating: the recommender may see every message.

    Every rating has W_ij * epsilon pure local differential privacy against the whole transcript.
    Which items a user rated, and the weights, are visible.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        max_ratings: As for HDPSum.
        coding: What three bits of four are about; ``auto`` is a threshold at four of five stars.
            Every fourth, drawn at random, is about the rating itself.
        patterns: How many factors of who rates what with whom to look for, beside the similarity of
            items. Who rated what is visible in this design, so it costs nothing; 0 uses neither.
            None: 8, and similarity counts as much as the released bits say.
        features: As for HDPSum.
        n_threads: As for HDPSum.
        rng: As for HDPSum.

    Attributes:
        release_: What the recommender holds: who rated what, weights and bits.
        lists_: The model for lists, trained on who rated what; None without the released bits.
    """

    release_: Release | None = field(init=False, default=None)
    _lists: list[ListModel] = field(init=False, default_factory=list)
    """Empty until the first list: of one release, which all its readers share."""

    @property
    def lists_(self) -> ListModel | None:  # noqa: D102
        if not self._lists and self.release_ is not None:
            stage(f"training the model for lists ({self.list_model})")
            presence, seed = self.release_.presence, seed_of(self.rng) % 2**31
            lists = train_list_model(self.list_model, presence, seed=seed)
            lists.about["weight"] = weight_beside_popularity(self.list_model, presence, seed)
            self._lists[:] = [lists]
        return self._lists[0] if self._lists else None

    @lists_.setter
    def lists_(self, lists: ListModel | None) -> None:
        self._lists = [] if lists is None else [lists]

    @property
    def n_patterns_(self) -> int:
        """How many patterns of who rates what were looked for; 0 if who rated what is not used."""
        if self.patterns is not None:
            return self.patterns
        return 0 if self.facts_.similarity is None else PATTERNS

    @property
    def privacy(self) -> PrivacyClaim:
        """The model's epsilon and its claim: that of the bits that it is made of."""
        return super().privacy if self.release_ is None else self.release_.claim

    def release(
        self,
        train: Ratings,
        weights: PrivacyWeights | None = None,
        *,
        noise: ReleasedNoise | None = None,
    ) -> Release:
        """Return the data set that devices with these ratings would leave with a recommender.

        Nothing is trained.

        Args:
            train: The ratings.
            weights: Privacy weights; without them every rating has weight 1.
            noise: That of the operating system, for a data set that is given away. Without it the
                seed's, which is simulated: whoever has the seed can take it off again.
        """
        self._check_params()
        weights = PrivacyWeights.uniform(train) if weights is None else weights
        features, claim = wanted_features(self.features, train), super().privacy
        survey, bits, _ = self._hear(
            train, weights, features, released=None if noise is None else require_released(noise)
        )
        claim = claim if noise is None else replace(claim, noise="")
        return self._released(bits, survey, train, features, claim)

    @classmethod
    def from_release(cls, release: Release, **parameters: Any) -> Self:
        """The model that a recommender makes of a released data set, by post-processing alone.

        It knows no user; `fold_in` takes some in.

        Args:
            release: The data set. Epsilon, coding and item features are its own.
            **parameters: Any others of this class.
        """
        survey, features = release.survey, release.features
        model = cls(
            epsilon=survey.epsilon,
            coding=survey.coding,
            max_ratings=release.max_ratings,
            features=False if features is None else features,
            **parameters,
        )
        model._check_params()
        facts = facts_from_bits(survey, release.bits, features, model.patterns)
        model.set_public(
            release.items,
            release.scale,
            release.item_table,
            facts,
            device_fit(facts, features),
        )
        n_items, width = model.catalogue_.factors.shape
        model.devices_ = Devices.nobody(n_items, width, release.scale)
        model.n_silent_ = 0
        model.release_ = release
        return model

    def _released(
        self,
        bits: Any,
        survey: Survey,
        train: Ratings,
        features: ItemFeatures | None,
        claim: PrivacyClaim,
    ) -> Release:
        return Release(
            survey,
            msgspec.structs.replace(bits, senders=numbered(bits.senders)),
            train.items,
            replace(claim, items="stated" if train.items.stated else "rated"),
            train.name,
            max_ratings=self.max_ratings,
            item_table=train.item_table,
            features=features,
        )

    def _facts(
        self, survey: Survey, answer: BitContribution, features: ItemFeatures | None
    ) -> ItemFacts:
        return facts_from_bits(survey, answer, features, self.patterns)

    def _keep(
        self, answer: Any, survey: Survey, train: Ratings, features: ItemFeatures | None
    ) -> None:
        self.release_ = self._released(answer, survey, train, features, super().privacy)
        self._lists = []

    def _train_lists(self) -> None:
        self.lists_  # noqa: B018  # trains what is not trained yet

    def _order(self) -> ListOrder:
        lists, otherwise = self.lists_, super()._order()
        if lists is None:
            return otherwise
        weight = float(lists.about.get("weight", 1.0))
        return ByPairs(self.devices_, lists, otherwise, weight=weight, few=FEW)

    def _design(self) -> str:
        return "L"
