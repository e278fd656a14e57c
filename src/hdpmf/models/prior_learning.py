"""Learn a population prior and the score of taste labels from public ratings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import NOISE, derived_names, device_columns, to_stars
from hdpmf.common.model.priors import POPULARITY, Labels, Prior
from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import ConfigError
from hdpmf.private.client.devices import ratings_by_user
from hdpmf.private.kernels.compiled import user_statistics

_SHRUNK = 20.0
"""Ratings that everybody is taken to have besides their own, of average items; a mean over a few
says little.
"""

_RIDGE = 0.1

_FEWEST_RATERS = 20

_STEADYING = 30.0


def learn_score(ratings: Ratings, features: ItemFeatures) -> dict[str, float]:
    """Return the score's coefficients: one per feature, and one for the log of popularity.

    Popularity is an item's number of raters here.
    """
    users, items, n_items = ratings.user_codes, ratings.item_codes, ratings.n_items
    raters = np.bincount(items, minlength=n_items)
    columns = np.column_stack([features.matrix, np.log(np.maximum(raters, 1))])
    rest = _beyond_biases(ratings, raters)
    described = _described(ratings, columns - np.average(columns, axis=0, weights=raters))
    covariance = described.T @ described / len(described)
    covariance += np.diag(_RIDGE * np.diag(covariance)) + 1e-5 * np.eye(len(covariance))
    sizes, vectors = np.linalg.eigh(covariance)
    whitening = (vectors / np.sqrt(sizes)) @ vectors.T
    white = described @ whitening
    steady = np.where(raters >= _FEWEST_RATERS, 1.0 / np.sqrt(raters + _STEADYING), 0.0)
    together = np.column_stack(
        [np.bincount(items, axis[users] * rest, n_items) * steady for axis in white.T]
    )
    directions = np.linalg.svd(together, full_matrices=False)[2]
    weights = whitening @ directions[0]
    # The sign means nothing; this one is always the same.
    weights *= np.sign(weights[np.argmax(np.abs(weights))])
    return dict(zip((*features.names, POPULARITY), weights.tolist(), strict=True))


def _beyond_biases(ratings: Ratings, raters: np.ndarray) -> np.ndarray:
    """Ratings in stars without their mean, their item's bias and their user's."""
    users, items = ratings.user_codes, ratings.item_codes
    rest = to_stars(ratings.values, ratings.scale).astype(np.float64)
    rest -= rest.mean()
    rest -= (np.bincount(items, rest, ratings.n_items) / (raters + 5.0))[items]
    counts = np.bincount(users, minlength=ratings.n_users)
    return np.asarray(rest - (np.bincount(users, rest, ratings.n_users) / (counts + 5.0))[users])


def _described(ratings: Ratings, columns: np.ndarray) -> np.ndarray:
    """Per user, the mean columns of what it rated, shrunk and centred."""
    users, items = ratings.user_codes, ratings.item_codes
    counts = np.bincount(users, minlength=ratings.n_users)
    sums = np.column_stack(
        [np.bincount(users, column[items], ratings.n_users) for column in columns.T]
    )
    means = sums / (counts + _SHRUNK)[:, None]
    return np.asarray(means - means.mean(0))


EPSILON = 2.0
"""The public ratings go through the same round as private ones: biases then err as they will in
use, but less.
"""

FEWEST_DRAWS, MOST_DRAWS, USERS_IN_ALL = 6, 12, 12_000
"""The rounds are simulated several times, each with other ratings held out, other weights and other
noise; more often where there are few users, whose average would show the draws."""

HELD_OUT = 10

ROUNDS = 8

STEADY_USERS = 100
"""A covariance of n users is kept to n / (n + this): a few hundred users seem to scatter more than
people do. With ML-100K's 943 it is the nine tenths that cross-validation within them found best."""

LABEL_EPSILON = 100.0

FOLDS = 5
"""The labels' contrasts are learned from public ratings almost without noise, and by folds of
users: nobody's own ratings are in the contrasts that their vector is fitted to, as they hardly are
where there are many users."""

MEAN_RIDGE = 10.0
"""Ridge, in users per draw, by which expected vectors depend little on what a user rated."""


class _Statistics(NamedTuple):
    """Per user: the normal equations, what describes the user, and how many ratings it has."""

    H: np.ndarray
    g: np.ndarray
    z: np.ndarray
    y2: np.ndarray
    n: np.ndarray


