"""The columns that a person's taste for choosing is about; all of it is public or released.

What kind of item, from when, how well and how often rated. Years are cut into decades and, from 1990 on, into halves of
them: what somebody chooses is a period and not a slope. Periods, popularity and ratings were taken in on ratings held
out within the training parts of ML-100K and ML-1M (NDCG@10 from .102 to .136 and from .097 to .134, with popularity
corrected for item weights); pairs of genres, genres times decades and words of titles did not help there.
"""

from __future__ import annotations

import numpy as np

from hdpmf.public.device_fit import DeviceFit
from hdpmf.public.popularity import FEWEST, log_popularity
from hdpmf.ratings.item_features import YEAR_RIDGES, years_of

PERIOD = "from "
"""Names of periods begin with this."""

_EARLIEST, _HALVES_FROM, _LATEST = 1930, 1990, 2000


def taste_columns(fit: DeviceFit, popularity: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and columns, one row per item.

    Args:
        fit: With the public features of items, where there are any, and the released biases.
        popularity: How often items are chosen.
    """
    logs = log_popularity(popularity)
    popularity = np.maximum(popularity, FEWEST)
    logs = logs - np.average(logs, weights=popularity)
    columns = {"popularity": logs / max(float(np.sqrt(np.average(logs**2, weights=popularity))), 1e-9)}
    for name, column in zip(fit.names, fit.features.T, strict=True):
        if name == "year":
            columns |= _periods(years_of(column))
        elif name == "bias":
            columns["ratings"] = column
        elif name in fit.given and name not in YEAR_RIDGES:
            columns[name] = column
    return tuple(columns), np.column_stack(list(columns.values()))


def _periods(years: np.ndarray) -> dict[str, np.ndarray]:
    begins = np.where(years < _HALVES_FROM, np.floor(years / 10) * 10, np.floor(years / 5) * 5)
    begins = np.clip(begins, _EARLIEST, _LATEST).astype(int)
    return {f"{PERIOD}{begin}": (begins == begin).astype(np.float64) for begin in np.unique(begins).tolist()}
