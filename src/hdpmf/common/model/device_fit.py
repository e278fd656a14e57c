"""What a device fits its owner's vector to, all of it public: columns of items, and priors.

A population prior is general taste, learned from public ratings and shipped as constants: a
Gaussian for each user's vector, ``theta_i ~ N(M z_i, A)`` with z_i describing what the user rated.
It comes from a data set that was declared public; its file says which. It must not be used to judge
a method on the data set that it comes from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import ItemFeatures, years_of
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import ConfigError, ModelFileError

SHIPPED = {"films": "films-ml-1m.json", "films-100k": "films-ml-100k.json"}
"""Priors that come with the package, by name."""

N_DESCRIBING = 2
"""What describes a user besides mean features: log number of ratings, and its square."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A population prior for users' vectors.

    Attributes:
        name: What to call it.
        origin: Where its numbers come from: data set, how many users, how they were learned.
        columns: Names of the columns it knows.
        means: M, from a user's mean columns (and log number of ratings, and its square) to the
            expected vector.
        covariance: A.
        noise: Variance of a rating around its prediction, in stars squared.
    """

    name: str
    origin: dict[str, Any]
    columns: tuple[str, ...]
    means: np.ndarray = field(repr=False)
    covariance: np.ndarray = field(repr=False)
    noise: float

    def __post_init__(self) -> None:
        size = len(self.columns)
        sound = (
            self.means.shape == (size, size + N_DESCRIBING)
            and self.covariance.shape == (size, size)
            and np.isfinite(self.means).all()
            and np.isfinite(self.covariance).all()
            and np.allclose(self.covariance, self.covariance.T, atol=1e-6)
            and 0 < self.noise < np.inf
        )
        if not sound or np.linalg.eigvalsh(self.covariance)[0] <= 0:
            raise ModelFileError(f"the prior {self.name!r} is not a Gaussian over its columns")

    @property
    def dataset(self) -> str:
        """The data set that it was learned from."""
        return str(self.origin.get("dataset", ""))

    def on(self, names: tuple[str, ...], ridges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precision, and precision times mean map, for a model's columns.

        Columns that the prior does not know get their ridge; what the prior knows beyond the
        model's columns is integrated out.
        """
        at = {name: position for position, name in enumerate(self.columns)}
        known = np.array([position for position, name in enumerate(names) if name in at], np.intp)
        own = np.array([at[names[position]] for position in known], np.intp)
        precision = np.diag(ridges).astype(np.float64)
        precision[np.ix_(known, known)] = self.noise * np.linalg.inv(
            self.covariance[np.ix_(own, own)]
        )
        means = np.zeros((len(names), len(names) + N_DESCRIBING))
        means[np.ix_(known, known)] = self.means[np.ix_(own, own)]
        means[known, len(names) :] = self.means[own, len(self.columns) :]
        return precision, precision @ means


def _shipped(name: str) -> Prior:
    plain = json.loads((files("hdpmf.common.model") / SHIPPED[name]).read_bytes())
    covariance = np.zeros((len(plain["columns"]), len(plain["columns"])))
    for at, row in enumerate(plain["covariance"]):  # the lower triangle, without zeros at the end
        covariance[at, : len(row)] = row
    return Prior(
        name=plain["name"],
        origin=plain["origin"],
        columns=tuple(plain["columns"]),
        means=np.array(plain["means"], np.float64),
        covariance=covariance + np.tril(covariance, -1).T,
        noise=plain["noise"],
    )


def load_prior(wanted: str | Prior | None) -> Prior | None:
    """A shipped prior by name, one as it is, or none.

    Raises:
        ConfigError: No prior of that name ships with the package.
    """
    if wanted is None or isinstance(wanted, Prior):
        return wanted
    if wanted not in SHIPPED:
        raise ConfigError(f"there is no prior {wanted!r}; choose from {', '.join(SHIPPED)}")
    return _shipped(wanted)


FEWEST = 0.3
"""Popularity is at least this: what is not above zero has no logarithm."""

_TRUST = 4.0


def log_popularity(popularity: np.ndarray) -> np.ndarray:
    """As a score."""
    return np.asarray(np.log(np.maximum(popularity, FEWEST)))


def correct_popularity(
    popularity: np.ndarray, item_weights: np.ndarray, noise_scale: float | np.ndarray
) -> np.ndarray:
    """Estimate the raters of items from popularity released as noisy sums of weights.

    A sum of weights is smaller for an item of small weight. Dividing by the weight makes up for it
    but multiplies the noise, so what is small against the noise is left as it is. Half of the way
    is gone at 4 noise scales: of 2, 4, 8 and 16 the best on ratings held out within ML-100K's
    training part (.137, .137, .133, .129; .120 without) and ML-1M's (.136, .135, .135, .133; .113),
    together with what Douban loses (.012, .014, .014, .014; .015 without).

    Args:
        popularity: Released.
        item_weights: Of every item, the same for all people.
        noise_scale: Of the noise on the released sums.
    """
    seen = np.maximum(popularity, FEWEST)
    trust = seen**2 / (seen**2 + (_TRUST * noise_scale) ** 2)
    return np.asarray(seen * item_weights**-trust)


