"""Columns that a device fits its owner's vector to, and the vector's prior; all of it is public.

The columns of taste are about choosing: what kind of item, from when, how well and how often rated.
Years are cut into decades and, from 1990 on, into halves of them. Periods, popularity and ratings
were taken in on ratings held out within the training parts of ML-100K and ML-1M (NDCG@10 from .102
to .136 and from .097 to .134, with popularity corrected for item weights); pairs of genres, genres
times decades and words of titles did not help there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import YEAR_RIDGES, ItemFeatures, years_of
from hdpmf.common.model.priors import N_DESCRIBING, Prior
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import ConfigError

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

_DECADES = (1940, 1950, 1960, 1970, 1980, 1990)


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


def derived_names(features: ItemFeatures) -> tuple[str, ...]:
    """Columns worth a prior: genres times bias, decades, and frequent pairs of genres."""
    genres = {
        name: features.matrix[:, at]
        for at, name in enumerate(features.names)
        if name.startswith("genre:")
    }
    pairs = (
        f"{left}&{right}"
        for left, right in combinations(genres, 2)
        if (genres[left] * genres[right]).mean() >= 0.01
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


def with_more_items(
    fit: DeviceFit, facts: ItemFacts, features: ItemFeatures | None, noise: float
) -> DeviceFit:
    """Return a fit with rows for items that came later; those that it has stay as they are.

    New items have nothing of the similarity, which is about who rated what.

    Args:
        fit: Of the first items.
        facts: About all of them, the new ones last.
        features: Public features of all of them, in the columns that the fit has.
        noise: Variance of a rating around a good prediction.
    """
    known = len(fit.features)
    names, columns, _ = device_columns(facts, features, extra=fit.names)
    similar, rest = _similar_rows(facts)
    if len(names) + similar.shape[1] != len(fit.names) or names != fit.names[: len(names)]:
        raise ConfigError("the features of the new items are not those that the model was made of")
    whole = rest + (similar**2).sum(axis=1)
    rest[known:] = whole[:known].mean() if known else 0.0
    made = np.column_stack([columns, similar])[known:]
    variance = (facts.variance.astype(np.float64) + rest)[known:]
    return replace(
        fit,
        features=np.ascontiguousarray(np.concatenate([fit.features, made])),
        offset=np.append(fit.offset, facts.mean + facts.bias[known:].astype(np.float64)),
        weight=np.append(fit.weight, noise / (noise + variance)),
    )


def _similar_rows(facts: ItemFacts) -> tuple[np.ndarray, np.ndarray]:
    """The similarity's columns, a row per item, and the variance that they leave."""
    n, found = len(facts.bias), facts.similarity
    if found is None:
        return np.zeros((n, 0)), np.zeros(n)
    rows, rest = np.zeros((n, found.columns.shape[1])), np.zeros(n)
    rows[found.items], rest[found.items] = found.columns, found.rest
    return rows, rest


PERIOD = "from "
"""Names of periods begin with this."""

POPULARITY, RATINGS = "popularity", "ratings"
"""Names of the columns that are about what others choose, and how they rate it."""

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
    columns = {
        POPULARITY: logs / max(float(np.sqrt(np.average(logs**2, weights=popularity))), 1e-9)
    }
    for name, column in zip(fit.names, fit.features.T, strict=True):
        if name == "year":
            columns |= _periods(years_of(column))
        elif name == "bias":
            columns[RATINGS] = column
        elif name in fit.given and name not in YEAR_RIDGES:
            columns[name] = column
    return tuple(columns), np.column_stack(list(columns.values()))


def _periods(years: np.ndarray) -> dict[str, np.ndarray]:
    begins = np.where(years < _HALVES_FROM, np.floor(years / 10) * 10, np.floor(years / 5) * 5)
    begins = np.clip(begins, _EARLIEST, _LATEST).astype(int)
    return {
        f"{PERIOD}{begin}": (begins == begin).astype(np.float64)
        for begin in np.unique(begins).tolist()
    }


def is_period(name: str) -> bool:
    """Tell periods from other columns of taste."""
    return name.startswith(PERIOD) and name.removeprefix(PERIOD).isdecimal()


def period_in_words(name: str) -> str:
    """Tell the years of a period from its name."""
    begin = int(name.removeprefix(PERIOD))
    if begin <= _EARLIEST:
        return f"before {_EARLIEST + 10}"
    if begin >= _LATEST:
        return f"{_LATEST} or later"
    half = "" if begin < _HALVES_FROM else "early " if begin % 10 == 0 else "late "
    return f"the {half}{begin // 10 * 10}s"
