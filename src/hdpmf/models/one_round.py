"""One-round methods with a proved guarantee: the base class, and HDPSum.

Everything after the round is on the device. A prediction is ``mean + b_j + x_j . theta_i``: a
matrix factorization whose item factors are public or privately released and whose user vectors
never leave the device.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from hdpmf.common.base.progress import stage
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, ItemTable, Ratings, RatingScale
from hdpmf.common.data.item_features import ItemFeatures, NoFeaturesError, fingerprint
from hdpmf.common.methods import check
from hdpmf.common.methods.options import DeviceOptions, OneRoundOptions, SumOptions
from hdpmf.common.model.device_fit import (
    DeviceFit,
    correct_popularity,
    device_fit,
)
from hdpmf.common.model.taste import LIKE, taste_columns
from hdpmf.common.privacy.coding import (
    PRESENCE_SHARE,
    WEIGHT_SCALE,
    WEIGHT_UNITS,
)
from hdpmf.common.privacy.mechanisms import bound_contributions
from hdpmf.common.privacy.sampling import Noise, ReleasedNoise, SeededNoise, seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import BitContribution, ItemFacts, SumContribution, Survey
from hdpmf.errors import ConfigError, RatingsError, notify
from hdpmf.models.base import Callback, Estimator
from hdpmf.models.fitted import privacy_weights
from hdpmf.models.later_ratings import FoldIn
from hdpmf.private.client import Devices
from hdpmf.private.client.contributions import (
    bits,
    bound_in_sums,
    n_silent,
    noisy_weights,
    sums,
)
from hdpmf.private.client.devices import (
    fit_vectors,
    own_means,
    predict,
    ratings_by_user,
    times_by_user,
)
from hdpmf.private.client.ranking import ChooseAndLike, ListOrder
from hdpmf.untrusted.recommender import Catalogue
from hdpmf.untrusted.recommender.deconvolution import beside_public, deconvolve, margin
from hdpmf.untrusted.recommender.sums import (
    MIDDLE,
    chosen_coding,
    facts_from_sums,
    make_survey,
)

Features = bool | str | PathLike[str] | ItemFeatures
"""True or ``auto`` for the item table's own, a file, or ready-made ones; False for none."""


def wanted_features(wanted: Features, train: Ratings) -> ItemFeatures | None:
    """Return the item features that ``wanted`` asks for, for the items of these ratings."""
    if isinstance(wanted, ItemFeatures):
        if len(wanted.matrix) != train.n_items:
            raise ConfigError(
                f"the features are of {len(wanted.matrix)} items, the ratings of {train.n_items}; "
                "make them for the items of these ratings"
            )
        return wanted
    if isinstance(wanted, PathLike) or (isinstance(wanted, str) and wanted != "auto"):
        if not Path(wanted).exists():
            raise ConfigError(
                f"features are a file, True, False or 'auto', and there is no file {str(wanted)!r}"
            )
        try:
            return ItemFeatures.read(wanted, train.items)
        except NoFeaturesError as error:
            if not error.has_titles:
                raise
            notify(f"{error}; lists show its titles, and no tastes in features are learned")
            return None
    if not isinstance(wanted, (bool, str)):
        raise ConfigError(
            f"features are a file, ItemFeatures, True, False or 'auto', not {wanted!r}"
        )
    if wanted is False or (wanted == "auto" and train.item_table is None):
        return None
    if train.item_table is None:
        raise ConfigError(
            "features=True needs an item table, and these ratings have none; give one with "
            "fit(..., items=frame), or a file of features"
        )
    if train.item_table.frame is None:
        return ItemFeatures.of_table(train.item_table, train.items)
    try:
        return ItemFeatures.of_frame(train.item_table.frame, train.items)
    except NoFeaturesError:
        if wanted is True:
            raise
        return None  # titles only


