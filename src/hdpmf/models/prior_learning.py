"""Learn a population prior from public ratings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import NOISE, Prior, derived_names, device_columns
from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.errors import ConfigError
from hdpmf.private.client.devices import ratings_by_user
from hdpmf.private.kernels.compiled import user_statistics

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
    steps = _Steps(draws + ROUNDS, progress)
    how = {
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "method": f"EM, {ROUNDS} rounds over {draws} simulated surveys at epsilon {EPSILON:g}, "
        f"{HELD_OUT} ratings of each user left out",
    }
    about = {**origin, **how}
    drawn = []
    for draw in range(draws):
        drawn.append(_one_draw(ratings, features, rng + draw, n_threads))
        steps.advance()
    users = _Statistics(
        *(np.concatenate(column) for column in zip(*(each.users for each in drawn), strict=True))
    )
    means, covariance, noise = _maximise(users, drawn[0].ridges, draws, steps)
    kept = ratings.n_users / (ratings.n_users + STEADY_USERS)
    return Prior(name, about, drawn[0].names, means, kept * covariance, noise)


class _Steps:
    def __init__(self, n: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._n, self._progress = 0, n, progress

    def advance(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._n)


class _Drawn(NamedTuple):
    users: _Statistics
    names: tuple[str, ...]
    ridges: np.ndarray


def _one_draw(ratings: Ratings, features: ItemFeatures, seed: int, n_threads: int | None) -> _Drawn:
    """Simulate one survey, and return the statistics of those who answered it."""
    # Here, not above: the estimators use priors.
    from hdpmf.models.one_round import HDPSum

    train, _ = ratings.hold_out(HELD_OUT, rng=seed)
    weights = PrivacySpec().draw(train, rng=seed)
    facts, _ = HDPSum(EPSILON, rng=seed)._ask(train, weights, features)
    names, columns, ridges = device_columns(facts, features, extra=derived_names(features))
    by_user = ratings_by_user(train)
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
