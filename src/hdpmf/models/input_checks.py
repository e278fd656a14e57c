"""Input of estimators, as in scikit-learn: parameters, ids, and separate ``X`` and ``y``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from hdpmf.common.data import IdIndex, ItemTable, Ratings
from hdpmf.common.data.checks import ScaleLike
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, RatingsError, hint
from hdpmf.private.client import Devices


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
    return isinstance(ids, (str, int, np.integer))


def is_column(values: Any) -> bool:
    """Return True for what has a value per row, as scikit-learn gives ``y``."""
    if isinstance(values, (str, bytes, Mapping, PrivacyWeights)) or hasattr(values, "columns"):
        return False
    return isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0


def column(ids: Any, what: str = "user") -> Any:
    """Return ids as an array or a list; a single id becomes a list of one.

    Several ids are anything that can be iterated over: a list, a set, a range, an array, a column
    of a data frame.

    Raises:
        RatingsError: It is neither an id nor several.
    """
    if is_one_id(ids):
        return [plain(ids[()]) if isinstance(ids, np.ndarray) else ids]
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
    return ids.to_pylist() if hasattr(ids, "to_pylist") else list(ids)


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


def columns_of(pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The users and the items of ``X``: its columns ``user`` and ``item``, or the first two.

    Raises:
        RatingsError: It has no two columns.
    """
    names = [str(name) for name in getattr(pairs, "columns", ())]
    if {"user", "item"} <= set(names):
        return np.asarray(pairs["user"]), np.asarray(pairs["item"])
    table = np.asarray(pairs)
    if table.ndim != 2 or table.shape[1] != 2:
        raise RatingsError(
            f"pairs have two columns, user and item; this has the shape {table.shape}"
        )
    return table[:, 0], table[:, 1]


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


def join_pairs(pairs: Any, ratings: Any, scale: ScaleLike | None) -> Ratings:
    """Both together, as a table."""
    users, items = columns_of(pairs)
    return Ratings.from_arrays(users, items, np.asarray(ratings), scale=scale)


def tags() -> Any:
    """Return scikit-learn's tags of an estimator; called by scikit-learn alone."""
    from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

    return Tags(
        estimator_type="regressor",
        target_tags=TargetTags(required=True),
        regressor_tags=RegressorTags(),
        input_tags=InputTags(string=True),
        no_validation=True,
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
