"""HDPPairs: lists and stars from sums of pairs, within one budget for the whole person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.methods.options import PairsOptions
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.pairs import CAP, Heads, PairsPlan, plan_for
from hdpmf.common.privacy.sampling import Noise, SeededNoise, seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import ConfigError
from hdpmf.models.one_round import OneRound
from hdpmf.private.client.pairs import SERVERS, histories, linear_sums, pair_sums
from hdpmf.private.client.ranking import ByPairs, ListOrder
from hdpmf.untrusted.recommender.pairs import PairsAnswer, facts_from_pairs, popularity_of


@dataclass(eq=False, repr=False)
class HDPPairs(PairsOptions, OneRound):
    """Sums of pairs: the recommender learns who chooses what together with what, and of nobody.

    Everything that is sent about a person costs (epsilon, delta) together, against an empty
    history, where only sums over people are seen. A person of weight beta pays beta squared of
    that, in zero-concentrated privacy. Two servers add the whole noise each, here too.

    From choices without ratings it learns lists; from ratings it learns how they are rated, too.

    Args:
        epsilon: The budget of a person, for everything that is sent about them.
        delta: Goes with it.
        heads: How many of the most popular items have pairs; ``auto`` follows from public numbers.
        stars: Whether to learn how items are rated, too. Without it all of the budget is for lists,
            and no ratings are predicted.
        cap: The largest share of one rating in what is sent of a person: it bounds what the rating
            costs, whatever else the person has rated. ``auto`` is 1/16, 1 is no cap.
        features: Public item features: True or ``auto`` for the item table's genres and years, a
            file, an ItemFeatures, or False.
        n_threads: Threads; every core by default. The result does not depend on it.
        rng: An int, a numpy Generator, or None for another result every time.

    Attributes:
        plan_: The public parameters of the run.
        lists_: What goes together, as devices get it.
    """

    takes_implicit: ClassVar[bool] = True

    lists_: ListModel = field(init=False)

    def plan(self, train: Ratings) -> PairsPlan:
        """Return the public parameters of a run over so many people and items."""
        self._check_params()
        return plan_for(
            self.epsilon,
            self.delta,
            train.n_users,
            train.n_items,
            stars=self.stars and not train.implicit,
            heads=None if isinstance(self.heads, str) else self.heads,
            kappa=CAP if isinstance(self.cap, str) else self.cap,
        )

    def answer(
        self, plan: PairsPlan, train: Ratings, weights: PrivacyWeights, noise: Noise
    ) -> PairsAnswer:
        """Return the noisy sums of a run over these ratings: all that the recommender sees."""
        own = histories(train, weights)
        linear, values = linear_sums(plan, own, noise)
        heads = Heads.of(popularity_of(plan, linear, SERVERS), plan.heads)
        return PairsAnswer(linear, values, heads, pair_sums(plan, heads, own, noise), SERVERS)

    def _ask(
        self, train: Ratings, weights: PrivacyWeights, features: ItemFeatures | None
    ) -> tuple[ItemFacts, int]:
        plan = self.plan(train)
        answer = self.answer(plan, train, weights, SeededNoise(seed_of(self.rng), stream=3))
        catalogue = fingerprint(train.items, features)
        facts, self.lists_ = facts_from_pairs(plan, answer, features, catalogue)
        return facts, 0

    def with_model(
        self, train: Ratings, weights: PrivacyWeights, facts: ItemFacts, lists: ListModel
    ) -> Self:
        """Fit devices with these ratings to what a recommender published after a run."""
        self.lists_ = lists
        return self.with_facts(train, weights, facts)

    def set_source(self, implicit: bool, columns: Mapping[str, str] | None) -> None:  # noqa: D102
        super().set_source(implicit, columns)
        self.predicts_ratings = self.predicts_ratings and self.stars

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        if self.predicts_ratings:
            return super()._predict_codes(users, items)
        means = np.append(self.devices_.means, np.nan)[users]
        return np.where(np.isnan(means), self.devices_.scale.middle, means)

    def _order(self) -> ListOrder:
        return ByPairs(self.devices_, self.lists_, super()._order())

    def _check_params(self) -> None:
        super()._check_params()
        heads, cap = self.heads, self.cap
        if heads != "auto" and not (type(heads) is int and heads >= 2):
            raise ConfigError(f"heads must be auto or a whole number from 2, not {heads!r}")
        if cap != "auto" and not (type(cap) in (int, float) and 0 < float(cap) <= 1):
            raise ConfigError(f"cap must be auto or a number above 0 and at most 1, not {cap!r}")
