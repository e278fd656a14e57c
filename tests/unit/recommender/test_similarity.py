"""Similarity of items by who rated them, and what is learned from bits about users' vectors."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.untrusted.recommender import bits as similarity
from hdpmf.untrusted.recommender.bits import (
    CLOSE,
    DAMPING,
    SHARED,
    StarBits,
    learn_columns,
    learn_pull,
    similar_items,
)
from hdpmf.untrusted.recommender.lists.training import Presence


def who_rated_what(n_users: int = 80, n_items: int = 30) -> tuple[Presence, np.ndarray]:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((n_users, n_items)) < np.linspace(0.05, 0.6, n_items))
    return Presence(users, items, n_users, n_items), rng.standard_normal((n_items, 2))


def test_with_as_many_columns_as_items_it_is_the_kernel():
    presence, patterns = who_rated_what()
    found = similar_items(presence, patterns)
    damped = presence.raters + DAMPING
    cosine = presence.gram() / np.sqrt(damped[:, None] * damped)
    kernel = CLOSE / 2 * (cosine + cosine**3) + SHARED * patterns @ patterns.T
    np.testing.assert_allclose(found.columns @ found.columns.T, kernel, atol=1e-4)
    whole = CLOSE + SHARED * (patterns**2).sum(1)
    np.testing.assert_allclose((found.columns**2).sum(1) + found.rest, whole, atol=1e-4)


def test_fewer_columns_are_the_nearest_kernel(monkeypatch):
    presence, patterns = who_rated_what()
    whole = similar_items(presence, patterns).columns
    monkeypatch.setattr(similarity, "COLUMNS", 5)
    few = similar_items(presence, patterns)
    scale = (presence.raters + 1.0)[:, None] ** 0.25
    best = np.linalg.svd(whole * scale)[1][5:]
    missed = (whole @ whole.T - few.columns @ few.columns.T) * scale * scale.T
    assert np.linalg.norm(missed) == pytest.approx(np.linalg.norm(best**2), rel=0.02)
    assert (few.rest > 0).all()


def test_only_the_most_rated_items_are_similar(monkeypatch):
    presence, patterns = who_rated_what()
    monkeypatch.setattr(similarity, "MAX_SIMILAR_ITEMS", 10)
    found = similar_items(presence, patterns)
    assert found.columns.shape == (10, 10)
    assert sorted(presence.raters[found.items]) == sorted(presence.raters)[-10:]


def bits_of(vectors: np.ndarray, columns: np.ndarray, noise: float) -> StarBits:
    """One bit of every user about every item; Gaussian, which is all that the learning uses."""
    values = vectors @ columns.T + np.random.default_rng(1).normal(
        0, noise, (len(vectors), len(columns))
    )
    users, items = (part.ravel() for part in np.indices(values.shape))
    return StarBits(users, items, values.ravel(), np.full(values.size, noise**2))


def test_the_direction_in_which_people_differ_is_found():
    rng = np.random.default_rng(2)
    columns = rng.standard_normal((40, 3)) * 0.5
    vectors = rng.standard_normal((3000, 3)) * [2.0, 1.0, 0.2]
    learned = learn_columns(
        bits_of(vectors, columns, 4.0), np.ones((40, 1)), np.array([5.0]), columns
    )
    spread = np.linalg.lstsq(columns, learned, rcond=None)[0]
    found = np.sqrt(np.diag(spread @ spread.T))
    np.testing.assert_allclose(found[:2], [2.0, 1.0], atol=0.3)
    assert found[2] < 0.8  # on its way from 1 to 0.2, where it is slow


@pytest.mark.parametrize(
    ("true", "noise", "expected"), [(0.8, 2.0, 0.8), (0.0, 2.0, 0.0), (0.8, 3000.0, 0.0)]
)
def test_the_pull_is_found_where_bits_tell_it(true, noise, expected):
    """Half of the items are rated by each user; the last case has too much noise to say
    anything.
    """
    rng = np.random.default_rng(3)
    columns = rng.standard_normal((40, 2))
    chosen = rng.random((1500, 40)) < 1 / (1 + np.exp(-rng.standard_normal((1500, 2)) @ columns.T))
    own = chosen @ columns / chosen.sum(1, keepdims=True)
    centre = chosen.sum(0) @ columns / chosen.sum()
    every = bits_of(true * (own - centre), columns, noise)
    kept = chosen.ravel()
    bits = StarBits(*(column[kept] for column in every))
    assert learn_pull(bits, columns, centre) == pytest.approx(expected, abs=0.1)
