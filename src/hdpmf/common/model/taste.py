"""A person's taste in public features, by what they rated: the arithmetic, and its columns.

A device puts its owner's ratings in; that is private, and nothing of it is sent.

The columns are about choosing: what kind of item, from when, how well and how often rated. Years
are cut into decades and, from 1990 on, into halves of them. Periods, popularity and ratings were
taken in on ratings held out within the training parts of ML-100K and ML-1M (NDCG@10 from .102 to
.136 and from .097 to .134, with popularity corrected for item weights); pairs of genres, genres
times decades and words of titles did not help there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.data.item_features import YEAR_RIDGES, years_of
from hdpmf.common.model.device_fit import FEWEST, DeviceFit, log_popularity

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LIKE = 0.25
"""Weight of a star of the predicted rating, where a factor e in popularity counts 1: best of 0 to
4 on ratings held out within ML-100K's training part, for mf (NDCG@10 .112 against .109 without and
.050 by stars alone); hdp-sum is as good with 0.1 to 0.4 there and within ML-1M's."""

RIDGE = 10.0
"""Of a person's taste: best of 5, 7, 10, 15 and 20 on ratings held out within ML-100K (NDCG@10
.132, .133, .134, .132, .130) and ML-1M (.134, .135, .135, .133, .131; hdp-sum, four and two seeds;
.078 and .052 without taste)."""


def choice_shares(popularity: np.ndarray) -> np.ndarray:
    """Return the share of each item in what people choose."""
    counts = np.maximum(popularity, FEWEST)
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Choices:
    """The choices of people in general, by public features.

    Attributes:
        shares: Of each item in what people choose.
        mean: Of each feature over it.
        variances: Along the principal directions of its spread.
        directions: These, one per column.
    """

    shares: np.ndarray
    mean: np.ndarray
    variances: np.ndarray
    directions: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, popularity: np.ndarray) -> Choices:
        """Describe what people choose.

        Args:
            features: Public, one row per item.
            popularity: How often items are chosen.
        """
        shares = choice_shares(popularity)
        mean = shares @ features
        centred = features - mean
        spread = centred.T @ (centred * shares[:, None])
        return cls(shares, mean, *np.linalg.eigh(spread))

    def apart(self, heights: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Return what each of a user's ratings adds to how much more they choose each feature.

        The rows add up to the mean features of what the user rated, less those of what people
        choose.

        Args:
            heights: How far above the lowest each rating is: a higher one counts more.
            features: Of what was rated, one row each.
        """
        total = float(heights.sum())
        shares = heights / total if total > 0 else np.zeros(len(heights))
        return np.asarray((features - self.mean) * shares[:, None])

    def scaled(self, apart: np.ndarray, n_rated: np.ndarray, ridge: float) -> np.ndarray:
        """Return how much rows that are so far from the mean say about taste.

        Args:
            apart: One row per user or rating.
            n_rated: How many ratings the user of each row has.
            ridge: How strongly a taste is held to zero, in ratings.
        """
        weights = n_rated[:, None] / (n_rated[:, None] * self.variances + ridge)
        return np.asarray(((apart @ self.directions) * weights) @ self.directions.T)


def taste(
    own: csr_matrix, features: np.ndarray, popularity: np.ndarray, ridge: float = RIDGE
) -> np.ndarray:
    """Return each user's score per feature: how much more than others they choose items with it.

    It is one step of a logistic choice model: the mean features of what somebody rated (a higher
    rating counts more) against those of what people rate in general, through the covariance of the
    latter.

    Args:
        own: What each user rated; see ``heights``.
        features: Public, one row per item.
        popularity: How often items are chosen.
        ridge: How strongly a taste is held to zero, in ratings.
    """
    choices = Choices.of(features, popularity)
    totals = np.asarray(own.sum(axis=1)).ravel()
    apart = np.asarray(own @ features) / np.maximum(totals, 1e-9)[:, None] - choices.mean
    n_rated = np.diff(own.indptr).astype(np.float64)
    n_rated[totals <= 0] = 0.0  # a user who rated everything lowest has said nothing about taste
    return choices.scaled(apart, n_rated, ridge)


def taste_by_rating(apart: np.ndarray, choices: Choices) -> np.ndarray:
    """Return what each of a user's ratings adds to their taste, one row each.

    The rows add up to the taste, as it is linear in the means that ``apart`` adds up to.

    Args:
        apart: Of each rating; see ``Choices.apart``.
        choices: What people choose in general.
    """
    return choices.scaled(apart, np.array([float(len(apart))]), RIDGE)


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
