"""The columns that each user's vector belongs to, and how strongly it is held to what people in general like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpmf.models.item_features import ItemFeatures
from hdpmf.models.priors import Prior
from hdpmf.protocol import ItemFacts
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
_TIMES_BIAS_RIDGE = 30.0
_PATTERN_RIDGE = 40.0


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """Names of the columns, and the fit over them."""

    names: tuple[str, ...]
    fit: DeviceFit


def device_columns(
    facts: ItemFacts, features: ItemFeatures | None, *, simple: bool = False, extended: bool = False
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, columns and ridges.

    Args:
        facts: The released item facts.
        features: Public features, or None.
        simple: Only an intercept and the features (design S).
        extended: Genres times bias too, which only a learned prior can make use of.
    """
    bias = facts.bias.astype(np.float64)
    weights = facts.popularity.astype(np.float64)
    popularity = np.log(np.maximum(weights, 0.3))
    # Centred where ratings are, so that the columns are about differences between items people rate.
    popularity = (popularity - np.average(popularity, weights=np.maximum(weights, 1e-6))) / 1.5
    own = np.column_stack([
        np.ones(len(bias)), bias, popularity, popularity**2, bias * popularity, bias**2,
    ])  # fmt: skip
    names, ridges = tuple(_OWN), np.array(list(_OWN.values()))
    if simple:
        names, own, ridges = names[:1], own[:, :1], ridges[:1]
    n_patterns = facts.patterns.shape[1]
    names += tuple(f"pattern {number + 1}" for number in range(n_patterns))
    own = np.column_stack([own, facts.patterns.astype(np.float64)])
    ridges = np.append(ridges, np.full(n_patterns, _PATTERN_RIDGE))
    if features is None:
        return names, own, ridges
    names, columns, ridges = (
        names + features.names,
        np.column_stack([own, features.matrix]),
        np.concatenate([ridges, features.ridges]),
    )
    if extended:
        genres = [at for at, name in enumerate(features.names) if name.startswith("genre:")]
        names += tuple(f"bias*{features.names[at]}" for at in genres)
        columns = np.column_stack([columns, features.matrix[:, genres] * bias[:, None]])
        ridges = np.append(ridges, np.full(len(genres), _TIMES_BIAS_RIDGE))
    return names, columns, ridges


def device_features(
    facts: ItemFacts, features: ItemFeatures | None, prior: Prior | None, *, simple: bool = False
) -> DeviceFeatures:
    """The fit that devices make of item facts, public features and, where there is one, a population prior."""
    names, columns, ridges = device_columns(facts, features, simple=simple, extended=prior is not None)
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
