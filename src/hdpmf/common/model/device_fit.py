"""What a device fits its owner's vector to, all of it public: columns of items and their ridges."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.protocol import ItemFacts

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
        mean_map: The precision times the map from the mean features of what a user rated to the
            prior's mean.
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
        return np.append(np.zeros(len(self.precision)), 1.0).astype(np.float32)


def device_columns(
    facts: ItemFacts,
    features: ItemFeatures | None,
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, columns and ridges."""
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
    return tuple(names), np.column_stack(columns), np.array(ridges)


def device_fit(facts: ItemFacts, features: ItemFeatures | None) -> DeviceFit:
    """Make the fit of item facts and public features."""
    names, columns, ridges = device_columns(facts, features)
    similar, rest = _similar_rows(facts)
    n_similar, n_other = similar.shape[1], len(names)
    names += tuple(f"similarity {number + 1}" for number in range(n_similar))
    ridges = np.concatenate([ridges, np.full(n_similar, NOISE)])
    # Where the mean of all is unclear, a person's own is held to it less.
    ridges[0] = NOISE / (NOISE / ridges[0] + facts.mean_variance)
    precision = np.diag(ridges)
    mean_map = np.zeros((len(names), len(names)))
    if facts.similarity is not None and n_similar:
        # A vector is drawn to the mean row of what its user rated, counted from the mean over all
        # ratings.
        pull = facts.similarity.pull * NOISE
        positions = np.arange(n_other, len(names))
        popularity = facts.popularity.astype(np.float64)
        mean_map[positions, positions] = pull
        mean_map[positions, names.index("constant")] = (
            -pull * (popularity @ similar) / max(float(popularity.sum()), 1e-9)
        )
    variance = facts.variance.astype(np.float64) + rest
    return DeviceFit(
        names=names,
        features=np.ascontiguousarray(np.column_stack([columns, similar])),
        offset=facts.mean + facts.bias.astype(np.float64),
        weight=NOISE / (NOISE + variance),
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
