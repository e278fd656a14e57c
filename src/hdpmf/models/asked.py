"""The ids that a question names: as columns, in pairs, and of the kind that the model knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.errors import RatingsError
from hdpmf.ratings import IdIndex


def kind_of(index: IdIndex) -> str:
    """What its ids are, in a word."""
    return "integers" if index.is_integer else "strings"


def plain(value: Any) -> Any:
    """An id as people write it, whatever array it comes from."""
    return value.item() if isinstance(value, np.generic) else value


def column(ids: Any) -> Any:
    """Ids as a sequence: one id stands for a list of one."""
    if isinstance(ids, (str, int, np.integer)):
        return [ids]
    return ids if isinstance(ids, np.ndarray) else list(ids)


def in_pairs(users: Any, items: Any) -> tuple[Any, Any]:
    """Both columns at equal length: one user goes with many items, one item with many users."""
    user_ids, item_ids = column(users), column(items)
    n_users, n_items = len(user_ids), len(item_ids)
    if n_users == n_items:
        return user_ids, item_ids
    if n_users == 1:
        return list(user_ids) * n_items, item_ids
    if n_items == 1:
        return user_ids, list(item_ids) * n_users
    raise RatingsError(f"there are {n_users:,} users and {n_items:,} items; give pairs, one user, or one item")


def check_kind(index: IdIndex, ids: Any, what: str) -> None:
    """Refuse ids that cannot be in the index, whatever their value: text where ids are integers, or the reverse."""
    if not len(index) or not len(ids):
        return
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iuU":
        wrong = ids[:1].tolist() if (ids.dtype.kind in "iu") != index.is_integer else []
    else:
        fits = (int, np.integer, float, np.floating) if index.is_integer else (str,)
        listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
        wrong = [value for value in listed if not isinstance(value, fits) or isinstance(value, bool)][:1]
    for value in wrong:
        raise RatingsError(f"{what} {plain(value)!r}: the model's {what} ids are {kind_of(index)}; give them as such")


def check_same_kind(known: IdIndex, given: IdIndex, what: str, whose: str) -> None:
    """Refuse a table whose ids are of another kind than the model's."""
    if len(known) and len(given) and given.is_integer != known.is_integer:
        raise RatingsError(
            f"the {whose} ids of the {what} ratings are {kind_of(given)}, the model's are "
            f"{kind_of(known)}; write them the same way"
        )
