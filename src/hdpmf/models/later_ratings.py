"""Ratings that come after training: of known users, of new ones, and changed ones."""

from abc import abstractmethod
from typing import Self

import numpy as np

from hdpmf.common.data import Ratings, RatingsLike
from hdpmf.common.model.device_fit import STARS
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, RatingsError, notify
from hdpmf.models.fitted import FittedModel, privacy_weights, writing
from hdpmf.private.client import Devices
from hdpmf.private.client.recency import UNKNOWN
from hdpmf.untrusted.recommender import Catalogue


def with_earlier(new: Ratings, devices: Devices, catalogue: Catalogue) -> Ratings:
    """Return all ratings of these users: the new ones, and those before of other items."""
    counts = np.diff(devices.rated_start)
    owners = np.repeat(np.arange(len(counts)), counts)
    users, n_items = devices.users.find(new.users.ids), len(catalogue.items)
    again = np.isin(owners, users)
    pairs = users[new.user_codes].astype(np.int64) * n_items + catalogue.items.find(new.item_ids)
    changed = np.isin(owners * n_items + devices.rated, pairs)
    kept = np.flatnonzero(again & ~changed)
    if len(kept) == 0:
        return new
    scale = devices.scale
    values = scale.low + (devices.stars[kept] - 1.0) * (scale.width / STARS)
    times = None
    if new.timestamps is not None or devices.times is not None:
        earlier = _times(devices.times, len(owners))[kept]
        times = np.concatenate([_times(new.timestamps, len(new)), earlier])
    return Ratings.from_arrays(
        np.concatenate([new.user_ids, devices.users.ids[owners[kept]]]),
        np.concatenate([new.item_ids, catalogue.items.ids[devices.rated[kept]]]),
        None if new.implicit else np.concatenate([new.values, scale.clip(values)]),
        timestamps=times,
        scale=None if new.implicit else (scale.low, scale.high),
        name=new.name,
    )


def kept_weights(ratings: Ratings, devices: Devices, catalogue: Catalogue) -> PrivacyWeights:
    """Return the weights that the model has for these users and items; 1 for new users."""
    return PrivacyWeights.from_parts(
        ratings,
        users=np.append(devices.beta, 1.0)[devices.users.find(ratings.users.ids)],
        items=np.append(devices.gamma, 1.0)[catalogue.items.find(ratings.items.ids)],
    )


def _times(times: np.ndarray | None, count: int) -> np.ndarray:
    return np.full(count, UNKNOWN) if times is None else times


class LaterRatings(FittedModel):
    """The part of an estimator that takes in ratings after training."""

    @writing
    def update(self, ratings: RatingsLike, weights: PrivacyWeights | float | None = None) -> Self:
        """Take in ratings that came after `fit`: of known users, of new ones, and changed ones.

        Each user's vector is fitted again to all of their ratings, on their device. Nothing is
        sent, so nothing is paid: what the recommender released, and the claim, which is about what
        `fit` sent, stay as they are. What others learn from these ratings they learn from the next
        `fit`.

        Args:
            ratings: As `fit` takes them, on the model's scale. One of a pair that the model knows
                replaces the earlier one. Those of items that it does not know are left out, with a
                warning that counts them.
            weights: Privacy weights of these users; None: known users keep theirs, new ones have 1.

        Raises:
            ConfigError: The method learns all that it knows in training.
            RatingsError: No rating is about an item that the model knows, or the scale or the ids
                are not the training's.
        """
        self._check_fitted()
        if type(self)._take_in is LaterRatings._take_in:
            raise ConfigError(
                f"{type(self).__name__} learns from all ratings at once; fit it again with these"
            )
        new = self._taken(ratings, self.catalogue_.scale).compact()
        self._check_like_training(new, "new")
        known = np.append(self._usable(), False)[self.catalogue_.items.find(new.items.ids)]
        in_catalogue = known[new.item_codes]
        if not in_catalogue.any():
            raise RatingsError(
                f"{new.name}: none of the rated items was in training, so nothing can be taken "
                "in; fit again to learn about them"
            )
        if not in_catalogue.all():
            notify(
                f"{new.name}: {int((~in_catalogue).sum()):,} ratings are of items that were not in "
                "training, and are left out; fit again to learn about them"
            )
        together = with_earlier(new.take(in_catalogue).compact(), self.devices_, self.catalogue_)
        if weights is None:
            weights = kept_weights(together, self.devices_, self.catalogue_)
        self._take_in(together, privacy_weights(together, weights))
        return self

    def _usable(self) -> np.ndarray:
        """Return a mask of the items whose ratings can be taken in."""
        return np.ones(len(self.catalogue_.items), bool)

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        """Replace all ratings of these users; their items are in the catalogue."""
        raise RatingsError(
            f"{type(self).__name__} cannot take in later ratings; fit again with all of them"
        )


class FoldIn(LaterRatings):
    """The part of an estimator with user vectors that adds users without training again."""

    @writing
    def fold_in(
        self,
        ratings: RatingsLike,
        weights: PrivacyWeights | float | None = None,
        *,
        replace: bool = False,
    ) -> np.ndarray:
        """Add new users: each vector is computed on the device, with the model of items fixed.

        Nothing is sent, so nothing is paid. From then on ``predict`` and ``recommend`` know these
        users. Items that the model does not know are left out.

        Args:
            ratings: The new users' ratings, as `fit` takes them.
            weights: Their privacy weights, one number for all of them, or None for 1. One-round
                methods keep them with the users; they do not change the fit there.
            replace: Users whom the model knows may be among them; these ratings then replace all of
                theirs.

        Returns:
            One vector per user who has ratings here.
        """
        taken = self._newcomers(ratings, replace)
        items = self.catalogue_.items.find(taken.items.ids)[taken.item_codes]
        return self._fit_newcomers(taken, items, weights)

    @abstractmethod
    def _fit_newcomers(
        self, ratings: Ratings, items: np.ndarray, weights: PrivacyWeights | float | None
    ) -> np.ndarray:
        """Fit and keep the vectors of these users; ``items`` are positions, or -1."""

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        self.fold_in(ratings, weights, replace=True)

    def _newcomers(self, ratings: RatingsLike, replace: bool) -> Ratings:
        """Return the ratings of new users, without users who have none.

        Raises:
            RatingsError: A user is in the model already and ``replace`` is off, or the scale or the
                ids are not the training's.
        """
        self._check_fitted()
        ratings = self._taken(ratings, self.catalogue_.scale).compact()
        self._check_like_training(ratings, "new")
        positions = self.devices_.users.find(ratings.users.ids)
        known = ratings.users.ids[
            np.append(np.diff(self.devices_.rated_start) > 0, False)[positions]
        ]
        if len(known) and not replace:
            more = f" (and {len(known) - 1:,} others)" if len(known) > 1 else ""
            raise RatingsError(
                f"user {known[0].item()!r}{more} is in the model already: "
                f"their ratings there would be lost; model.update(ratings) adds to them, "
                f"replace=True says that these are all"
            )
        return ratings
