"""The owner's row for a task: whole numbers made of ratings, wishes and public parameters."""

from __future__ import annotations

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.pairs import (
    Heads,
    Histories,
    PairsPlan,
    linear_rows,
    pair_rows,
    value_rows,
)
from hdpmf.common.protocol.task import Linear, Pairs, Task
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
    own = history_of(state, joined, items)
    sums, row = task.sums, zero_row(task)
    plan = _plan(sums, len(items.table.ids))
    if isinstance(sums, Pairs):
        heads = Heads(np.array(sums.heads), np.array(sums.weights))
        rated, entries = pair_rows(plan, heads, own)
        row[rated.items] = entries
        return row
    presence = linear_rows(plan, own)
    row[own.items] = presence
    if sums.values:
        values, mean = value_rows(plan, own)
        row[sums.items + own.items] = values
        row[-1] = mean[0]
    return row


def history_of(state: State, joined: Joined, items: Items) -> Histories:
    """Return what the owner has rated of a recommender's items, and lets be used."""
    retired = set(items.known.retired.tolist())
    rated = [
        (items.positions[item], each)
        for item, each in state.ratings_of(joined.address).items()
        if each.weight and item in items.positions and items.positions[item] not in retired
    ]
    rated.sort(key=lambda pair: pair[0])
    return Histories(
        start=np.array([0, len(rated)]),
        items=np.array([position for position, _ in rated], np.int64),
        stars=stars_of(np.array([each.value for _, each in rated], np.float64), items.known.scale),
        beta=np.array([state.wish / WHOLE]),
        gamma=np.array([each.weight / WHOLE for _, each in rated], np.float64),
    )


def stars_of(values: np.ndarray, scale: RatingScale) -> np.ndarray:
    """Return ratings of any scale as stars from 1 to 5."""
    return np.asarray(1.0 + 4.0 * (values - scale.low) / (scale.high - scale.low))


def _plan(sums: Linear | Pairs, items: int) -> PairsPlan:
    linear, pairs = (sums, None) if isinstance(sums, Linear) else (None, sums)
    return PairsPlan(
        people=1,
        items=items,
        heads=0 if pairs is None else len(pairs.heads),
        stars=linear is not None and linear.values > 0,
        rho=float(sums.rho),
        kappa=1 / sums.cap,
        linear=0 if linear is None else linear.presence,
        values=0 if linear is None else linear.values,
        pairs=0 if pairs is None else pairs.deviation,
    )