@dataclass(eq=False, repr=False)
class OneRound(DeviceOptions, FoldIn, Estimator):
    """The base class of HDPSum, HDPBit and HDPPairs; see there.

    Attributes:
        facts_: Facts about items that the recommender estimated and published.
        n_silent_: Ratings that sent nothing, because their weight is below 1/64.
        feature_names_: The columns that each user's vector belongs to.
    """

    facts_: ItemFacts = field(init=False)
    fit_: DeviceFit = field(init=False)
    n_silent_: int = field(init=False)

    def _fit(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        validation: Ratings | None,
        callbacks: Sequence[Callback],
    ) -> None:
        """Run the one round, then fit every device. Nothing is tuned, and there are no epochs."""
        self._check_params()
        features = wanted_features(self.features, train)
        stage("asking devices, estimating items")
        facts, n_silent = self._ask(train, weights, features)
        if train.item_table is not None:
            facts = beside_public(facts, train.item_table.public_popularity(train.items))
        stage(f"fitting {train.n_users:,} users")
        self._fit_devices(train, weights, facts, features)
        self.n_silent_ = n_silent

    def with_facts(self, train: Ratings, weights: PrivacyWeights, facts: ItemFacts) -> Self:
        """Fit devices with these ratings to a recommender's facts, as after a federated run.

        ``n_silent_`` is 0 then: only the devices know how many of their ratings sent nothing.

        Raises:
            ConfigError: The facts are about another number of items.
        """
        self._check_params()
        features = wanted_features(self.features, train)
        if len(facts.bias) != train.n_items:
            raise ConfigError(
                f"the facts are about {len(facts.bias)} items, the ratings about {train.n_items}"
            )
        self._fit_devices(train, weights, facts, features)
        self.n_silent_ = 0
        return self

    def _fit_devices(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        facts: ItemFacts,
        features: ItemFeatures | None,
    ) -> None:
        fit = device_fit(facts, features)
        self.set_public(train.items, train.scale, train.item_table, facts, fit)
        beta, gamma = weights.for_users(train.users), weights.for_items(train.items)
        by_user = ratings_by_user(train)
        with Workers(self.n_threads) as workers:
            vectors = fit_vectors(self.fit_, by_user, workers)
        self.devices_ = Devices.after_training(
            train,
            vectors,
            beta,
            gamma,
            (by_user.start, by_user.partner, by_user.target),
            times_by_user(train, by_user.start),
        )

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """Names of the columns that vectors were fitted to."""
        return self.fit_.names

    def _fit_newcomers(
        self, ratings: Ratings, items: np.ndarray, weights: PrivacyWeights | float | None
    ) -> np.ndarray:
        known = np.flatnonzero(items >= 0)
        if len(known) == 0:
            raise RatingsError(
                "the model knows none of the rated items, so there is nothing to fit a vector to"
            )
        kept = ratings.take(known)
        by_user = ratings_by_user(kept)
        by_user.partner[:] = self.catalogue_.items.find(ratings.items.ids)[by_user.partner]
        with Workers(self.n_threads) as workers:
            vectors = fit_vectors(self.fit_, by_user, workers)
        parts = privacy_weights(ratings, weights)
        columns = by_user.partner, by_user.target, times_by_user(kept, by_user.start)
        owned = (
            [None] * by_user.n_rows if column is None else np.split(column, by_user.start[1:-1])
            for column in columns
        )
        self.devices_.add_users(
            ratings.users,
            vectors,
            parts.for_users(ratings.users),
            own_means(kept),
            list(zip(*owned, strict=True)),
        )
        return vectors

    def _order(self) -> ListOrder:
        """Order by released popularity, the user's taste in features, and the predicted rating."""
        popularity = self._popularity()
        margin = self.facts_.popularity_margin
        names, columns = taste_columns(self.fit_, popularity)
        like = LIKE if self.predicts_ratings else 0.0  # choices say nothing about stars
        return ChooseAndLike(
            self.devices_,
            self._predicted,
            popularity,
            columns,
            names,
            like_weight=like,
            margin=None if margin is None else margin * self._raised(),
        )

    @abstractmethod
    def _ask(
        self, train: Ratings, weights: PrivacyWeights, features: ItemFeatures | None
    ) -> tuple[ItemFacts, int]:
        """The item facts of a run over these ratings, and how many of them sent nothing."""

    def _raised(self) -> np.ndarray | float:
        """By how much `_popularity` multiplies what was released, at most."""
        return 1.0

    def _popularity(self) -> np.ndarray:
        """Estimate how many raters items have."""
        return self.facts_.popularity.astype(np.float64)

    def _predicted(self, users: np.ndarray) -> np.ndarray:
        return np.asarray(
            self.devices_.scale.clip(self.devices_.vectors[users] @ self.catalogue_.factors.T)
        )

    def set_public(
        self,
        items: IdIndex,
        scale: RatingScale,
        item_table: ItemTable | None,
        facts: ItemFacts,
        fit: DeviceFit,
    ) -> None:
        """Keep the facts that the recommender published, and the fit that devices made of them."""
        self.facts_, self.fit_ = facts, fit
        self.catalogue_ = Catalogue(
            items, fit.factors(scale), np.ones(len(items), np.int64), scale, item_table
        )

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return predict(self.devices_, users, items, self.catalogue_.factors, self.fit_.stranger)

    def _candidates(self) -> np.ndarray:
        return self.catalogue_.trained.copy()

    def _check_params(self) -> None:
        check(self)


