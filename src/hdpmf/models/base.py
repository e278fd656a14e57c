"""What all models share: a recommender's part, a devices' part, and questions that need both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar, Self, overload

import numpy as np

from hdpmf.errors import ConfigError, NotFittedError, RatingsError
from hdpmf.methods import METHODS, method_of
from hdpmf.models.params import Parameters
from hdpmf.models.training import EpochRecord
from hdpmf.privacy.claims import PrivacyClaim, claim_of
from hdpmf.privacy.mechanisms import Mechanism
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import Id, ItemFilter, Ratings, RatingScale, RatingsLike, as_ratings
from hdpmf.recommender import Catalogue
from hdpmf.shard import Devices
from hdpmf.shard.choosing import ChooseAndLike
from hdpmf.shard.recommending import ListMaker, ListOrder, Recommendation

Callback = Callable[[EpochRecord], object]
"""Called after every epoch; training goes on unless it returns True."""

Several = list[Any] | tuple[Any, ...] | np.ndarray
"""Ids of users."""


class Model(Parameters, ABC):
    """A fitted model is two parts that never mix: what the recommender holds and what devices hold.

    Attributes:
        catalogue_: The recommender's part: item factors and public facts.
        devices_: The devices' part: user vectors, privacy weights, what each user rated.
    """

    catalogue_: Catalogue
    devices_: Devices

    can_rank: ClassVar[bool] = True
    """Whether predictions differ between items at all."""

    takes_implicit: ClassVar[bool] = False
    """Whether it learns from who chose what alone, so that implicit feedback (clicks, purchases) will do."""

    @abstractmethod
    def fit(
        self,
        train: RatingsLike,
        weights: PrivacyWeights | None = None,
        *,
        validation: RatingsLike | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Learn from ratings (which `_taken` makes of a frame or a matrix); without weights every one has weight 1."""

    @abstractmethod
    def _mechanism(self) -> Mechanism:
        """How ratings enter and predictions come back."""

    @property
    def privacy(self) -> PrivacyClaim:
        """What the model's epsilon is and what it stands on."""
        method = method_of(self)
        claim = claim_of(method, getattr(self, "epsilon", 0.0), labels=bool(getattr(self, "labels", False)))
        if claim.epsilon:
            # Made in this process from a seed.
            stated = hasattr(self, "catalogue_") and self.catalogue_.items.stated
            claim = replace(claim, noise="simulated", items="stated" if stated else "rated")
        if method is None or claim.status != "nominal":
            return claim
        from hdpmf.privacy.accounting import with_honest_cost

        return with_honest_cost(claim, method.name, self.get_params())

    def predict(self, users: Iterable[Id] | Id, items: Iterable[Id] | Id) -> np.ndarray:
        """Predicted ratings for pairs of user and item ids, within the rating scale.

        Never fails on ids: an item not seen in training gets the user's own mean, a user not seen in training the
        middle of the scale.
        """
        self._check_fitted()
        user_ids, item_ids = _column(users), _column(items)
        if len(user_ids) != len(item_ids):
            raise RatingsError(f"predict got {len(user_ids)} users and {len(item_ids)} items; give pairs")
        return self._predict_codes(self.devices_.users.find(user_ids), self.catalogue_.items.find(item_ids))

    def score(self, test: RatingsLike) -> dict[str, float | int]:
        """Mean squared and absolute error on ``test``: ratings, a data frame or a sparse matrix.

        Returns:
            ``mse``, ``mae``, ``n`` (all test ratings) and ``n_cold`` (those among them whose user or item was not
            in training, predicted by the fallback).
        """
        self._check_fitted()
        test = self._taken(test, self.catalogue_.scale)
        if test.implicit:
            raise RatingsError(f"{test.name}: implicit feedback has no ratings to be wrong about; use rank")
        users = self.devices_.users.find(test.users.ids)[test.user_codes]
        items = self.catalogue_.items.find(test.items.ids)[test.item_codes]
        errors = self._predict_codes(users, items) - test.values
        known_user = np.append(~np.isnan(self.devices_.means), False)[users]
        known_item = np.append(self._ever_rated(), False)[items]
        return {
            "mse": float(np.mean(errors**2)),
            "mae": float(np.mean(np.abs(errors))),
            "n": len(test),
            "n_cold": int((~(known_user & known_item)).sum()),
        }

    def rank(self, test: RatingsLike, n: int = 10) -> dict[str, float | int]:
        """How good the lists of the ``n`` best items are, by the protocol that ``hdpmf.models.ranking`` states.

        Returns:
            All ``METRICS`` there, ``NAME_margin`` of those that every user has (one side of a 95 % interval over
            users), and ``n_users``, those who were ranked for.

        Raises:
            ConfigError: The model predicts the same for every item.
            RatingsError: No known user has a relevant test rating.
        """
        from hdpmf.models.ranking import rank

        self._check_fitted()
        self._check_ranks()
        test = self._taken(test, self.catalogue_.scale)
        candidates = self._candidates()
        candidates[np.setdiff1d(np.arange(len(candidates)), self.devices_.rated)] = False
        places = self.catalogue_.items.find(test.items.ids)
        return rank(self.devices_, candidates, self._order().scores, test, places, n).summary()

    @overload
    def recommend(
        self, users: Id, n: int = 10, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> list[Recommendation]: ...

    @overload
    def recommend(
        self, users: Several, n: int = 10, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> dict[Id, list[Recommendation]]: ...

    def recommend(
        self, users: Id | Several, n: int = 10, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> list[Recommendation] | dict[Id, list[Recommendation]]:
        """The ``n`` best items for a user, best first: what they would choose and like, and why.

        Args:
            users: A user, or several: then the answer has the list of each.
            n: How many items.
            keep_rated: Whether items that the user has rated may be in the list.
            only: What items have to be like: genres, years, or an explicit choice.

        Raises:
            UnknownIdError: A user was not in training; use ``fold_in`` first.
            ConfigError: The model cannot rank, or ``only`` asks for a genre that there is not.
        """
        lists = self.recommend_each(_column(users), n, keep_rated=keep_rated, only=only)
        if isinstance(users, (list, tuple, np.ndarray)):
            return dict(lists)
        return next(iter(lists))[1]

    def recommend_each(
        self, users: Several, n: int = 10, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> Iterator[tuple[Id, list[Recommendation]]]:
        """Each user with their list, one after the other, so that memory does not grow with their number."""
        self._check_fitted()
        self._check_ranks()
        codes = self.devices_.users.codes(users)
        made = self._list_maker().lists(codes, n, keep_rated=keep_rated, only=only)
        return zip(self.devices_.users.ids[codes].tolist(), made, strict=True)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model: ``folder/recommender`` has nothing private, ``folder/devices`` everything that is.

        The folder appears whole or not at all; an earlier model there is replaced.
        """
        from hdpmf.models.files import save_model

        self._check_fitted()
        save_model(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a model of this class that ``save`` wrote."""
        from hdpmf.models.files import load_model

        model = load_model(folder)
        if not isinstance(model, cls):
            raise ConfigError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}; use hdpmf.load_model for any kind"
            )
        return model

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        catalogue = self.catalogue_
        return self.devices_.predict(users, items, catalogue.factors, catalogue.trained, self._mechanism())

    def _list_maker(self) -> ListMaker:
        catalogue = self.catalogue_
        return ListMaker(
            self.devices_,
            self._order(),
            self._predict_codes,
            self._candidates(),
            catalogue.items,
            catalogue.item_table,
        )

    def _order(self) -> ListOrder:
        """By what items are ordered for lists: what people would choose and like."""
        return ChooseAndLike(self.devices_, self._predicted, self.catalogue_.raters)

    def _predicted(self, users: np.ndarray) -> np.ndarray:
        """Predicted ratings of all items, one row per user."""
        n_items = len(self.catalogue_.items)
        pairs = np.repeat(users, n_items), np.tile(np.arange(n_items), len(users))
        return self._predict_codes(*pairs).reshape(len(users), n_items)

    def _candidates(self) -> np.ndarray:
        """Which items may be in a list: those that the model learned something about."""
        return self.catalogue_.trained.copy()

    def _ever_rated(self) -> np.ndarray:
        """Which items of the catalogue the training data knew."""
        return self.catalogue_.trained

    def _taken(self, data: RatingsLike, scale: RatingScale | None = None) -> Ratings:
        """The ratings in whatever holds them: the first thing that `fit`, `score` and `rank` do.

        Raises:
            RatingsError: They cannot be used, or it is implicit feedback and the model learns from ratings.
        """
        ratings = as_ratings(data, scale, implicit=None if self.takes_implicit else False)
        if ratings.implicit and not self.takes_implicit:
            able = ", ".join(name for name, method in METHODS.items() if method.model.takes_implicit)
            raise RatingsError(
                f"{ratings.name} is implicit feedback, which says who chose what and not how they liked it; "
                f"{type(self).__name__} learns from ratings. Methods that take it: {able}"
            )
        return ratings

    def _check_newcomers(self, ratings: Ratings) -> None:
        """Refuse ratings of new users that this model cannot take in."""
        self._check_fitted()
        scale = self.catalogue_.scale
        if (ratings.scale.low, ratings.scale.high) != (scale.low, scale.high):
            raise RatingsError(f"the new ratings are on the scale {ratings.scale}, the model's is {scale}")
        if len(self.devices_.users) and ratings.users.is_integer != self.devices_.users.is_integer:
            raise RatingsError("the new users' ids are not of the model's kind (integers or strings)")

    def _check_ranks(self) -> None:
        if not self.can_rank:
            raise ConfigError(f"{type(self).__name__} predicts the same for every item, so it cannot rank items")

    def _check_fitted(self) -> None:
        if not hasattr(self, "catalogue_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit(train, weights) first")


def _column(ids: Any) -> Any:
    """Ids as a sequence: one id stands for a list of one."""
    if isinstance(ids, (str, int, np.integer)):
        return [ids]
    return ids if isinstance(ids, np.ndarray) else list(ids)
