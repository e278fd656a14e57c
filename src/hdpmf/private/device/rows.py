"""The owner's row for a task: whole numbers made of ratings, wishes and public parameters."""

from __future__ import annotations

import numpy as np

from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.model.device_fit import to_stars
from hdpmf.common.privacy.pairs import Histories
from hdpmf.common.protocol.task import Pairs, Task
from hdpmf.private.client.pairs import row_of
from hdpmf.private.device.ledger import WHOLE
from hdpmf.private.device.public import Items, items_of
from hdpmf.private.device.state import Joined, State


def zero_row(task: Task) -> np.ndarray:
    """Return the row of somebody who has nothing to say, or whose limits are reached."""
    sums = task.sums
    if isinstance(sums, Pairs):
        return np.zeros(len(sums.heads), np.int64)
    return np.zeros(sums.entries, np.int64)


def own_row(state: State, joined: Joined, task: Task) -> np.ndarray:
    """Return the owner's row: of presence and, where asked for, of values; or of heads."""
    items = items_of(state, joined)
    return row_of(task.sums, history_of(state, joined, items), len(items.table.ids))


def history_of(state: State, joined: Joined, items: Items) -> Histories:
    """Return what the owner has rated of a recommender's items, and lets be used."""
    retired = set(items.known.retired.tolist())
    rated = [
        (items.positions[item], each)
        for item, each in state.ratings_of(joined.address).items()
        if each.weight and item in items.positions and items.positions[item] not in retired
    ]
    rated.sort(key=lambda pair: pair[0])
    values, scale = np.array([each.value for _, each in rated], np.float64), items.known.scale
    return Histories(
        start=np.array([0, len(rated)]),
        items=np.array([position for position, _ in rated], np.int64),
        stars=np.full(len(rated), 5.0) if scale == IMPLICIT_SCALE else to_stars(values, scale),
        beta=np.array([state.wish / WHOLE]),
        gamma=np.array([each.weight / WHOLE for _, each in rated], np.float64),
    )
