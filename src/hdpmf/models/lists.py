"""Yardsticks for lists: what people choose most, released privately, and models that are trained in the clear.

They do not say how much somebody would like an item: a predicted rating is the user's own mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hdpmf.methods.configurations import ListOptions, PopularityOptions
from hdpmf.models.baselines import Baseline
from hdpmf.privacy.coding import POPULARITY_SCALE
from hdpmf.privacy.sampling import SeededNoise, seed_of
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.public.lists import ListModel
from hdpmf.public.popularity import corrected_popularity
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import fingerprint
from hdpmf.recommender.labels import estimated_popularity
from hdpmf.recommender.lists import Presence, popular_lists, train_list_model
from hdpmf.recommender.one_round import make_survey
from hdpmf.shard.contribution import OneRoundShard
from hdpmf.shard.list_order import ByListModel
from hdpmf.shard.recommending import ListOrder


@dataclass(eq=False, repr=False)
class ListsOnly(Baseline):
    """A model that orders items and predicts no ratings of its own.

    Attributes:
        lists_: What devices would get.
    """

    can_rank: ClassVar[bool] = True
    predicts_ratings: ClassVar[bool] = False
    takes_implicit: ClassVar[bool] = True

    lists_: ListModel = field(init=False)

    def _order(self) -> ListOrder:
        return ByListModel(self.devices_, self.lists_)


@dataclass(eq=False, repr=False)
class PrivatePopular(PopularityOptions, ListsOnly):
    """What most people rated, for everyone, from counts with noise: what any private list has to beat.

    It is the first round of HDP-Sum with taste labels and nothing else, so that all of epsilon goes into how much
    weight each item has: a rating's presence costs W_ij * epsilon where only sums over users are seen, its value
    nothing.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        rng: An int, a numpy Generator, or None for another result every time.
    """

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Release the counts."""
        catalogue = fingerprint(train.items, None)
        survey = make_survey(
            "A",
            # That round has one part in POPULARITY_SCALE of a survey's epsilon; here it has all.
            self.epsilon * POPULARITY_SCALE,
            train.scale,
            n_items=train.n_items,
            catalogue=catalogue,
            contributors=train.n_users,
            labels=True,
        )
        shard = OneRoundShard(
            train,
            weights,
            SeededNoise(seed_of(self.rng), stream=3),
            epsilon=survey.epsilon,
            catalogue=catalogue,
            simulation=True,
        )
        shard.accept(survey)
        released = estimated_popularity(survey, [shard.count()])
        self.lists_ = popular_lists(corrected_popularity(released, weights.for_items(train.items), 1.0 / self.epsilon))


@dataclass(eq=False, repr=False)
class ListYardstick(ListOptions, ListsOnly):
    """A model for lists without privacy.

    Args:
        on: ``cpu``, ``gpu`` or ``auto``, for the neural one.
        n_threads: Threads; every core by default. The result does not depend on it.
        rng: An int, a numpy Generator, or None for another result every time.
    """

    kind: ClassVar[str] = ""

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Learn who rates what with whom."""
        presence = Presence(train.user_codes, train.item_codes, train.n_users, train.n_items)
        self.lists_ = train_list_model(
            self.kind, presence, seed=seed_of(self.rng) % 2**31, on=self.on, n_threads=self.n_threads
        )


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
