"""From released bits to item facts. Post-processing only: it can be changed without asking anyone.

Who rated what is in plain sight in this design, so it is used: how often items were rated, and how similar they are by
who rated them. Everything is in stars: a rating scale is mapped to one to five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from hdpmf.errors import ProtocolError
from hdpmf.privacy.coding import WEIGHT_UNITS, bit_height
from hdpmf.protocol import BitContribution, ItemFacts, Survey
from hdpmf.protocol.oneround import Similarity
from hdpmf.public.device_fit import NOISE, device_columns
from hdpmf.public.popularity import log_popularity
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender.item_bias import STARS, coding_of, item_facts
from hdpmf.recommender.lists.presence import Presence
from hdpmf.recommender.patterns import rating_patterns
from hdpmf.recommender.similarity import Similar, similar_items
from hdpmf.recommender.vector_spread import StarBits, learn_columns, learn_pull

_LEVELS = {"linear": (0.0, 3.0, 0.25), "threshold": (0.06, 3.55, 0.399), "soft": (0.11, 3.55, 0.326)}

_SPREAD, _STEADY_ITEMS = 0.05, 30.0
"""Variance of item biases around what columns say, to begin with (stars squared); it counts like so many items."""

_EXPLAINED = 0.3  # what each group of columns explains of it, to begin with
_ROUNDS = 30
_TEACHING_ITEMS = 4096  # those with most bits; others have little to say


def facts_from_bits(
    survey: Survey, contributions: Sequence[BitContribution], features: ItemFeatures | None, n_patterns: int = 0
) -> ItemFacts:
    """Item facts from bits: a bias per item and, with patterns, how similar items are.

    Args:
        survey: What was asked.
        contributions: The answers.
        features: Public features of the items, or None.
        n_patterns: How many factors of who rates what with whom to look for; 0 does not use who rated what.
    """
    n = survey.n_items
    units = np.concatenate([part.units for part in contributions])
    level, bits = _in_stars(survey, contributions, units)
    popularity = np.bincount(bits.items, minlength=n) * (float(units.mean()) / WEIGHT_UNITS if len(units) else 1.0)
    amount = log_popularity(popularity)
    amount -= np.average(amount, weights=np.maximum(popularity, 1e-6))
    groups = [np.column_stack([amount, amount**2 / 3.0])]
    groups += [] if features is None else [features.matrix]
    patterns = rating_patterns(bits.users, bits.items, n, n_patterns)
    similar: Similar | None = None
    if patterns.shape[1]:
        similar = similar_items(Presence(bits.users, bits.items, int(bits.users.max()) + 1, n), patterns)
        groups += [patterns, _for_all(similar, similar.columns, n)]
    bias, variance = item_biases(bits, groups)
    facts = item_facts(survey, _mean_from_level(level, survey.coding), bias, variance, popularity)
    if similar is None:
        return facts
    return msgspec.structs.replace(facts, similarity=_similarity(bits, facts, features, similar))


def _in_stars(survey: Survey, contributions: Sequence[BitContribution], units: np.ndarray) -> tuple[float, StarBits]:
    """The mean of all bits on the coding's curve, and what each of them says beyond that."""
    items = np.concatenate([part.items for part in contributions])
    if len(items) and int(items.max()) >= survey.n_items:
        raise ProtocolError(f"a bit is about an item that the survey's {survey.n_items} do not have")
    signs = 2.0 * np.concatenate([part.plus for part in contributions]) - 1.0
    heights, slope = bit_height(units, survey.epsilon), coding_of(survey).curve.slope
    level = float((signs / heights).sum() / max(float((heights**-2).sum()), 1e-9))
    return level, StarBits(
        count_senders(contributions), items, (signs * heights - level) / slope, (heights / slope) ** 2
    )


def count_senders(contributions: Sequence[BitContribution]) -> np.ndarray:
    """One number per sender over all shards, in their order.

    They are counted anew: a card may claim any number of users, and what follows takes memory for every number.
    """
    found = [np.unique(part.senders, return_inverse=True) for part in contributions]
    starts = np.concatenate(([0], np.cumsum([len(distinct) for distinct, _ in found])))
    return np.concatenate([place + start for (_, place), start in zip(found, starts, strict=False)])


