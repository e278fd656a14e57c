"""The columns that each user's vector belongs to, and how strongly it is held to what people in general like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hdpmf.protocol import ItemFacts
from hdpmf.public.popularity import log_popularity
from hdpmf.public.priors import N_DESCRIBING, Prior
from hdpmf.ratings import RatingScale
from hdpmf.ratings.item_features import ItemFeatures, years_of

STARS = 4.0
"""Width of the scale of one to five stars, which everything here is counted in."""

NOISE = 0.8
"""Variance of a rating around a good prediction, in stars squared."""

_OWN = {
    "constant": 5.0,
    "bias": 10.0,
    "popularity": 15.0,
    "popularity^2": 50.0,
    "bias*popularity": 30.0,
    "bias^2": 30.0,
}
_DERIVED_RIDGE = 30.0
_SIMILAR_WITH_PRIOR = 0.7
"""What similarity counts where a population prior explains a part of the same: best of .35, .7 and 1 on ratings held
out within ML-100K and ML-1M together."""

_DECADES = (1940, 1950, 1960, 1970, 1980, 1990)
_PATTERN_RIDGE = 40.0


def to_stars(values: np.ndarray, scale: RatingScale) -> np.ndarray:
    """Ratings on any scale as one to five stars."""
    return np.asarray((values - np.float32(scale.low)) * np.float32(STARS / scale.width) + np.float32(1.0))


@dataclass(frozen=True, slots=True, repr=False)
class DeviceFit:
    """A prediction is ``offset_j + features_j . theta_i`` in stars; theta_i has a Gaussian prior.

    All of it is public; only theta_i, which is made of it and of raw ratings, is private.

    Attributes:
        names: Of the columns.
        features: One row per item.
        offset: What is predicted where theta is zero, in stars (1 to 5).
        weight: How much a rating of each item counts, less where the offset is uncertain.
        precision: Of the prior, relative to a rating of weight 1.
        mean_map: The precision times the map from a user's description to the prior's mean.
    """

    names: tuple[str, ...]
    features: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    precision: np.ndarray
    mean_map: np.ndarray

    def __repr__(self) -> str:
        return f"DeviceFit({self.features.shape[0]} items, {self.features.shape[1]} features)"

    def factors(self, scale: RatingScale) -> np.ndarray:
        """The item factors in the units of the rating scale: a user's vector times these is a prediction."""
        per_star = scale.width / STARS
        offset = scale.low + (self.offset - 1.0) * per_star
        return np.column_stack([self.features * per_star, offset]).astype(np.float32)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the columns that are public features of items, as they were given; none without features."""
        made = ("pattern ", "decade ", "similarity ")
        return tuple(
            name for name in self.names if name not in _OWN and not name.startswith(made) and not set("*&") & set(name)
        )

    def stranger(self) -> np.ndarray:
        """The vector of a user without ratings: the prior's mean."""
        described = np.zeros(self.mean_map.shape[1])
        described[-2:] = np.log(1 / 80.0), np.log(1 / 80.0) ** 2
        theta = np.linalg.solve(self.precision, self.mean_map @ described)
        return np.append(theta, 1.0).astype(np.float32)


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
    popularity = log_popularity(weights)
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
    pairs = (
        f"{left}&{right}" for left, right in combinations(genres, 2) if (genres[left] * genres[right]).mean() >= 0.01
    )
    decades = (f"decade {year}" for year in _DECADES) if "year" in features.names else ()
    return (*(f"bias*{name}" for name in genres), *decades, *pairs)


def _derived(name: str, known: dict[str, np.ndarray]) -> np.ndarray | None:
    if name.startswith("decade ") and "year" in known and name[7:].isdecimal():
        years = years_of(known["year"])
        return np.asarray((years >= int(name[7:])) & (years < int(name[7:]) + 10), np.float64)
    for sign in "*&":
        left, found, right = name.partition(sign)
        if found and left in known and right in known:
            return np.asarray(known[left] * known[right])
    return None


def device_fit(
    facts: ItemFacts, features: ItemFeatures | None, prior: Prior | None, *, simple: bool = False
) -> DeviceFit:
    """The fit that devices make of item facts, public features and, where there is one, a population prior."""
    extra = () if prior is None else prior.columns
    names, columns, ridges = device_columns(facts, features, simple=simple, extra=extra)
    noise = NOISE if prior is None else prior.noise
    similar, rest = _similar_rows(facts)
    count = 1.0 if prior is None else _SIMILAR_WITH_PRIOR
    n_similar, n_other = similar.shape[1], len(names)
    names += tuple(f"similarity {number + 1}" for number in range(n_similar))
    ridges = np.concatenate([ridges, np.full(n_similar, noise / count)])
    precision = np.diag(ridges)
    mean_map = np.zeros((len(names), len(names) + N_DESCRIBING))
    if prior is not None:
        precision, mean_map = prior.on(names, ridges)
    if facts.similarity is not None and n_similar:
        # A vector is drawn to the mean row of what its user rated, counted from the mean over all ratings.
        pull = facts.similarity.pull * noise / count
        places = np.arange(n_other, len(names))
        popularity = facts.popularity.astype(np.float64)
        mean_map[places, places] = pull
        mean_map[places, names.index("constant")] = -pull * (popularity @ similar) / max(float(popularity.sum()), 1e-9)
    variance = facts.variance.astype(np.float64) + count * rest
    return DeviceFit(
        names=names,
        features=np.ascontiguousarray(np.column_stack([columns, similar])),
        offset=facts.mean + facts.bias.astype(np.float64),
        weight=noise / (noise + variance),
        precision=precision,
        mean_map=mean_map,
    )


def _similar_rows(facts: ItemFacts) -> tuple[np.ndarray, np.ndarray]:
    """The similarity's columns, a row per item, and the variance that they leave."""
    n, found = len(facts.bias), facts.similarity
    if found is None:
        return np.zeros((n, 0)), np.zeros(n)
    rows, rest = np.zeros((n, found.columns.shape[1])), np.zeros(n)
    rows[found.items], rest[found.items] = found.columns, found.rest
    return rows, rest