@dataclass(eq=False, repr=False)
class Surveyed(OneRoundOptions, OneRound):
    """The base class of HDPSum and HDPBit, whose devices answer a survey."""

    @property
    def coding_(self) -> str:
        """The coding that was used."""
        return chosen_coding(self._design(), self.coding, self.catalogue_.scale, self.epsilon)

    def _ask(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        features: ItemFeatures | None,
    ) -> tuple[ItemFacts, int]:
        """The item facts of one round over these ratings, and how many of them sent nothing."""
        survey, answer, silent = self._hear(train, weights, features)
        self._keep(answer, survey, train, features)
        return self._facts(survey, answer, features), silent

    @abstractmethod
    def _facts(self, survey: Survey, answer: Any, features: ItemFeatures | None) -> ItemFacts:
        """Return the facts that the recommender makes of an answer."""

    def _hear(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        features: ItemFeatures | None,
        released: ReleasedNoise | None = None,
    ) -> tuple[Survey, Any, int]:
        """Return what was asked, the answer, and how many ratings sent nothing.

        The noise is simulated by the seed unless ``released`` is given.
        """
        survey = make_survey(
            self._design(),
            self.epsilon,
            train.scale,
            n_items=train.n_items,
            catalogue=fingerprint(train.items, features),
            coding=self.coding,
        )
        seed = seed_of(self.rng)
        if self.max_ratings is not None:
            source: Noise = released or SeededNoise(seed, stream=4)
            draws = source.uniforms(len(train))
            if self._design() == "L":
                sent = bound_contributions(train.user_codes, self.max_ratings, draws)
                train, weights = train.take(sent), weights.take(sent)
            else:
                train, weights = bound_in_sums(train, weights, self.max_ratings, draws)
        noise: Noise = released or SeededNoise(seed, stream=3)
        answer = bits if self._design() == "L" else sums
        return survey, answer(train, weights, survey, noise), n_silent(train, weights)

    def _keep(
        self,
        answer: SumContribution | BitContribution,
        survey: Survey,
        train: Ratings,
        features: ItemFeatures | None,
    ) -> None:
        """Keep what the recommender holds of the answers beside the facts, if anything."""

    def _popularity(self) -> np.ndarray:
        """Estimate how many raters items have, from the released sums of weights.

        Item weights are the same for everybody here, so every device can do so.
        """
        share = PRESENCE_SHARE if self.implicit_ else 1.0 / WEIGHT_SCALE
        noise_scale = 0.0 if self._design() == "L" else 1.0 / (share * self.epsilon)
        return correct_popularity(
            self.facts_.popularity.astype(np.float64), self.devices_.gamma, noise_scale
        )

    def _raised(self) -> np.ndarray | float:
        return 1.0 / self.devices_.gamma

    @abstractmethod
    def _design(self) -> str:
        """``A`` or ``L``."""


def counted(train: Ratings, weights: PrivacyWeights, noise: Noise, epsilon: float) -> np.ndarray:
    """Return how much weight items have, as estimated from one sum with noise."""
    released = noisy_weights(train, weights, noise, epsilon) / WEIGHT_UNITS
    return deconvolve(released, 1.0 / epsilon).size_biased


@dataclass(eq=False, repr=False)
class HDPSum(SumOptions, Surveyed):
    """Secure sums: the recommender sees only sums over users, with the whole noise.

    Every rating has W_ij * epsilon pure differential privacy against a change of its value and
    three quarters of that against its presence, where only sums over users are seen; which items a
    user rated is hidden too.

    From choices (clicks, purchases) it learns what many people choose, by one sum of weights on
    which all that presence costs is spent. Lists are that and each person's own taste.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        max_ratings: How many ratings of weight 1 a person's ratings are sent as at most: drawn at
            random until they have that weight, the last one with what is left of it. All are used
            on the device. It bounds what all of a person's ratings cost. For a person who reaches
            it, presence of one rating costs twice as much.
        coding: ``soft``, ``threshold`` or ``linear`` coding of ratings; ``auto`` is soft below
            epsilon 4.
        features: Public item features: True or ``auto`` for the item table's genres and years, a
            file, an ItemFeatures, or False.
        n_threads: Threads; every core by default. The result does not depend on it.
        rng: An int, a numpy Generator, or None for another result every time.
    """

    takes_implicit: ClassVar[bool] = True

    def _design(self) -> str:
        return "A"

    def _ask(
        self, train: Ratings, weights: PrivacyWeights, features: ItemFeatures | None
    ) -> tuple[ItemFacts, int]:
        if not train.implicit:
            return super()._ask(train, weights, features)
        noise, n_items = SeededNoise(seed_of(self.rng), stream=3), train.n_items
        if self.max_ratings is not None:
            draws = SeededNoise(seed_of(self.rng), stream=4).uniforms(len(train))
            train, weights = bound_in_sums(train, weights, self.max_ratings, draws)
        epsilon = PRESENCE_SHARE * self.epsilon
        facts = ItemFacts(
            catalogue=fingerprint(train.items, features),
            mean=MIDDLE,
            bias=np.zeros(n_items, np.float32),
            variance=np.zeros(n_items, np.float32),
            popularity=counted(train, weights, noise, epsilon).astype(np.float32),
            popularity_margin=np.full(n_items, margin(n_items, laplace=1 / epsilon), np.float32),
        )
        return facts, n_silent(train, weights)

    def _facts(
        self, survey: Survey, answer: SumContribution, features: ItemFeatures | None
    ) -> ItemFacts:
        return facts_from_sums(survey, answer, None if features is None else features.matrix)
