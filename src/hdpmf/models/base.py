"""The base class of all models: a recommender's part, a devices' part, and what needs both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np

from hdpmf.common.base.notebook import facts_html
from hdpmf.common.base.progress import progress_bar
from hdpmf.common.data import Id, ItemFilter, Ratings, RatingsLike, as_ratings
from hdpmf.common.data.scale import ScaleLike
from hdpmf.common.methods import METHODS, check, method_of
from hdpmf.common.methods.method import PrivacyClaim, claim_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, NotFittedError, RatingsError, UnknownIdError, hint, notify
from hdpmf.models.input_checks import (
    Parameters,
    check_kind,
    check_same_kind,
    column,
    columns_of,
    described_items,
    first_times,
    in_pairs,
    is_column,
    is_one_id,
    join_pairs,
    kind_of,
    plain,
    privacy_weights,
    tags,
)
from hdpmf.models.later_ratings import kept_weights, with_earlier
from hdpmf.models.result_tables import RecommendedList, RecommendedLists, SimilarItem, similar
from hdpmf.models.training import EpochRecord
from hdpmf.private.client import Devices
from hdpmf.private.client.ranking import ChooseAndLike, ListMaker, ListOrder, Recommendation
from hdpmf.untrusted.recommender import Catalogue

if TYPE_CHECKING:
    from hdpmf.models.ranking_metrics import ListQuality

Callback = Callable[[EpochRecord], object]
"""Called after every epoch; training goes on unless it returns True."""

Several = Iterable[Any]
"""Ids of users: a list, a set, a range, an array, a column of a data frame."""


_ROUNDING = 1e-6
"""How far off the scale a prediction may be by rounding."""


class Estimator(Parameters):
    """A method that can be fitted and queried; subclass it to add your own.

    A subclass is a dataclass whose fields are its options. It says how it learns (``learn``) and
    what rating it expects (``expect``), and keeps what it learned in attributes that end in an
    underscore. Everything else is here: fallbacks for unknown users and items, errors, lists,
    files. docs/own-method.md has a whole one.

    A fitted model is two parts that never mix: what the recommender holds and what devices hold.

    Attributes:
        catalogue_: The recommender's part: item factors and public facts.
        devices_: The devices' part: user vectors, privacy weights, what each user rated.
    """

    catalogue_: Catalogue
    devices_: Devices
    weights_by_user_and_item_: bool
    """True if the devices know every weight: single ratings have none of their own, nor levels."""

    can_rank: ClassVar[bool] = True
    """True if predictions differ between items."""

    predicts_ratings: ClassVar[bool] = True
    """True if the model predicts ratings, False if it only orders items."""

    takes_implicit: ClassVar[bool] = False
    """True if the model also learns from implicit feedback (clicks, purchases): who chose what."""

    def _train_lists(self) -> None:
        """Train the model for lists, where there is one beside the one for stars."""
        return

    def fit(
        self,
        train: RatingsLike,
        weights: Any = None,
        *,
        scale: ScaleLike | None = None,
        items: Any = None,
        validation: RatingsLike | None = None,
        callbacks: Sequence[Callback] = (),
        lists: bool = True,
        progress: bool | None = None,
    ) -> Self:
        """Learn from ratings.

        Args:
            train: Ratings to learn from, or a data frame or sparse matrix of them.
            weights: PrivacyWeights, or one number for all ratings; without them every rating has
                weight 1, that is the whole of epsilon. As scikit-learn calls it, ``fit(X, y)``,
                this is the ratings, and ``train`` has only users and items.
            scale: The public scale of a frame, matrix or ``y``, one to five where it is not given.
            items: Public facts about the items: an `ItemTable`, or a data frame or a file for
                `ItemTable.of`, with titles, genres, years and any columns for features. It may list
                items that nobody rated, and leave some out. The model's items are those of the
                ratings, unless these were restricted to a public list (`Ratings.over`).
            validation: Ratings to measure the error on after every epoch, for a method that has
                epochs.
            callbacks: Called with an EpochRecord after every epoch; one that returns True ends the
                training.
            lists: Train the model for lists, too, where the method has one beside the one for
                stars. Without it that waits for the first list: for whoever measures stars alone.
            progress: Whether to show a bar, on a terminal or in a notebook; None: in a notebook.
        """
        check(self)
        if scale is not None and isinstance(train, Ratings):
            raise ConfigError("these ratings know their own scale; leave scale out")
        if is_column(weights) and not isinstance(train, Ratings):
            train, weights = join_pairs(train, weights, scale), None
        ratings = self._taken(train, scale)
        if items is not None:
            ratings = ratings.describe(described_items(items, ratings.items))
        held = None if validation is None else self._taken(validation, ratings.scale)
        own = privacy_weights(ratings, weights)
        epochs = getattr(self, "epochs", None)
        with progress_bar(f"fitting {type(self).__name__}", epochs, show=progress) as advance:

            def after_epoch(record: EpochRecord) -> None:
                advance(record.epoch, record.epochs)

            self._fit(ratings, own, held, (*callbacks, after_epoch))
            if lists:
                self._train_lists()
        self.weights_by_user_and_item_ = own.rating_weights is None and not own.has_levels
        return self

    def _repr_html_(self) -> str:
        """Options, size and claim for notebooks; nothing of any rating, weight or vector."""
        facts: dict[str, object] = {
            name: value for name, value in self.get_params().items() if value is not None
        }
        if not hasattr(self, "catalogue_"):
            return facts_html(type(self).__name__, facts | {"fitted": "not yet"})
        catalogue = self.catalogue_
        facts |= {
            "fitted": f"{len(self.devices_.users):,} users, {len(catalogue.items):,} items, scale "
            f"{catalogue.scale}"
        }
        return facts_html(type(self).__name__, facts) + self.privacy._repr_html_()

    def __sklearn_tags__(self) -> Any:
        return tags()

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Learn from ratings, and keep it in attributes that end in an underscore.

        Subclasses implement this.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say how it learns; give it learn(self, train, weights)"
        )

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict a rating for each pair of a user's and an item's position.

        Subclasses implement this. Positions are those in ``train.users`` and ``train.items``, of
        users and items that had ratings in training. Predictions off the scale are clipped to it.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say what it expects; give it expect(self, "
            "users, items)"
        )

    def released(self, view: str) -> np.ndarray:
        """Return the numbers that an observer with this view saw in training, for audits.

        Subclasses that claim privacy implement this: ``hdpmf audit run`` attacks these numbers. The
        views are those of ``hdpmf.common.methods``: ``messages``, ``sums``, and ``final``.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say what an observer with the view {view!r} sees; "
            "give it released(self, view), or audit the view 'final', where predictions are seen"
        )

    def _fit(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        validation: Ratings | None,
        callbacks: Sequence[Callback],
    ) -> None:
        beta, gamma = weights.for_users(train.users), weights.for_items(train.items)
        self.learn(train, weights)
        self.devices_ = Devices.after_training(
            train, np.zeros((train.n_users, 0), np.float32), beta, gamma
        )
        # Counts of raters are public only if the method says so: none here.
        no_raters = np.zeros(train.n_items, np.int64)
        factors = np.zeros((train.n_items, 0), np.float32)
        self.catalogue_ = Catalogue(train.items, factors, no_raters, train.scale, train.item_table)

    @property
    def privacy(self) -> PrivacyClaim:
        """The model's epsilon and the claim that it stands on."""
        method = method_of(self)
        claim = claim_of(
            method, getattr(self, "epsilon", 0.0), labels=bool(getattr(self, "labels", False))
        )
        if claim.epsilon:
            # Made in this process from a seed.
            stated = hasattr(self, "catalogue_") and self.catalogue_.items.stated
            claim = replace(claim, noise="simulated", items="stated" if stated else "rated")
        if method is None or claim.status != "nominal":
            return claim
        from hdpmf.common.privacy.accounting import with_honest_cost

        return with_honest_cost(claim, method.name, self.get_params())

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
        if not type(self).__module__.startswith("hdpmf.") and type(self).expect != Estimator.expect:
            warm = known_user & known_item
            expected = np.asarray(self.expect(users[warm], items[warm]), np.float64)
            possible = self.devices_.scale.clip(expected)
            found["n_off_scale"] = int((np.abs(expected - possible) > _ROUNDING).sum())
        return found

    def rank(
        self, test: RatingsLike, n: int = 10, *, in_time: bool = False
    ) -> dict[str, float | int]:
        """Measure lists of the ``n`` best items, as ``hdpmf.models.ranking_metrics`` defines it.

        Args:
            test: Test ratings.
            n: Length of the lists.
            in_time: Each user's list is made at the time of their first test rating, so that what
                they rated shortly before counts more. It is for splits by time.

        Returns:
            All ``METRICS`` there, ``NAME_margin`` of those that every user has (one side of a 95 %
            interval over users), and ``n_users``, those who were ranked for.

        Raises:
            ConfigError: The model predicts the same for every item.
            RatingsError: No known user has a relevant test rating; or the scale or the ids are not
                the training's; or, with ``in_time``, there are no times, or a user rated in
                training after their first test rating.
        """
        return self._list_quality(test, n, in_time).summary()

    def _list_quality(self, test: RatingsLike, n: int, in_time: bool = False) -> ListQuality:
        """Measure lists as `rank` does, and return the numbers of each user, too."""
        from hdpmf.models.ranking_metrics import rank

        self._check_fitted()
        test = self._taken(test, self.catalogue_.scale)
        self._check_like_training(test, "test")
        self._check_ranks()
        candidates = self._candidates()
        candidates[np.setdiff1d(np.arange(len(candidates)), self.devices_.rated)] = False
        positions = self.catalogue_.items.find(test.items.ids)
        order = (self._at_time(first_times(test, self.devices_)) if in_time else self)._order()
        return rank(self.devices_, candidates, order.scores, test, positions, n)

    def _at_time(self, now: float | np.ndarray) -> Self:
        """Return a copy whose lists are those that are asked for now."""
        if self.devices_.times is None:
            raise RatingsError(
                "the model's ratings have no times, so nothing is recent; say which column has "
                f"them with {hint('columns', 'timestamp')}"
            )
        then = copy.copy(self)
        then.devices_ = self.devices_.at_time(now)
        return then

    @overload
    def recommend(
        self,
        users: Id,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
        progress: bool | None = None,
    ) -> RecommendedList: ...

    @overload
    def recommend(
        self,
        users: Several,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
        progress: bool | None = None,
    ) -> RecommendedLists: ...

    def recommend(
        self,
        users: Id | Several,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
        progress: bool | None = None,
    ) -> RecommendedList | RecommendedLists:
        """The ``n`` best items for a user, best first: what they would choose and like, and why.

        Args:
            users: A user, or several: then the answer has the list of each, and ``to_frame()``.
            n: How many items.
            keep_rated: Whether items that the user has rated may be in the list.
            only: What items have to be like: genres, years, or an explicit choice.
            now: When the lists are asked for, in seconds since 1970: what was rated shortly before
                counts more. None: all ratings count alike.
            progress: Whether to show a bar for several users, on a terminal or in a notebook; None:
                in a notebook.

        Raises:
            UnknownIdError: A user was not in training; use ``fold_in`` first.
            ConfigError: The model cannot rank, or ``only`` asks for a genre that there is not.
            RatingsError: ``users`` are no ids, or ``now`` is given and the ratings have no times.
        """
        several = column(users)
        lists: Iterator[tuple[Id, list[Recommendation]]] = self.recommend_each(
            several, n, keep_rated=keep_rated, only=only, now=now
        )
        if is_one_id(users):
            return RecommendedList(next(iter(lists))[1])
        found = RecommendedLists()
        with progress_bar("recommending", len(several), show=progress) as advance:
            for done, (user, own) in enumerate(lists, start=1):
                found[user] = RecommendedList(own)
                advance(done, len(several))
        return found

    @overload
    def recommend_each(
        self,
        users: Several,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
    ) -> Iterator[tuple[Id, list[Recommendation]]]: ...

    @overload
    def recommend_each(
        self,
        users: Any,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
    ) -> Any: ...

    def recommend_each(
        self,
        users: Any,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | None = None,
    ) -> Any:
        """Yield each user with their list; memory does not grow with the number of users.

        For a frame of dask or Spark with a column ``user``, or a column of dask, return a lazy
        frame of the same kind instead, with a row for each item of each list. Its workers get the
        whole model, the private part among it.
        """
        self._check_fitted()
        self._check_ranks()
        from hdpmf.models.distributed import is_distributed, recommend_over

        if is_distributed(users):
            return recommend_over(self, users, n, keep_rated=keep_rated, only=only, now=now)
        codes = self._user_codes(column(users))
        model = self if now is None else self._at_time(now)
        made = model._list_maker().lists(codes, n, keep_rated=keep_rated, only=only)
        return zip(self.devices_.users.ids[codes].tolist(), made, strict=True)

    def update(self, ratings: RatingsLike, weights: PrivacyWeights | float | None = None) -> Self:
        """Take in ratings that came after `fit`: of known users, of new ones, and changed ones.

        Each user's vector is fitted again to all of their ratings, on their device. Nothing is
        sent, so nothing is paid: the recommender's part, and the claim, which is about what `fit`
        sent, stay as they are. What others learn from these ratings they learn from the next `fit`.

        Args:
            ratings: As `fit` takes them, on the model's scale. One of a pair that the model knows
                replaces the earlier one. Those of items that it does not know are left out, with a
                warning that counts them: nothing was released about these.
            weights: Privacy weights of these users; None: known users keep theirs, new ones have 1.

        Raises:
            ConfigError: The method learns all that it knows in training.
            RatingsError: No rating is about an item that the model knows, or the scale or the ids
                are not the training's.
        """
        self._check_fitted()
        fold_in = getattr(self, "fold_in", None)
        if fold_in is None:
            raise ConfigError(
                f"{type(self).__name__} learns from all ratings at once; fit it again with these"
            )
        new = self._taken(ratings, self.catalogue_.scale).compact()
        self._check_like_training(new, "new")
        known = np.append(self._candidates(), False)[self.catalogue_.items.find(new.items.ids)]
        in_catalogue = known[new.item_codes]
        if not in_catalogue.any():
            raise RatingsError(
                f"{new.name}: none of the rated items was in training, so nothing can be taken in"
            )
        if not in_catalogue.all():
            notify(
                f"{new.name}: {int((~in_catalogue).sum()):,} ratings are of items that were not in "
                "training, and are left out; fit again to learn about them"
            )
        together = with_earlier(new.take(in_catalogue).compact(), self.devices_, self.catalogue_)
        fold_in(
            together,
            kept_weights(together, self.devices_, self.catalogue_) if weights is None else weights,
            replace=True,
        )
        return self

    def similar_items(self, item: Id, n: int = 10) -> list[SimilarItem]:
        """Return the ``n`` items most similar to one, by what the model learned about items.

        It uses nothing private.

        Raises:
            UnknownIdError: The item is not in the catalogue.
            ConfigError: The model has no vectors of items, or learned nothing about this one.
        """
        self._check_fitted()
        return similar(self.catalogue_, self._item_vectors(), self._candidates(), item, n)

    def only_users(self, users: Id | Several) -> Self:
        """Return a copy with only these users' private part; the public part is the same.

        It has neither the seed (which would give away the simulated noise) nor the history of the
        training.
        """
        from hdpmf.models.files import with_users

        self._check_fitted()
        return with_users(self, self._user_codes(column(users)))

    def save(self, folder: str | PathLike[str], *, replace: bool = False) -> None:
        """Write the model: ``folder/recommender`` is public, ``folder/devices`` private.

        The folder appears whole or not at all.

        Args:
            folder: Where to.
            replace: Whether an earlier model there may be replaced.

        Raises:
            StorageError: There is a model at ``folder`` already, or something else.
        """
        from hdpmf.models.files import save_model

        self._check_fitted()
        save_model(self, folder, replace=replace)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a model of this class that ``save`` wrote."""
        from hdpmf.models.files import load_model

        model = load_model(folder)
        if not isinstance(model, cls):
            raise ConfigError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}; use "
                "hdpmf.load_model for any kind"
            )
        return model

    def _user_codes(self, users: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Positions of users who must be known."""
        known = self.devices_.users
        codes = known.find(users)
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            more = f" (and {len(unknown) - 1:,} others)" if len(unknown) > 1 else ""
            raise UnknownIdError(
                f"user {plain(users[unknown[0]])!r}{more} was not in training, where user ids "
                f"are {kind_of(known)}; "
                f"{hint('fold-in')} takes new users in"
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

    def _list_maker(self) -> ListMaker:
        catalogue = self.catalogue_
        return ListMaker(
            self.devices_,
            self._order(),
            self._predict_codes if self.predicts_ratings else None,
            self._candidates(),
            catalogue.items,
            catalogue.item_table,
        )

    def _item_vectors(self) -> np.ndarray:
        """Return the vectors of items, a row for each."""
        raise ConfigError(
            f"{type(self).__name__} learns no vectors of items, so it cannot say which are alike"
        )

    def _order(self) -> ListOrder:
        """Return how items are ordered for lists: by what people would choose and like."""
        return ChooseAndLike(self.devices_, self._predicted, self.catalogue_.raters)

    def _predicted(self, users: np.ndarray) -> np.ndarray:
        """Predicted ratings of all items, one row per user."""
        n_items = len(self.catalogue_.items)
        pairs = np.repeat(users, n_items), np.tile(np.arange(n_items), len(users))
        return self._predict_codes(*pairs).reshape(len(users), n_items)

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
                f"{ratings.name} is implicit feedback, which says who chose what and not how "
                "they liked it; "
                f"{type(self).__name__} learns from ratings. Methods that take it: {able}"
            )
        return ratings

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
                f"their ratings there would be lost; {hint('update')} adds to them, "
                f"{hint('replace')} says that these are all"
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
