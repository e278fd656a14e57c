"""A fitted model: the recommender's part, the devices' part, and predictions from both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from hdpmf.common.data import Id, Ratings, RatingsLike, as_ratings
from hdpmf.common.data.checks import ScaleLike
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError, NotFittedError, RatingsError, UnknownIdError
from hdpmf.models.input_checks import (
    Parameters,
    check_kind,
    check_same_kind,
    columns_of,
    in_pairs,
    join_pairs,
    kind_of,
    plain,
)
from hdpmf.private.client import Devices
from hdpmf.untrusted.recommender import Catalogue

_ROUNDING = 1e-6
"""How far off the scale a prediction may be by rounding."""


class FittedModel(Parameters):
    """Two parts that never mix, and what every use of them needs: predictions, errors, checks.

    Attributes:
        catalogue_: The recommender's part: item factors and public facts.
        devices_: The devices' part: user vectors, privacy weights, what each user rated.
    """

    catalogue_: Catalogue
    devices_: Devices

    can_rank: ClassVar[bool] = True
    """True if predictions differ between items."""

    predicts_ratings: ClassVar[bool] = True
    """True if the model predicts ratings, False if it only orders items."""

    takes_implicit: ClassVar[bool] = False
    """True if the model also learns from implicit feedback (clicks, purchases): who chose what."""

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict a rating for each pair of a user's and an item's position.

        Subclasses implement this. Positions are those in ``train.users`` and ``train.items``, of
        users and items that had ratings in training. Predictions off the scale are clipped to it.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say what it expects; give it expect(self, "
            "users, items)"
        )

    def predict(
        self, users: Iterable[Id] | Id, items: Iterable[Id] | Id | None = None
    ) -> np.ndarray:
        """Predicted ratings for pairs of user and item ids, within the rating scale.

        One user goes with many items, and one item with many users. An item not seen in training
        gets the user's own mean, a user not seen in training the middle of the scale. So do all
        pairs where a model only orders items (``predicts_ratings`` is False). Without
        ``items``, ``users`` has both, a pair per row, as scikit-learn calls it.

        Raises:
            RatingsError: Ids are of another kind than in training (text for integers), or there are
                no pairs of them.
        """
        self._check_fitted()
        user_ids, item_ids = columns_of(users) if items is None else in_pairs(users, items)
        check_kind(self.devices_.users, user_ids, "user")
        check_kind(self.catalogue_.items, item_ids, "item")
        return self._predict_codes(
            self.devices_.users.find(user_ids), self.catalogue_.items.find(item_ids)
        )

    @overload
    def score(self, test: RatingsLike, y: None = None) -> dict[str, float | int]: ...

    @overload
    def score(self, test: Any, y: Any) -> float: ...

    def score(self, test: RatingsLike, y: Any = None) -> dict[str, float | int] | float:
        """Mean squared and absolute error on ``test``: ratings, a data frame or a sparse matrix.

        With ``y``, the ratings of pairs in ``test``, as scikit-learn calls it: minus the mean
        squared error.

        Returns:
            ``mse``, ``mae``, ``n`` (all test ratings) and ``n_cold`` (those among them whose user
            or item was not in training, predicted by the fallback). Of a method that is not ours
            also ``n_off_scale``: what its ``expect`` returned that no rating can be, and that was
            brought back to the scale.

        Raises:
            ConfigError: The model orders items and predicts no ratings; ``rank`` measures it.
            RatingsError: The test ratings are on another scale than the training ratings, or their
                ids of another kind.
        """
        self._check_fitted()
        if y is not None:
            return -float(self.score(join_pairs(test, y, self.catalogue_.scale))["mse"])
        test = self._taken(test, self.catalogue_.scale)
        if test.implicit:
            raise RatingsError(
                f"{test.name}: implicit feedback has no ratings to be wrong about; use rank"
            )
        if not self.predicts_ratings:
            raise ConfigError(
                f"{type(self).__name__} orders items and predicts no ratings, so it has no error; "
                "rank measures its lists"
            )
        self._check_like_training(test, "test")
        users = self.devices_.users.find(test.users.ids)[test.user_codes]
        items = self.catalogue_.items.find(test.items.ids)[test.item_codes]
        errors = self._predict_codes(users, items) - test.values
        known_user = np.append(~np.isnan(self.devices_.means), False)[users]
        known_item = np.append(self._ever_rated(), False)[items]
        found = {
            "mse": float(np.mean(errors**2)),
            "mae": float(np.mean(np.abs(errors))),
            "n": len(test),
            "n_cold": int((~(known_user & known_item)).sum()),
        }
        if (
            not type(self).__module__.startswith("hdpmf.")
            and type(self).expect != FittedModel.expect
        ):
            warm = known_user & known_item
            expected = np.asarray(self.expect(users[warm], items[warm]), np.float64)
            possible = self.devices_.scale.clip(expected)
            found["n_off_scale"] = int((np.abs(expected - possible) > _ROUNDING).sum())
        return found

    def _user_codes(self, users: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Positions of users who must be known."""
        known = self.devices_.users
        codes = known.find(users)
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            more = f" (and {len(unknown) - 1:,} others)" if len(unknown) > 1 else ""
            raise UnknownIdError(
                f"user {plain(users[unknown[0]])!r}{more} was not in training, where user ids are "
                f"{kind_of(known)}; model.fold_in(ratings) takes new users in"
            )
        return codes

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict ratings for pairs of user and item positions; -1 means unknown."""
        scale = self.devices_.scale
        means = np.append(self.devices_.means, np.nan)[users].astype(np.float64)
        predicted = np.where(np.isnan(means), scale.middle, means)
        known = (items >= 0) & ~np.isnan(means)
        known[known] = self._ever_rated()[items[known]]
        if known.any():
            expected = np.asarray(self.expect(users[known], items[known]), np.float64)
            if expected.shape != (int(known.sum()),) or not np.isfinite(expected).all():
                raise ConfigError(
                    f"{type(self).__name__}.expect must give a finite number for each of "
                    f"{int(known.sum()):,} pairs"
                )
            predicted[known] = expected
        return scale.clip(predicted)

    def _candidates(self) -> np.ndarray:
        """Return a mask of the items that may be listed: those the model learned about."""
        return self._ever_rated()

    def _ever_rated(self) -> np.ndarray:
        """Return a mask of the items that the training data knew."""
        rated = np.zeros(len(self.catalogue_.items), bool)
        rated[self.devices_.rated] = True
        return rated

    def _taken(self, data: RatingsLike, scale: ScaleLike | None = None) -> Ratings:
        """Convert what `fit`, `score` and `rank` are given to ratings.

        Raises:
            RatingsError: They cannot be used, or it is implicit feedback and the model learns from
                ratings.
        """
        ratings = as_ratings(data, scale, implicit=None if self.takes_implicit else False)
        if ratings.implicit and not self.takes_implicit:
            able = ", ".join(
                name for name, method in METHODS.items() if method.model.takes_implicit
            )
            raise RatingsError(
                f"{ratings.name} is implicit feedback, which says who chose what and not how they "
                f"liked it; {type(self).__name__} learns from ratings. Methods that take it: {able}"
            )
        return ratings

    def _check_like_training(self, ratings: Ratings, what: str) -> None:
        """Refuse ratings on another scale, or with ids of another kind."""
        scale = self.catalogue_.scale
        if (ratings.scale.low, ratings.scale.high) != (scale.low, scale.high):
            raise RatingsError(
                f"the {what} ratings are on the scale {ratings.scale}, the model's is {scale}"
            )
        check_same_kind(self.devices_.users, ratings.users, what, "user")
        check_same_kind(self.catalogue_.items, ratings.items, what, "item")

    def _check_ranks(self) -> None:
        if not self.can_rank:
            raise ConfigError(
                f"{type(self).__name__} predicts the same for every item, so it cannot rank items"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "catalogue_"):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet; call fit(train, weights) first"
            )
