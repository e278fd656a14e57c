"""Ratings that come after training: of known users, of new ones, and changed ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from hdpmf.common.data import IdIndex, ItemTable, Ratings, RatingsLike
from hdpmf.common.data.item_features import ItemFeatures, NoFeaturesError
from hdpmf.common.model.device_fit import STARS
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, RatingsError, notify
from hdpmf.models.fitted import FittedModel, check_same_kind
from hdpmf.private.client import Devices
from hdpmf.private.client.devices import rows_by_code
from hdpmf.private.client.recency import UNKNOWN
from hdpmf.untrusted.recommender import Catalogue
from hdpmf.untrusted.recommender.new_items import NewItems


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
        np.concatenate([new.values, scale.clip(values)]),
        timestamps=times,
        scale=(scale.low, scale.high),
        name=new.name,
    )


def kept_weights(ratings: Ratings, devices: Devices, catalogue: Catalogue) -> PrivacyWeights:
    """Return the weights that the model has for these users and items; 1 for new users."""
    return PrivacyWeights.from_parts(
        ratings,
        users=np.append(devices.beta, 1.0)[devices.users.find(ratings.users.ids)],
        items=np.append(devices.gamma, 1.0)[catalogue.items.find(ratings.items.ids)],
    )


def rows_of_items(
    ratings: Ratings, catalogue: Catalogue, items: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield those of these items (positions) that have ratings, each with their rows."""
    positions = catalogue.items.find(ratings.items.ids)
    rows = rows_by_code(ratings.item_codes, ratings.n_items)
    wanted = np.isin(positions, items)
    for code in np.flatnonzero(wanted).tolist():
        if len(rows[code]):
            yield int(positions[code]), rows[code]


def _times(times: np.ndarray | None, count: int) -> np.ndarray:
    return np.full(count, UNKNOWN) if times is None else times


