"""The columns that each user's vector belongs to, and how strongly it is held to what people in general like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from os import PathLike

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.models.priors import Prior
from hdpmf.protocol import ItemFacts
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.shard.device_fit import DeviceFit

NOISE = 0.8
"""Variance of a rating around a good prediction, in stars squared."""

N_DESCRIBING = 2
"""What describes a user besides mean features: log number of ratings, and its square."""

_OWN = {
    "constant": 5.0,
    "bias": 10.0,
    "popularity": 15.0,
    "popularity^2": 50.0,
    "bias*popularity": 30.0,
    "bias^2": 30.0,
}
_DERIVED_RIDGE = 30.0
_DECADES = (1940, 1950, 1960, 1970, 1980, 1990)
_PATTERN_RIDGE = 40.0

Features = bool | str | PathLike[str] | ItemFeatures
"""True or ``auto`` for the item table's own, a file, or ready-made ones; False for none."""


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """Names of the columns, and the fit over them."""

    names: tuple[str, ...]
    fit: DeviceFit


def wanted_features(wanted: Features, train: Ratings) -> ItemFeatures | None:
    """The item features that a model's ``features`` stands for, for the items of these ratings."""
    if isinstance(wanted, ItemFeatures):
        if len(wanted.matrix) != train.n_items:
            raise ConfigError(
                f"the features are of {len(wanted.matrix)} items, the ratings of {train.n_items}; "
                "make them for the items of these ratings"
            )
        return wanted
    if isinstance(wanted, PathLike) or (isinstance(wanted, str) and wanted != "auto"):
        return ItemFeatures.read(wanted, train.items)
    if wanted is False or (wanted == "auto" and train.item_table is None):
        return None
    if train.item_table is None:
        raise ConfigError("features=True needs an item table, and these ratings have none; give a file of features")
    return ItemFeatures.of_table(train.item_table, train.items)


def device_columns(
    facts: ItemFacts, features: ItemFeatures | None, *, simple: bool = False, extra: Sequence[str] = ()
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, columns and ridges.

    Args:
        facts: The released item facts.
        features: Public features, or None.
        simple: Only an intercept and the features (design S).
        extra: Names of derived columns that a prior knows; those that these features cannot make are left out.
    """
    bias = facts.bias.astype(np.float64)
    weights = facts.popularity.astype(np.float64)
    popularity = np.log(np.maximum(weights, 0.3))
    # Centred where ratings are, so that the columns are about differences between items people rate.
    popularity = (popularity - np.average(popularity, weights=np.maximum(weights, 1e-6))) / 1.5
    own = (np.ones(len(bias)), bias, popularity, popularity**2, bias * popularity, bias**2)
    names, columns, ridges = list(_OWN), list(own), list(_OWN.values())
    if simple:
        names, columns, ridges = names[:1], columns[:1], ridges[:1]
    patterns = facts.patterns.astype(np.float64).T
    names += [f"pattern {number + 1}" for number in range(len(patterns))]
    columns += list(patterns)
    ridges += [_PATTERN_RIDGE] * len(patterns)
    if features is not None:
        names += features.names
        columns += list(features.matrix.T)
        ridges += features.ridges.tolist()
    known = dict(zip(names, columns, strict=True))
    for name in extra:
        made = None if name in known else _derived(name, known)
        if made is not None:
            names.append(name)
            columns.append(made)
            ridges.append(_DERIVED_RIDGE)
    return tuple(names), np.column_stack(columns), np.array(ridges)


def derived_names(features: ItemFeatures) -> tuple[str, ...]:
    """Columns that are worth learning a prior for: genres times bias, decades, and frequent pairs of genres."""
    genres = {name: features.matrix[:, at] for at, name in enumerate(features.names) if name.startswith("genre:")}
    pairs = (f"{one}&{other}" for one, other in combinations(genres, 2) if (genres[one] * genres[other]).mean() >= 0.01)
    decades = (f"decade {year}" for year in _DECADES) if "year" in features.names else ()
    return (*(f"bias*{name}" for name in genres), *decades, *pairs)


def _derived(name: str, known: dict[str, np.ndarray]) -> np.ndarray | None:
    if name.startswith("decade ") and "year" in known and name[7:].isdecimal():
        years = known["year"] * 10.0 + 1995.0  # as the feature was made
        return np.asarray((years >= int(name[7:])) & (years < int(name[7:]) + 10), np.float64)
    for sign in "*&":
        left, found, right = name.partition(sign)
        if found and left in known and right in known:
            return np.asarray(known[left] * known[right])
    return None


def device_features(
    facts: ItemFacts, features: ItemFeatures | None, prior: Prior | None, *, simple: bool = False
) -> DeviceFeatures:
    """The fit that devices make of item facts, public features and, where there is one, a population prior."""
    extra = () if prior is None else prior.columns
    names, columns, ridges = device_columns(facts, features, simple=simple, extra=extra)
    noise = NOISE if prior is None else prior.noise
    precision = np.diag(ridges)
    mean_map = np.zeros((len(names), len(names) + N_DESCRIBING))
    if prior is not None:
        precision, mean_map = prior.on(names, ridges)
    variance = facts.variance.astype(np.float64)
    fit = DeviceFit(
        features=np.ascontiguousarray(columns),
        offset=facts.mean + facts.bias.astype(np.float64),
        weight=noise / (noise + variance),
        precision=precision,
        mean_map=mean_map,
    )
    return DeviceFeatures(names, fit)
