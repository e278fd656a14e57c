"""A fitted model: the recommender's part, the devices' part, and predictions from both.

Models are for many threads: a writer changes a copy, which appears at once; a reader keeps one
state. Writers of a model wait for each other, readers for nobody. What a writer learned is seen
whole or, where it fails, not at all.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar, cast
from uuid import UUID

import numpy as np

from hdpmf.common.data import Id, IdIndex, ItemTable, Ratings, RatingsLike, as_ratings
from hdpmf.common.data.checks import ScaleLike
from hdpmf.common.data.ids import as_written
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, NotFittedError, RatingsError, UnknownIdError, hint
from hdpmf.private.client import Devices
from hdpmf.untrusted.recommender import Catalogue

F = TypeVar("F", bound=Callable[..., Any])


class Turn:
    """A lock of one model; what is made of the model's file or deep copy has its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


def writing(method: F) -> F:
    """Let a method change a copy of the model, whose state then takes the place of the model's."""

    @wraps(method)
    def in_a_copy(self: Any, *args: Any, **options: Any) -> Any:
        with self.__dict__.setdefault("_turn", Turn()):
            draft = copy.copy(self)
            if "devices_" in draft.__dict__:
                draft.devices_ = copy.copy(draft.devices_)  # it replaces its arrays one by one
            answer = method(draft, *args, **options)
            self.__dict__ = draft.__dict__  # one step: never some attributes of both
        return self if answer is draft else answer

    return cast(F, in_a_copy)


def reading(method: F) -> F:
    """Let a method see one state of the model from its beginning to its end."""

    @wraps(method)
    def of_one_state(self: Any, *args: Any, **options: Any) -> Any:
        return method(copy.copy(self), *args, **options)

    return cast(F, of_one_state)


