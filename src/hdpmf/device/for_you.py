"""The owner's list, without what the owner does not want to see again. Both stay on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import msgspec

from hdpmf.device.local_model import recommend_each
from hdpmf.device.rated import ME
from hdpmf.device.shelves import id_of, shelf_of
from hdpmf.device.store import DeviceStore
from hdpmf.errors import StorageError
from hdpmf.ratings import ItemFilter
from hdpmf.shard.recommending import Recommendation

_HIDDEN = "not interested"
_MOST_HIDDEN = 10_000


def for_you(store: DeviceStore, n: int = 20, *, only: ItemFilter | None = None) -> list[Recommendation]:
    """The ``n`` items that the owner would soonest choose and like, but for those that the owner hid.

    Raises:
        NotFittedError: No run has finished here yet.
    """
    hidden = hidden_ids(store)
    lists = without(hidden, n, recommend_each(store, [ME], n + len(hidden), only=only))
    return next(iter(lists))[1]


def without(
    hidden: Set[str], n: int, lists: Iterable[tuple[str, list[Recommendation]]]
) -> Iterator[tuple[str, list[Recommendation]]]:
    """Lists without the owner's hidden items, each of ``n`` at most; others on the device have hidden nothing."""
    for user, found in lists:
        yield user, [entry for entry in found if user != ME or str(entry.item) not in hidden][:n]


def hidden_ids(store: DeviceStore) -> set[str]:
    """What the owner is not interested in of this recommender's items, by their ids."""
    return {id_of(name) for name in hidden_items(store) if shelf_of(name) == store.shelf}


def hidden_items(store: DeviceStore) -> tuple[str, ...]:
    """What the owner is not interested in, by its name on this device, the oldest first."""
    data = store.get(_HIDDEN)
    try:
        return () if data is None else msgspec.msgpack.decode(data, type=tuple[str, ...])
    except msgspec.MsgspecError:
        raise StorageError("what is hidden cannot be read: the store is damaged") from None


def hide(store: DeviceStore, item: str, hidden: bool = True) -> None:
    """Leave an item out of the list from now on, or not any more. Nobody hears of it."""
    with store.transaction():
        kept = [other for other in hidden_items(store) if other != item]
        store.put(_HIDDEN, msgspec.msgpack.encode([*kept, item][-_MOST_HIDDEN:] if hidden else kept))