def _mean_from_level(level: float, coding: str) -> float:
    """The mean rating that goes with a mean of the curve, by constants of star ratings in general.

    A bit says nothing else about the mean; devices correct the rest by their own intercepts.
    """
    at, mean, per_star = _LEVELS[coding]
    return float(np.clip(mean + (np.clip(level, -0.5, 0.5) - at) / per_star, 1.0, 1.0 + STARS))


def item_biases(bits: StarBits, groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Biases and their variances: a regression on groups of columns, and a part of each item's own.

    How much each group explains, and how much is left for items, is learned from the same bits by expectation
    maximisation.

    Args:
        bits: What users said.
        groups: Columns with a row per item; the coefficients of a group have one variance.
    """
    columns = np.column_stack([np.ones(len(groups[0])), *groups])
    group = np.repeat(np.arange(len(groups) + 1), [1, *(part.shape[1] for part in groups)])
    told = np.bincount(bits.items, 1.0 / bits.variance, len(columns))
    seen = np.bincount(bits.items, bits.values / bits.variance, len(columns)) / np.maximum(told, 1e-12)
    prior = np.array([10.0, *(_EXPLAINED / max(float((part**2).sum(1).mean()), 1e-9) for part in groups)])
    spread = _SPREAD
    most = np.argsort(-told, kind="stable")[: min(_TEACHING_ITEMS, int((told > 0).sum()))]
    teaching = columns[most], told[most], seen[most]
    for _ in range(_ROUNDS):
        found = _posterior(*teaching, prior[group], spread)
        moments = float((found.own**2 + found.own_variance + found.share**2 * found.unsure).sum())
        spread = (moments + _STEADY_ITEMS * _SPREAD) / (len(most) + _STEADY_ITEMS)
        sizes = np.bincount(group, found.squares) / np.maximum(np.bincount(group), 1)
        prior[1:] = np.maximum(sizes[1:], 1e-9)
    found = _posterior(columns, told, seen, prior[group], spread)
    return found.expected + found.own, found.own_variance + (1.0 - found.share) ** 2 * found.unsure


class _Posterior(NamedTuple):
    """Of a regression: squares of its coefficients; per item what it expects, how unsure that is, and its own part."""

    squares: np.ndarray
    expected: np.ndarray
    unsure: np.ndarray
    share: np.ndarray
    own: np.ndarray
    own_variance: np.ndarray


def _posterior(columns: np.ndarray, told: np.ndarray, seen: np.ndarray, prior: np.ndarray, spread: float) -> _Posterior:
    weight = told / (1.0 + told * spread)
    uncertainty = np.linalg.inv(columns.T @ (columns * weight[:, None]) + np.diag(1.0 / prior))
    coefficients = uncertainty @ (columns.T @ (weight * seen))
    expected, share = columns @ coefficients, spread * weight
    unsure = np.einsum("nk,nk->n", columns @ uncertainty, columns)
    own = share * (seen - expected)
    return _Posterior(coefficients**2 + np.diag(uncertainty), expected, unsure, share, own, spread * (1.0 - share))


def _similarity(bits: StarBits, facts: ItemFacts, features: ItemFeatures | None, similar: Similar) -> Similarity:
    """The similarity as devices get it: its columns scaled by what bits say of how vectors are spread."""
    n = len(facts.bias)
    _, fixed, ridges = device_columns(facts, features)
    left = bits._replace(
        values=bits.values - facts.bias[bits.items], variance=bits.variance + facts.variance[bits.items]
    )
    columns = learn_columns(left, fixed, ridges / NOISE, _for_all(similar, similar.columns, n))
    centre = facts.popularity @ columns / max(float(facts.popularity.sum()), 1e-9)
    return Similarity(
        items=similar.items.astype(np.int64),
        columns=columns[similar.items].astype(np.float16),
        rest=similar.rest.astype(np.float32),
        pull=learn_pull(left, columns, centre),
    )


def _for_all(similar: Similar, rows: np.ndarray, n_items: int) -> np.ndarray:
    """Rows of all items: zero where nothing is similar."""
    out = np.zeros((n_items, *rows.shape[1:]))
    out[similar.items] = rows
    return out
