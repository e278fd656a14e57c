"""Lists of a fitted model, for a user or for many, and their quality."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from hdpmf.common.base.progress import progress_bar
from hdpmf.common.data import Id, ItemFilter, RatingsLike
from hdpmf.common.data.checks import times
from hdpmf.errors import ConfigError, RatingsError, hint
from hdpmf.models.fitted import FittedModel, column, first_times, is_one_id, reading
from hdpmf.models.result_tables import RecommendedList, RecommendedLists
from hdpmf.private.client.ranking import ChooseAndLike, ListMaker, ListOrder, Recommendation

if TYPE_CHECKING:
    from hdpmf.models.ranking_metrics import ListQuality

Several = Iterable[Any]
"""Ids of users: a list, a set, a range, an array, a column of a data frame."""


class Lists(FittedModel):
    """The part of an estimator that makes lists."""

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

    @reading
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
        now: float | date | None = None,
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
        now: float | date | None = None,
        progress: bool | None = None,
    ) -> RecommendedLists: ...

    def recommend(
        self,
        users: Id | Several,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | date | None = None,
        progress: bool | None = None,
    ) -> RecommendedList | RecommendedLists:
        """The ``n`` best items for a user, best first: what they would choose and like, and why.

        Args:
            users: A user, or several: then the answer has the list of each, and ``to_frame()``.
            n: How many items.
            keep_rated: Whether items that the user has rated may be in the list.
            only: What items have to be like: genres, years, or an explicit choice.
            now: When the lists are asked for, in seconds since 1970 or a datetime: what was rated
                shortly before counts more. None: all ratings count alike.
            progress: Whether to show a bar for several users, on a terminal or in a notebook; None:
                in a notebook.

        Raises:
            UnknownIdError: A user was not in training; use ``fold_in`` first.
            ConfigError: The model cannot rank, or ``only`` asks for a genre that there is not.
            RatingsError: ``users`` are no ids, or ``now`` is given and the ratings have no times.
        """
        several = column(users)
        lists = self.recommend_each(several, n, keep_rated=keep_rated, only=only, now=now)
        if is_one_id(users):
            return RecommendedList(next(iter(lists))[1])
        found = RecommendedLists()
        with progress_bar("recommending", len(several), show=progress) as advance:
            for done, (user, own) in enumerate(lists, start=1):
                found[user] = RecommendedList(own)
                advance(done, len(several))
        return found

    @reading
    def recommend_each(
        self,
        users: Several,
        n: int = 10,
        *,
        keep_rated: bool = False,
        only: ItemFilter | None = None,
        now: float | date | None = None,
    ) -> Iterator[tuple[Id, list[Recommendation]]]:
        """Yield each user with their list; memory does not grow with the number of users."""
        self._check_fitted()
        self._check_ranks()
        if only is not None and not isinstance(only, ItemFilter):
            raise ConfigError(
                f'only is an ItemFilter, as ItemFilter(genres=["Drama"]), not {only!r}'
            )
        if now is not None:
            try:
                now = int(times("now", [now])[0])
            except RatingsError:
                what = "seconds since 1970, as time.time(), or a datetime"
                raise ConfigError(f"now is a time, {what}, not {now!r}") from None
        codes = self._user_codes(column(users))
        model = self if now is None else self._at_time(now)
        made = model._list_maker().lists(codes, n, keep_rated=keep_rated, only=only)
        return zip(self.devices_.users.ids[codes].tolist(), made, strict=True)

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

    def _order(self) -> ListOrder:
        """Return how items are ordered for lists: by what people would choose and like."""
        return ChooseAndLike(self.devices_, self._predicted, self.catalogue_.raters)

    def _predicted(self, users: np.ndarray) -> np.ndarray:
        """Predicted ratings of all items, one row per user."""
        n_items = len(self.catalogue_.items)
        pairs = np.repeat(users, n_items), np.tile(np.arange(n_items), len(users))
        return self._predict_codes(*pairs).reshape(len(users), n_items)
