"""Ratings that come after training, together with what the same users rated before."""

from __future__ import annotations

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.model.device_fit import STARS
from hdpmf.common.privacy.weights import PrivacyWeights
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


def _times(times: np.ndarray | None, count: int) -> np.ndarray:
    return np.full(count, UNKNOWN) if times is None else times
