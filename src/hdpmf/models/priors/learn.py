"""Learning a population prior from ratings that were declared public, by expectation maximisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.kernels.normal import user_statistics
from hdpmf.kernels.threads import Workers
from hdpmf.models.device_features import NOISE, derived_names, device_columns
from hdpmf.models.priors.prior import Prior
from hdpmf.privacy.spec import PrivacySpec
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.shard.device_fit import ratings_by_user

EPSILON = 2.0
"""The public ratings go through the same round as private ones: biases then err as they will in use, but less."""

FEWEST_DRAWS, MOST_DRAWS, USERS_IN_ALL = 6, 12, 12_000
"""The rounds are simulated several times, each with other ratings held out, other weights and other noise; more often
where there are few users, whose average would show the draws."""

HELD_OUT = 10
ROUNDS = 10
MEAN_RIDGE = 10.0
"""How strongly expected vectors are held to not depend on what a user rated, in users per draw."""


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
        ratings: Public ratings with an item table. They are *not* protected: the prior may tell anything about them.
        name: What to call the prior.
        origin: Where the ratings come from; goes into the file.
        rng: Seed of the simulated rounds.
        n_threads: Threads.
        progress: Called with the rounds done and to do.
    """
    if ratings.item_table is None:
        raise ConfigError("a prior is about item features, and these ratings have no item table")
    features = ItemFeatures.of_table(ratings.item_table, ratings.items)
    extra = derived_names(features)
    parts = []
    names: tuple[str, ...] = ()
    ridges = np.zeros(0)
    draws = int(np.clip(USERS_IN_ALL // ratings.n_users, FEWEST_DRAWS, MOST_DRAWS))
    for draw in range(draws):
        part, names, ridges = _one_draw(ratings, features, extra, rng + draw, n_threads)
        parts.append(part)
        if progress is not None:
            progress(draw + 1, draws + ROUNDS)
    statistics = _Statistics(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    means, covariance, noise = _maximise(statistics, ridges, draws, progress)
    how = {
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "method": f"EM, {ROUNDS} rounds over {draws} simulated surveys at epsilon {EPSILON:g}, "
        f"{HELD_OUT} ratings of each user left out",
    }
    return Prior(name, {**origin, **how}, names, means, covariance, noise)


def _one_draw(
    ratings: Ratings, features: ItemFeatures, extra: tuple[str, ...], seed: int, n_threads: int | None
) -> tuple[_Statistics, tuple[str, ...], np.ndarray]:
    # Here, not above: the estimators use priors.
    from hdpmf.models.one_round import HDPSum

    train, _ = ratings.hold_out(HELD_OUT, rng=seed)
    model = HDPSum(EPSILON, features=features, n_threads=n_threads, rng=seed)
    facts = model.fit(train, PrivacySpec().draw(train, rng=seed)).facts_
    names, columns, ridges = device_columns(facts, features, extra=extra)
    by_user = ratings_by_user(train)
    target = by_user.target - (facts.mean + facts.bias)[by_user.partner]
    weight = NOISE / (NOISE + facts.variance.astype(np.float64))
    with Workers(n_threads) as workers:
        H, g, z, y2 = user_statistics(
            by_user.start, by_user.partner, target, np.ascontiguousarray(columns), weight, workers
        )
    H += np.tril(H, -1).transpose(0, 2, 1)
    some = by_user.counts > 0
    return _Statistics(H[some], g[some], z[some], y2[some], by_user.counts[some]), names, ridges


def _maximise(
    users: _Statistics, ridges: np.ndarray, draws: int, progress: Callable[[int, int], None] | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Expectation maximisation for M, A and the variance of ratings around their predictions."""
    noise = NOISE
    covariance = np.diag(noise / ridges)
    n, size = users.g.shape
    means = np.zeros((size, users.z.shape[1]))
    ridge = np.full(users.z.shape[1], MEAN_RIDGE * draws)
    ridge[0] = 1e-3
    gram = users.z.T @ users.z + np.diag(ridge)
    for done in range(ROUNDS):
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
        if progress is not None:
            progress(draws + done + 1, draws + ROUNDS)
    return means, covariance, noise
