"""Ranking metrics: how good a model's lists are.

The protocol, the same for every method:

- *Users*: those with a training rating and at least one relevant test rating.
- *Relevant*: test ratings in the top quarter of the scale (4 and 5 stars of 1 to 5); of choices
  without ratings every one. All of them count, also of items that no method could know.
- *Candidates*: every item that has a training rating and that the model learned something about,
  except those that the user rated in training.
- *Order*: by the model's score for lists; equal scores in the order of the catalogue.
- *NDCG@n*: gain 1 for a relevant item at rank p, discounted by log2(p + 1), over the best that
  ``n`` ranks allow; mean over users.
- *Recall@n*: relevant items among the first ``n``, over all relevant ones; mean over users.
- *Precision@n*: relevant items among the first ``n``, over ``n``. *Hit rate@n*: users with at least
  one of them.
- *MAP@n*: mean over users of the precision at each relevant rank, summed and divided by the
  relevant items (``n`` at most). *MRR@n*: 1 over the rank of the first relevant item, 0 without
  one.
- *Coverage@n*: items in the first ``n`` of any of these users, over all items with a training
  rating.
- *Popularity@n*: how many raters the listed items have in training, on average; the smaller, the
  more is new to people.
- *Gini@n*: how unequally items share the ranks of all lists: 0 if all candidates are listed
  equally often.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.data.checks import check_length
from hdpmf.errors import RatingsError
from hdpmf.private.client import Devices


def best_of(table: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of each row's ``n`` largest scores, best first, equal ones in order.

    Returns:
        The columns, and a mask of those in the list: a score of minus infinity is not.
    """
    n = min(n, table.shape[1])
    columns = np.zeros((len(table), n), np.int64)
    values = np.full((len(table), n), -np.inf, table.dtype)
    if n:
        _best_of(np.ascontiguousarray(table), columns, values)
    return columns, values > -np.inf