class Parameters:
    """A mixin with ``get_params``, ``set_params`` and a repr, by the signature of ``__init__``."""

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """The names that ``__init__`` takes."""
        if cls.__init__ is object.__init__:
            return ()
        return tuple(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name; ``deep`` is ignored."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; unknown names are errors."""
        known = self.parameter_names()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"


def kind_of(index: IdIndex) -> str:
    """Return "integers" or "strings", the kind of its ids."""
    return "integers" if index.is_integer else "strings"


def plain(value: Any) -> Any:
    """Return an id as people write it, without NumPy's type."""
    return value.item() if isinstance(value, np.generic) else value


def is_one_id(ids: Any) -> bool:
    """Return True for a single id, False for anything that may hold several."""
    if isinstance(ids, np.ndarray):
        return ids.ndim == 0
    return isinstance(ids, (str, int, np.integer, UUID))


def column(ids: Any, what: str = "user") -> Any:
    """Return ids as an array or a list; a single id becomes a list of one.

    Several ids are anything that can be iterated over: a list, a set, a range, an array, a column
    of a data frame.

    Raises:
        RatingsError: It is neither an id nor several.
    """
    if is_one_id(ids):
        return as_written([plain(ids[()]) if isinstance(ids, np.ndarray) else ids])
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        return ids
    frame = hasattr(ids, "columns") or isinstance(ids, (np.ndarray, Mapping, Ratings))
    if frame or isinstance(ids, (bytes, bytearray)) or not isinstance(ids, Iterable):
        given = f"this {type(ids).__name__}" if frame else repr(ids)
        raise RatingsError(
            f"{given} is no {what}: ids are whole numbers or text; give one, or several as a list, "
            f"an array or a column of a frame, as frame[{what!r}]"
        )
    # Arrow's own iteration gives scalars of its own.
    return as_written(ids.to_pylist() if hasattr(ids, "to_pylist") else list(ids))


def in_pairs(users: Any, items: Any) -> tuple[Any, Any]:
    """Both columns at equal length: one user goes with many items, one item with many users."""
    user_ids, item_ids = column(users), column(items, "item")
    n_users, n_items = len(user_ids), len(item_ids)
    if n_users == n_items:
        return user_ids, item_ids
    if n_users == 1:
        return list(user_ids) * n_items, item_ids
    if n_items == 1:
        return user_ids, list(item_ids) * n_users
    raise RatingsError(
        f"there are {n_users:,} users and {n_items:,} items; give pairs, one user, or one item"
    )


def check_kind(index: IdIndex, ids: Any, what: str) -> None:
    """Refuse ids of the wrong kind: text where ids are integers, or the reverse."""
    if not len(index) or not len(ids):
        return
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iuU":
        wrong = ids[:1].tolist() if (ids.dtype.kind in "iu") != index.is_integer else []
    else:
        fits = (int, np.integer, float, np.floating) if index.is_integer else (str,)
        listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
        wrong = [
            value for value in listed if not isinstance(value, fits) or isinstance(value, bool)
        ][:1]
    for value in wrong:
        raise RatingsError(
            f"{what} {plain(value)!r}: the model's {what} ids are {kind_of(index)}; give "
            "them as such"
        )


def check_same_kind(known: IdIndex, given: IdIndex, what: str, whose: str) -> None:
    """Refuse a table whose ids are of another kind than the model's."""
    if len(known) and len(given) and given.is_integer != known.is_integer:
        raise RatingsError(
            f"the {whose} ids of the {what} ratings are {kind_of(given)}, the model's are "
            f"{kind_of(known)}; write them the same way"
        )


def privacy_weights(train: Ratings, weights: Any) -> PrivacyWeights:
    """Return the weights of these ratings: those given, one number for all, or 1 without any.

    Raises:
        ConfigError: They are of another kind, with what makes weights of it.
    """
    if weights is None:
        return PrivacyWeights.uniform(train)
    if isinstance(weights, PrivacyWeights):
        return weights
    if isinstance(weights, (int, float, np.integer, np.floating)) and not isinstance(weights, bool):
        return PrivacyWeights.uniform(train, float(weights))
    if isinstance(weights, Mapping):
        remedy = "say whose they are: PrivacyWeights.from_parts(ratings, users={...}, items={...})"
    elif hasattr(weights, "columns"):
        remedy = "make them with PrivacyWeights.from_frame(ratings, frame)"
    else:
        remedy = (
            "give one number for everybody, or make them with PrivacyWeights.from_parts or "
            "from_frame"
        )
    raise ConfigError(
        f"a {type(weights).__name__} beside ratings is taken for privacy weights, which it is not; "
        f"{remedy}"
    )


def described_items(items: Any, index: IdIndex) -> ItemTable:
    """Return public facts about items, with ids of the kind that the index has.

    Raises:
        RatingsError: It is no table of items, or about none of these.
    """
    table = ItemTable.of(items)
    if table.index.is_integer and not index.is_integer:
        table = table.with_text_ids()
    if not (table.index.find(index.ids) >= 0).any():
        raise RatingsError(
            f"items: none of the {len(table):,} items is in the ratings, whose item ids are "
            f"{kind_of(index)}; are its ids the same?"
        )
    return table


def first_times(test: Ratings, devices: Devices) -> np.ndarray:
    """Return when each of the devices' users made their first test rating; NaN for the others.

    Raises:
        RatingsError: There are no times, or a user rated in training after that.
    """
    if test.timestamps is None:
        raise RatingsError(
            f"{test.name}: there are no times, so lists cannot be made in time; say which column "
            f"has them with {hint('columns', 'timestamp')}"
        )
    first = np.full(len(devices.users), np.inf)
    users = devices.users.find(test.users.ids)[test.user_codes]
    known = users >= 0
    np.minimum.at(first, users[known], test.timestamps[known].astype(np.float64))
    first[np.isinf(first)] = np.nan
    limits = np.repeat(first, np.diff(devices.rated_start))
    if devices.times is not None and bool((devices.times > limits).any()):
        raise RatingsError(
            f"{test.name}: a user rated in training after their first test rating; lists in time "
            "need a split by time"
        )
    return first


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

    predicts_ratings: bool = True
    """True if the model predicts ratings, False if it only orders items: also one that learned from
    choices."""

    takes_implicit: ClassVar[bool] = False
    """True if the model also learns from implicit feedback (clicks, purchases): who chose what."""

    implicit_: bool = False
    """True if the model learned from implicit feedback."""

    columns_: Mapping[str, str] | None = None
    """What the training data called its columns, where its reader was told."""

    def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict a rating for each pair of a user's and an item's position.

        Subclasses implement this. Positions are those in ``train.users`` and ``train.items``, of
        users and items that had ratings in training. Predictions off the scale are clipped to it.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say what it expects; give it expect(self, "
            "users, items)"
        )

    @reading
    def predict(self, users: Iterable[Id] | Id, items: Iterable[Id] | Id) -> np.ndarray:
        """Predicted ratings for pairs of user and item ids, within the rating scale.

        One user goes with many items, and one item with many users. An item not seen in training
        gets the user's own mean, a user not seen in training the middle of the scale. So do all
        pairs where a model only orders items (``predicts_ratings`` is False).

        Raises:
            ConfigError: The model learned from choices, and knows of no ratings.
            RatingsError: Ids are of another kind than in training (text for integers), or there are
                no pairs of them.
        """
        self._check_fitted()
        if self.implicit_:
            raise ConfigError(
                f"this {type(self).__name__} learned who chose what, and predicts no ratings; "
                "recommend makes lists, rank measures them"
            )
        user_ids, item_ids = in_pairs(users, items)
        check_kind(self.devices_.users, user_ids, "user")
        check_kind(self.catalogue_.items, item_ids, "item")
        return self._predict_codes(
            self.devices_.users.find(user_ids), self.catalogue_.items.find(item_ids)
        )

    @reading
    def score(self, test: RatingsLike) -> dict[str, float | int]:
        """Mean squared and absolute error on ``test``: ratings, a data frame or a sparse matrix.

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
        test = self._taken(test, self.catalogue_.scale)
        if self.implicit_ or test.implicit:
            raise RatingsError(
                f"{test.name}: implicit feedback has no ratings to be wrong about; use rank"
            )
        if not self.predicts_ratings:
            raise ConfigError(
                f"{type(self).__name__} orders items and predicts no ratings, so it has no error; "
                "rank measures its lists"
            )
        self._check_like_training(test, "test")
        if not len(test):
            raise RatingsError(f"{test.name}: there are no test ratings to be wrong about")
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

    def _taken(
        self, data: RatingsLike, scale: ScaleLike | None = None, *, again: bool = False
    ) -> Ratings:
        """Convert what `fit`, `score` and `rank` are given to ratings.

        What the model learned from says how to read a frame, unless it is fitted ``again``.

        Raises:
            RatingsError: They cannot be used, or it is implicit feedback and the model learns from
                ratings.
        """
        if again:
            ratings = as_ratings(data, scale, implicit=None if self.takes_implicit else False)
        elif self.implicit_:
            ratings = as_ratings(data, implicit=True, columns=self.columns_)
        else:
            ratings = as_ratings(data, scale, columns=self.columns_)
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