def learn_prior(
    ratings: Ratings,
    *,
    name: str,
    origin: dict[str, Any],
    rng: int = 0,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Prior:
    """Learn how users' vectors are spread: ``theta_i ~ N(M z_i, A)``.

    Args:
        ratings: Public ratings with an item table. They are *not* protected: the prior may tell
            anything about them.
        name: What to call the prior.
        origin: Where the ratings come from; goes into the file.
        rng: Seed of the simulated rounds.
        n_threads: Threads.
        progress: Called with the rounds done and to do.
    """
    if ratings.item_table is None:
        raise ConfigError("a prior is about item features, and these ratings have no item table")
    features = ItemFeatures.of_table(ratings.item_table, ratings.items)
    draws = int(np.clip(USERS_IN_ALL // ratings.n_users, FEWEST_DRAWS, MOST_DRAWS))
    steps = _Steps(2 * (draws + ROUNDS), progress)
    worlds = [_one_world(ratings, features, rng + draw) for draw in range(draws)]
    how = {
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "method": f"EM, {ROUNDS} rounds over {draws} simulated surveys at epsilon {EPSILON:g}, "
        f"{HELD_OUT} ratings of each user left out; label score by canonical correlation",
    }
    about = {**origin, **how}
    plain = _gaussian(name, about, [_whole(world, n_threads, steps) for world in worlds], steps)
    score = learn_score(ratings, features)
    scored = replace(plain, labels=Labels(score, None))
    labelled = [
        _by_folds(world, scored, rng + draw, n_threads, steps) for draw, world in enumerate(worlds)
    ]
    inner = _gaussian(name, about, labelled, steps)
    return replace(plain, labels=Labels(score, inner))


class _Steps:
    def __init__(self, n: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._n, self._progress = 0, n, progress

    def advance(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._n)


class _Simulated(NamedTuple):
    """One simulated survey: the ratings that answered it, and what came of it."""

    train: Ratings
    facts: ItemFacts
    features: ItemFeatures
    extra: tuple[str, ...]


class _Drawn(NamedTuple):
    users: _Statistics
    names: tuple[str, ...]
    ridges: np.ndarray


def _one_world(ratings: Ratings, features: ItemFeatures, seed: int) -> _Simulated:
    # Here, not above: the estimators use priors.
    from hdpmf.models.one_round import HDPSum

    train, _ = ratings.hold_out(HELD_OUT, rng=seed)
    facts, _ = HDPSum(EPSILON, rng=seed)._ask(
        train, PrivacySpec().draw(train, rng=seed), features, None
    )
    return _Simulated(train, facts, features, derived_names(features))


def _whole(world: _Simulated, n_threads: int | None, steps: _Steps) -> _Drawn:
    drawn = _drawn(world.train, world, n_threads)
    steps.advance()
    return drawn


def _by_folds(
    world: _Simulated, scored: Prior, seed: int, n_threads: int | None, steps: _Steps
) -> _Drawn:
    """The statistics with the labels' contrast among the columns."""
    from hdpmf.models.one_round import HDPSum

    train = world.train
    fold = np.random.default_rng(seed).permutation(train.n_users) % FOLDS
    parts = []
    for number in range(FOLDS):
        here = fold[train.user_codes] == number
        others = train.take(np.flatnonzero(~here))
        model = HDPSum(LABEL_EPSILON, coding="soft", labels=True, rng=seed * FOLDS + number)
        contrast, _ = model._ask(others, PrivacyWeights.uniform(others), world.features, scored)
        told = msgspec.structs.replace(world.facts, patterns=contrast.patterns)
        parts.append(
            _drawn(train.take(np.flatnonzero(here)), world._replace(facts=told), n_threads)
        )
    steps.advance()
    return _Drawn(_joined([part.users for part in parts]), parts[0].names, parts[0].ridges)


def _drawn(ratings: Ratings, world: _Simulated, n_threads: int | None) -> _Drawn:
    facts = world.facts
    names, columns, ridges = device_columns(facts, world.features, extra=world.extra)
    by_user = ratings_by_user(ratings)
    target = by_user.target - (facts.mean + facts.bias)[by_user.partner]
    weight = NOISE / (NOISE + facts.variance.astype(np.float64))
    with Workers(n_threads) as workers:
        H, g, z, y2 = user_statistics(
            by_user.start, by_user.partner, target, np.ascontiguousarray(columns), weight, workers
        )
    H += np.tril(H, -1).transpose(0, 2, 1)
    some = by_user.counts > 0
    return _Drawn(
        _Statistics(H[some], g[some], z[some], y2[some], by_user.counts[some]), names, ridges
    )


def _joined(parts: Sequence[_Statistics]) -> _Statistics:
    return _Statistics(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _gaussian(name: str, origin: dict[str, Any], drawn: Sequence[_Drawn], steps: _Steps) -> Prior:
    means, covariance, noise = _maximise(
        _joined([draw.users for draw in drawn]), drawn[0].ridges, len(drawn), steps
    )
    kept = origin["users"] / (origin["users"] + STEADY_USERS)
    return Prior(name, origin, drawn[0].names, means, kept * covariance, noise)


def _maximise(
    users: _Statistics, ridges: np.ndarray, draws: int, steps: _Steps
) -> tuple[np.ndarray, np.ndarray, float]:
    """Expectation maximisation for M, A and the variance of ratings around their predictions."""
    noise = NOISE
    covariance = np.diag(noise / ridges)
    n, size = users.g.shape
    means = np.zeros((size, users.z.shape[1]))
    ridge = np.full(users.z.shape[1], MEAN_RIDGE * draws)
    ridge[0] = 1e-3
    gram = users.z.T @ users.z + np.diag(ridge)
    for _ in range(ROUNDS):
        precision = np.linalg.inv(covariance)
        expected = users.z @ means.T
        vectors, spread, explained = np.empty((n, size)), np.zeros((size, size)), 0.0
        for block in np.array_split(np.arange(n), max(n // 2048, 1)):  # bounds the memory
            H, g = users.H[block], users.g[block]
            uncertainty = np.linalg.inv(H / noise + precision)
            t = np.einsum("nij,nj->ni", uncertainty, g / noise + expected[block] @ precision)
            vectors[block] = t
            spread += uncertainty.sum(0)
            explained += float(
                (users.y2[block] - 2 * (t * g).sum(1) + np.einsum("ni,nij,nj->n", t, H, t)).sum()
                + np.einsum("nij,nji->", H, uncertainty)
            )
        means = np.linalg.solve(gram, users.z.T @ vectors).T
        rest = vectors - users.z @ means.T
        covariance = (spread + rest.T @ rest) / n + 1e-6 * np.eye(size)
        noise = explained / float(users.n.sum())
        steps.advance()
    return means, covariance, noise