STARS = 4.0
"""Width of the scale of one to five stars, which everything here is counted in."""

NOISE = 0.8
"""Variance of a rating around a good prediction, in stars squared."""

OWN_MEAN_RIDGE = 5.0
"""How strongly a person's own mean is held to that of all."""

_OWN = {
    "constant": OWN_MEAN_RIDGE,
    "bias": 10.0,
    "popularity": 15.0,
    "popularity^2": 50.0,
    "bias*popularity": 30.0,
    "bias^2": 30.0,
}

_DERIVED_RIDGE = 30.0

_SIMILAR_WITH_PRIOR = 0.7
"""What similarity counts where a population prior explains a part of the same: best of .35, .7 and
1 on ratings held out within ML-100K and ML-1M together."""


def to_stars(values: np.ndarray, scale: RatingScale) -> np.ndarray:
    """Ratings on any scale as one to five stars."""
    return np.asarray(
        (values - np.float32(scale.low)) * np.float32(STARS / scale.width) + np.float32(1.0)
    )


@dataclass(frozen=True, repr=False)
class DeviceFit:
    """A prediction is ``offset_j + features_j . theta_i`` in stars; theta_i has a Gaussian prior.

    All of it is public; only theta_i, which is made of it and of raw ratings, is private.

    Attributes:
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
        """Item factors on the rating scale: a user's vector times these is a prediction."""
        per_star = scale.width / STARS
        offset = scale.low + (self.offset - 1.0) * per_star
        return np.column_stack([self.features * per_star, offset]).astype(np.float32)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the columns that are public features of items."""
        made, known = ("decade ", "similarity "), set(self.names)
        return tuple(
            name
            for name in self.names
            if name not in _OWN
            and not name.startswith(made)
            and not any({*name.split(sign, 1)} <= known for sign in "*&" if sign in name)
        )

    @cached_property
    def stranger(self) -> np.ndarray:
        """The vector of a user without ratings: the prior's mean."""
        described = np.zeros(self.mean_map.shape[1])
        described[-2:] = np.log(1 / 80.0), np.log(1 / 80.0) ** 2
        theta = np.linalg.solve(self.precision, self.mean_map @ described)
        return np.append(theta, 1.0).astype(np.float32)


def device_columns(
    facts: ItemFacts,
    features: ItemFeatures | None,
    *,
    extra: Sequence[str] = (),
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, columns and ridges.

    Args:
        extra: Names of derived columns that a prior knows; those that these features cannot make
            are left out.
    """
    bias = facts.bias.astype(np.float64)
    weights = facts.popularity.astype(np.float64)
    popularity = log_popularity(weights)
    # Centred where ratings are, so that the columns are about differences between items people
    # rate.
    popularity = (popularity - np.average(popularity, weights=np.maximum(weights, 1e-6))) / 1.5
    own = (np.ones(len(bias)), bias, popularity, popularity**2, bias * popularity, bias**2)
    names, columns, ridges = list(_OWN), list(own), list(_OWN.values())
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


def _derived(name: str, known: dict[str, np.ndarray]) -> np.ndarray | None:
    if name.startswith("decade ") and "year" in known and name[7:].isdecimal():
        years = years_of(known["year"])
        return np.asarray((years >= int(name[7:])) & (years < int(name[7:]) + 10), np.float64)
    for sign in "*&":
        left, found, right = name.partition(sign)
        if found and left in known and right in known:
            return np.asarray(known[left] * known[right])
    return None


def device_fit(facts: ItemFacts, features: ItemFeatures | None, prior: Prior | None) -> DeviceFit:
    """Make the fit of item facts, public features and, if any, a population prior."""
    extra = () if prior is None else prior.columns
    names, columns, ridges = device_columns(facts, features, extra=extra)
    noise = NOISE if prior is None else prior.noise
    similar, rest = _similar_rows(facts)
    count = 1.0 if prior is None else _SIMILAR_WITH_PRIOR
    n_similar, n_other = similar.shape[1], len(names)
    names += tuple(f"similarity {number + 1}" for number in range(n_similar))
    ridges = np.concatenate([ridges, np.full(n_similar, noise / count)])
    # Where the mean of all is unclear, a person's own is held to it less.
    ridges[0] = NOISE / (NOISE / ridges[0] + facts.mean_variance)
    precision = np.diag(ridges)
    mean_map = np.zeros((len(names), len(names) + N_DESCRIBING))
    if prior is not None:
        precision, mean_map = prior.on(names, ridges)
    if facts.similarity is not None and n_similar:
        # A vector is drawn to the mean row of what its user rated, counted from the mean over all
        # ratings.
        pull = facts.similarity.pull * noise / count
        positions = np.arange(n_other, len(names))
        popularity = facts.popularity.astype(np.float64)
        mean_map[positions, positions] = pull
        mean_map[positions, names.index("constant")] = (
            -pull * (popularity @ similar) / max(float(popularity.sum()), 1e-9)
        )
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
