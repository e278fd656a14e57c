"""How good a model's lists are, next to the errors of ratings.

The protocol, the same for every method:

- *Users*: those with a training rating and at least one relevant test rating.
- *Relevant*: test ratings in the top quarter of the scale (4 and 5 stars of 1 to 5). All of them count, also of items
  that no method could know.
- *Candidates*: every item that has a training rating and that the model learned something about, except those that the
  user rated in training.
- *Order*: by the model's score for lists; equal scores in the order of the catalogue.
- *NDCG@n*: gain 1 for a relevant item at place p, discounted by log2(p + 1), over the best that ``n`` places allow;
  mean over users.
- *Recall@n*: relevant items among the first ``n``, over all relevant ones; mean over users.
- *Precision@n*: relevant items among the first ``n``, over ``n``. *Hit rate@n*: users with at least one of them.
- *MAP@n*: mean over users of the precision at each relevant place, summed and divided by the relevant items (``n`` at
  most). *MRR@n*: 1 over the place of the first relevant item, 0 without one.
- *Coverage@n*: items in the first ``n`` of any of these users, over all items with a training rating.
- *Popularity@n*: how many raters the listed items have in training, on average; the smaller, the more is new to people.
- *Gini@n*: how unequally items share the places of all lists: 0 if all candidates are listed equally often.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdpmf.errors import ConfigError, RatingsError
from hdpmf.ratings import Ratings, RatingScale
from hdpmf.shard import Devices

TOP_SHARE = 0.25
"""Relevant is a rating in this top share of the scale."""

_BLOCK_SCORES = 1 << 20  # what fits into a processor's cache
_SETS = 16

Scores = Callable[[np.ndarray], np.ndarray]
"""Scores of all candidates, one row for each of these users."""


def relevant_from(scale: RatingScale) -> float:
    """The lowest rating that counts as relevant."""
    return scale.high - TOP_SHARE * scale.width


METRICS = ("ndcg", "recall", "precision", "map", "mrr", "hit_rate", "coverage", "popularity", "gini")
"""What is measured, in the order of tables."""

_SURE = 1.959964  # standard deviations on either side of a mean for 95 %


def rank(
    devices: Devices, candidates: np.ndarray, scores: Scores, test: Ratings, items: np.ndarray, n: int
) -> dict[str, float | int]:
    """All metrics; see the module. ``ndcg_margin`` and ``recall_margin`` are 95 % intervals over users, one side.

    Args:
        devices: The users and what they rated in training.
        candidates: Which items of the catalogue may be recommended.
        scores: Gives their scores for some users.
        test: Test ratings.
        items: Catalogue position of each of the test's items, -1 for an unknown one.
        n: Length of the lists.
    """
    if n < 1:
        raise ConfigError(f"n must be at least 1, not {n}")
    users = devices.users.find(test.users.ids)
    liked = np.flatnonzero(test.values >= relevant_from(test.scale))
    liked_users, liked_items = users[test.user_codes[liked]], items[test.item_codes[liked]]
    known = liked_users >= 0
    known[known] = np.diff(devices.rated_start)[liked_users[known]] > 0
    liked_users, liked_items = liked_users[known], liked_items[known]
    if len(liked_users) == 0:
        raise RatingsError(
            f"no user who is known from training has a test rating of {relevant_from(test.scale):g} or more, so "
            "there is nothing to rank for"
        )
    ranked, n_liked = np.unique(liked_users, return_counts=True)
    # One number per relevant pair; place ``width`` is for items that can be in no list, the unknown (-1) among them.
    width = int(candidates.sum())
    place_of = np.full(len(candidates) + 1, width)
    place_of[:-1][candidates] = np.arange(width)
    pairs = np.sort(liked_users.astype(np.int64) * (width + 1) + place_of[liked_items])

    discounts = 1.0 / np.log2(np.arange(2, n + 2))
    best = np.cumsum(discounts)[np.minimum(n_liked, n) - 1]
    gains, hits = np.empty(len(ranked)), np.empty(len(ranked))
    averages, firsts = np.empty(len(ranked)), np.empty(len(ranked))
    listed_times = np.zeros(width, np.int64)
    places = np.arange(1, n + 1)
    step = max(1, _BLOCK_SCORES // max(1, width))
    for first in range(0, len(ranked), step):
        block = ranked[first : first + step]
        table = scores(block)
        _take_out(table, devices, block, place_of)
        top, listed = best_of(table, n)
        listed_times += np.bincount(top[listed], minlength=width)
        found = listed & _among(block[:, None].astype(np.int64) * (width + 1) + top, pairs)
        here, shown = slice(first, first + step), places[: top.shape[1]]
        gains[here] = found @ discounts[: top.shape[1]]
        hits[here] = found.sum(axis=1)
        averages[here] = (found * found.cumsum(axis=1) / shown).sum(axis=1)
        firsts[here] = np.where(found.any(axis=1), 1.0 / (1.0 + found.argmax(axis=1)), 0.0)
    raters = np.bincount(devices.rated, minlength=len(candidates))[candidates]
    total = max(int(listed_times.sum()), 1)
    return {
        "ndcg": float(np.mean(gains / best)),
        "recall": float(np.mean(hits / n_liked)),
        "precision": float(np.mean(hits / n)),
        "map": float(np.mean(averages / np.minimum(n_liked, n))),
        "mrr": float(np.mean(firsts)),
        "hit_rate": float(np.mean(hits > 0)),
        "coverage": float((listed_times > 0).sum() / len(np.unique(devices.rated))),
        "popularity": float((listed_times * raters).sum() / total),
        "gini": _gini(listed_times),
        "ndcg_margin": _margin(gains / best),
        "recall_margin": _margin(hits / n_liked),
        "n_users": len(ranked),
    }


def _margin(values: np.ndarray) -> float:
    return float(_SURE * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _gini(times: np.ndarray) -> float:
    n, total = len(times), int(times.sum())
    if total == 0:
        return 0.0
    return float((2.0 * np.arange(1, n + 1) - n - 1) @ np.sort(times) / (n * total))


def best_of(table: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the ``n`` largest scores of each row, best first and equal ones in order.

    Returns:
        The columns, and which of them are in the list at all: a score of minus infinity is not.
    """
    n_rows, width = table.shape
    n = min(n, width)
    # The n-th largest of the maxima of disjoint sets of columns is no larger than the n-th largest of all: whatever
    # reaches it is a handful of candidates, found without sorting the row, and with all that are equal to the last.
    n_sets, size = _SETS * n, width // (_SETS * n) if n else 0
    bound = np.full((n_rows, 1), -np.inf, table.dtype)
    if size > 1:
        maxima = table[:, : size * n_sets].reshape(n_rows, size, n_sets).max(axis=1)
        bound = np.partition(maxima, n_sets - n, axis=1)[:, n_sets - n, None]
    rows, columns = np.nonzero(table >= bound)
    values = table[rows, columns]
    order = np.lexsort((-values, rows))
    counts = np.bincount(rows, minlength=n_rows)
    first = order[(np.cumsum(counts) - counts)[:, None] + np.arange(n)]
    return columns[first], values[first] > -np.inf


def _take_out(table: np.ndarray, devices: Devices, users: np.ndarray, place_of: np.ndarray) -> None:
    """Set the scores of what each user has rated to minus infinity."""
    counts = np.diff(devices.rated_start)[users]
    rows = np.repeat(np.arange(len(users)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = place_of[devices.rated[np.repeat(devices.rated_start[users], counts) + offsets]]
    here = columns < table.shape[1]
    table[rows[here], columns[here]] = -np.inf


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    if len(ordered) == 0:
        return np.zeros(values.shape, bool)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[places] == values)
