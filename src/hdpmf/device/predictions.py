"""Predicted ratings on the device, from what it keeps of a finished run. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.device.local_model import LocalModel, prepare
from hdpmf.device.store import DeviceStore
from hdpmf.public.priors import Prior


def predict(
    store: DeviceStore,
    users: Sequence[str],
    items: Sequence[str],
    *,
    model: LocalModel | None = None,
    prior: Prior | None = None,
) -> np.ndarray:
    """The rating that each of these users would give the item beside it.

    Users without ratings here, and items that the catalogue lacks, are predicted all the same (the latter by the user's
    own mean). Without ``model`` it is the one in the store. The ``prior`` is for the one-round designs.

    Raises:
        NotFittedError: No run has finished here yet.
    """
    ready = prepare(store, model, prior)
    people = ready.devices.users.find(list(users)) if len(ready.devices.users) else np.full(len(users), -1, np.int32)
    places = np.array([ready.catalogue.positions.get(item, -1) for item in items], np.int64)
    return ready.expected(people, places)