@njit(cache=True, nogil=True)
def _best_of(table: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    last = columns.shape[1] - 1
    for row in range(len(table)):
        scores, best, found = table[row], values[row], columns[row]
        least = best[last]
        for column in range(len(scores)):
            score = scores[column]
            if score > least:  # rare after the first few: it is inserted before what is smaller
                position = last
                while position > 0 and best[position - 1] < score:
                    best[position], found[position] = best[position - 1], found[position - 1]
                    position -= 1
                best[position], found[position] = score, column
                least = best[last]


TOP_SHARE = 0.25
"""Relevant is a rating in this top share of the scale."""

_BLOCK_SCORES = 1 << 20  # what fits into a processor's cache

_BLOCK_USERS = 64  # fewer would read the items' side too often for a matrix product

_MOST_SCORES = 1 << 23  # 64 MB: what a block may take even so

Scores = Callable[[np.ndarray], np.ndarray]
"""Scores of all items, one row for each of these users. They are overwritten."""


def relevant_from(scale: RatingScale) -> float:
    """The lowest rating that counts as relevant."""
    return scale.high - TOP_SHARE * scale.width


PER_USER = ("ndcg", "recall", "precision", "map", "mrr", "hit_rate")
"""Metrics that every user has a value of."""

METRICS = (*PER_USER, "coverage", "popularity", "gini")
"""All metrics, in the order of tables."""

_SURE = 1.959964  # standard deviations on either side of a mean for 95 %


@dataclass(frozen=True, eq=False, repr=False)
class ListQuality:
    """The quality of some users' lists.

    Attributes:
        users: Positions of the users.
        values: By the names in ``PER_USER``, one number per user.
        listed: How many lists each candidate is in.
        raters: How many people rated each candidate in training.
        n_rated: How many items anybody rated in training.
    """

    users: np.ndarray
    values: dict[str, np.ndarray]
    listed: np.ndarray
    raters: np.ndarray
    n_rated: int

    def summary(self) -> dict[str, float | int]:
        """Return all ``METRICS``, margins, and the number of users as ``n_users``.

        ``NAME_margin`` is half of the 95 % interval of a mean over users.
        """
        total = max(int(self.listed.sum()), 1)
        return (
            {name: float(np.mean(values)) for name, values in self.values.items()}
            | {
                "coverage": float((self.listed > 0).sum() / self.n_rated),
                "popularity": float((self.listed * self.raters).sum() / total),
                "gini": _gini(self.listed),
            }
            | {f"{name}_margin": _margin(values) for name, values in self.values.items()}
            | {"n_users": len(self.users)}
        )


def users_at_once(n_items: int) -> int:
    """Return how many users are scored in one block.

    Peak memory is that of a block, however many users there are.
    """
    wished = max(_BLOCK_SCORES // max(1, n_items), _BLOCK_USERS)
    return max(1, min(wished, _MOST_SCORES // max(1, n_items)))


def rank(
    devices: Devices,
    candidates: np.ndarray,
    scores: Scores,
    test: Ratings,
    items: np.ndarray,
    n: int,
) -> ListQuality:
    """Make everybody's list and measure it; see the module.

    Args:
        devices: The users and what they rated in training.
        candidates: Which items of the catalogue may be recommended.
        scores: Gives the scores of all items for some users.
        test: Test ratings.
        items: Catalogue position of each of the test's items, -1 for an unknown one.
        n: Length of the lists.
    """
    check_length(n)
    users = devices.users.find(test.users.ids)
    liked = np.flatnonzero(test.values >= relevant_from(test.scale))
    liked_users, liked_items = users[test.user_codes[liked]], items[test.item_codes[liked]]
    known = liked_users >= 0
    known[known] = np.diff(devices.rated_start)[liked_users[known]] > 0
    liked_users, liked_items = liked_users[known], liked_items[known]
    if len(liked_users) == 0:
        raise RatingsError(
            "no user who is known from training has a test rating of "
            f"{relevant_from(test.scale):g} or more, so there is nothing to rank for"
        )
    ranked, n_liked = np.unique(liked_users, return_counts=True)
    # One number per relevant pair; what is unknown (-1) has the place after the last item, which is
    # in no list.
    width, barred = len(candidates), np.flatnonzero(~candidates)
    pairs = np.sort(
        liked_users.astype(np.int64) * (width + 1) + np.where(liked_items < 0, width, liked_items)
    )
    discounts = 1.0 / np.log2(np.arange(2, n + 2))
    best = np.cumsum(discounts)[np.minimum(n_liked, n) - 1]
    values = {name: np.empty(len(ranked)) for name in PER_USER}
    listed_times = np.zeros(width, np.int64)
    step = users_at_once(width)
    for first in range(0, len(ranked), step):
        here = slice(first, first + step)
        block, liked_here = ranked[here], n_liked[here]
        table = scores(block)
        table[:, barred] = -np.inf
        _take_out(table, devices, block)
        top, listed = best_of(table, n)
        listed_times += np.bincount(top[listed], minlength=width)
        found = listed & _among(block[:, None].astype(np.int64) * (width + 1) + top, pairs)
        hits = found.sum(axis=1)
        precisions = found * found.cumsum(axis=1) / np.arange(1, top.shape[1] + 1)
        values["ndcg"][here] = found @ discounts[: top.shape[1]] / best[here]
        values["recall"][here] = hits / liked_here
        values["precision"][here] = hits / n
        values["map"][here] = precisions.sum(axis=1) / np.minimum(liked_here, n)
        values["mrr"][here] = np.where(hits > 0, 1.0 / (1.0 + found.argmax(axis=1)), 0.0)
        values["hit_rate"][here] = hits > 0
    raters = np.bincount(devices.rated, minlength=width)
    return ListQuality(
        ranked,
        values,
        listed_times[candidates],
        raters[candidates],
        int((raters > 0).sum()),
    )


def _margin(values: np.ndarray) -> float:
    return float(_SURE * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _gini(times: np.ndarray) -> float:
    n, total = len(times), int(times.sum())
    if total == 0:
        return 0.0
    return float((2.0 * np.arange(1, n + 1) - n - 1) @ np.sort(times) / (n * total))


def _take_out(table: np.ndarray, devices: Devices, users: np.ndarray) -> None:
    """Set the scores of what each user has rated to minus infinity."""
    counts = np.diff(devices.rated_start)[users]
    rows = np.repeat(np.arange(len(users)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    table[rows, devices.rated[np.repeat(devices.rated_start[users], counts) + offsets]] = -np.inf


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    if len(ordered) == 0:
        return np.zeros(values.shape, bool)
    positions = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[positions] == values)