class LaterRatings(FittedModel):
    """The part of an estimator that takes in ratings and items after training."""

    learns_items_from_ratings: ClassVar[bool] = False
    """True if nothing is private here, so that `update` learns about items from later ratings."""

    places_items: ClassVar[bool] = True
    """True if `update` can place new items by what is public about them."""

    def update(
        self,
        ratings: RatingsLike | None = None,
        weights: PrivacyWeights | float | None = None,
        *,
        items: Any = None,
    ) -> Self:
        """Take in ratings that came after `fit`: of known users, of new ones, and changed ones.

        Each user's vector is fitted again to all of their ratings, on their device. Nothing is
        sent, so nothing is paid: what the recommender released, and the claim, which is about what
        `fit` sent, stay as they are. What others learn from these ratings they learn from the next
        `fit`. Methods without privacy learn about new items from their ratings at once.

        Args:
            ratings: As `fit` takes them, on the model's scale. One of a pair that the model knows
                replaces the earlier one. Those of items that it does not know are left out, with a
                warning that counts them, unless ``items`` has these.
            weights: Privacy weights of these users; None: known users keep theirs, new ones have 1.
            items: Public facts about new items, as `fit` takes them. They join the catalogue, all
                that are listed, whoever rated them; their numbers are what features of known items
                say (the mean without features), at no cost.

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
        if items is not None and not self.places_items:
            raise ConfigError(
                f"{type(self).__name__} cannot place items that came after its training; leave "
                "them out, and fit again to learn about them"
            )
        if ratings is None and items is None:
            raise ConfigError("nothing to take in; give ratings, items=frame, or both")
        new = None
        if ratings is not None:
            new = self._taken(ratings, self.catalogue_.scale).compact()
            self._check_like_training(new, "new")
        table = None if items is None else self._new_table(items)
        added = self._add_items(new, table)
        if new is not None:
            known = np.append(self._usable(), False)[self.catalogue_.items.find(new.items.ids)]
            self._take_in_known(new, known, weights, added)
        return self

    def _usable(self) -> np.ndarray:
        """Return a mask of the items whose ratings can be taken in."""
        return np.ones(len(self.catalogue_.items), bool)

    def _take_in_known(
        self,
        new: Ratings,
        known: np.ndarray,
        weights: PrivacyWeights | float | None,
        added: np.ndarray,
    ) -> None:
        """Take in those ratings whose items are known, and say how many are left out."""
        in_catalogue = known[new.item_codes]
        remedy = "describe them with items=frame, or " if self.places_items else ""
        if not in_catalogue.any():
            raise RatingsError(
                f"{new.name}: none of the rated items was in training, so nothing can be taken "
                f"in; {remedy}fit again to learn about them"
            )
        if not in_catalogue.all():
            notify(
                f"{new.name}: {int((~in_catalogue).sum()):,} ratings are of items that were not in "
                f"training, and are left out; {remedy}fit again to learn about them"
            )
        together = with_earlier(new.take(in_catalogue).compact(), self.devices_, self.catalogue_)
        if weights is None:
            weights = kept_weights(together, self.devices_, self.catalogue_)
        elif not isinstance(weights, PrivacyWeights):
            weights = PrivacyWeights.uniform(together, weights)
        self._take_in(together, weights, added)

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights, added: np.ndarray) -> None:
        """Replace all ratings of these users; their items are in the catalogue.

        ``added`` are the positions there of items that the training did not know.
        """
        raise RatingsError(
            f"{type(self).__name__} cannot take in later ratings; fit again with all of them"
        )

    def _new_table(self, items: Any) -> ItemTable:
        """Return what is said about items that the model does not know."""
        table = ItemTable.of(items)
        known = self.catalogue_.items
        if table.index.is_integer and not known.is_integer:
            table = table.with_text_ids()
        check_same_kind(known, table.index, "new", "item")
        return table.select(table.ids[known.find(table.ids) < 0])

    def _add_items(self, new: Ratings | None, table: ItemTable | None) -> np.ndarray:
        """Add listed items to the catalogue; return the positions of those that are new.

        Only what is public decides which: that an item was rated is private. Without privacy, items
        of new ratings are added, too.
        """
        catalogue = self.catalogue_
        ids = catalogue.items.ids[:0] if table is None else table.ids
        if new is not None and self.learns_items_from_ratings:
            unknown = new.items.ids[catalogue.items.find(new.items.ids) < 0]
            ids = np.union1d(ids, unknown) if len(ids) else unknown
        known = len(catalogue.items)
        if len(ids):
            everything = np.concatenate([catalogue.items.ids, ids])
            earlier = catalogue.item_table
            both = earlier if table is None else table if earlier is None else earlier.joined(table)
            features = self._public_features()
            if features is not None and table is not None:
                frame = None if earlier is None else earlier.frame
                features = features.with_more_items(table, ids, frame, catalogue.items.ids.tolist())
            elif features is not None:
                rows = np.zeros((len(ids), len(features.names)))
                features = replace(features, matrix=np.concatenate([features.matrix, rows]))
            stated = catalogue.items.stated and not self.learns_items_from_ratings
            index = IdIndex(everything, stated=stated, as_given=True)
            self._place(NewItems.of(index, self._raters(), both, features))
            self.devices_.add_items(np.ones(len(ids)))
        return np.arange(known, known + len(ids))

    def _public_features(self) -> ItemFeatures | None:
        """Return the features of the catalogue's items that new ones are placed by."""
        items, table = self.catalogue_.items, self.catalogue_.item_table
        if table is None:
            return None
        if table.frame is None:
            return ItemFeatures.of_table(table, items)
        try:
            return ItemFeatures.of_frame(table.frame, items)
        except NoFeaturesError:
            return None  # titles only

    def _raters(self) -> np.ndarray:
        """Return how often items are rated, as far as it is public."""
        return self.catalogue_.raters

    def _place(self, new: NewItems) -> None:
        """Give new items the numbers that the recommender has of all items."""
        self.catalogue_ = new.catalogue(self.catalogue_)


class FoldIn(LaterRatings):
    """The part of an estimator with user vectors that adds users without training again."""

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

    def _take_in(self, ratings: Ratings, weights: PrivacyWeights, added: np.ndarray) -> None:
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
