"""The weight of a list model beside popularity and taste, chosen on people who share.

A device adds what a list model says to what it would choose and like without one. How much that
should count depends on how much the model has learned from: on how often two items were rated by
the same person. And it is tried: the model is trained on some of those who share, and the lists of
others, with some of their items held out, must not get worse. All of it is in plain sight, so it
costs no privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.taste import ALONG, LIKE, taste
from hdpmf.untrusted.recommender.lists.ease import DENSE_ITEMS, STRENGTH, ease_scores
from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.lists.training import train_list_model

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MOST, ENOUGH = 1.2, 2.0
"""A model counts ``MOST`` d / (d + ``ENOUGH``), d being how often two items are shown by the same
person (``density``). Chosen for lists of all people, by four ratings of each held out within the
training parts of ML-100K (12 draws of sharers: 1 %, 3 %, the liberal, 25 %, the most and the least
active, fans of horror) and ML-1M (3 %, the liberal): the best blend is .05 to .1 where d is .01 to
.3, .2 at .3 to .7, .5 to .7 at 1.5 to 1.8, .5 to 1.4 at 4 to 5, and in none of the 14 does this one
make lists worse than those of hdp-sum. What sharers' own held-out items say is noisier: by that
alone 9 people chose 1.4 once, where next to nothing was best."""

RATED = 200
"""No person counts as more ratings than this, so that one of thousands does not make it seem that
much is known: of 50, 100, 200 and all of them what the best blends of 19 draws were nearest to."""

HELD_OUT = 1 / 3
"""Of what a judge rated. Of five items of each, gains are as noisy as blends differ."""

_FOLDS = 5
_TOP = 10
_MOST_TEACHERS, _MOST_JUDGES = 2_000, 400  # of a fold: bounds time and memory


class Choosing(NamedTuple):
    """The order of items without a list model, as far as it is public.

    Attributes:
        raters: How often people choose items.
        bias: Of items, in stars.
        columns: What tastes are about, one row per item, or None.
    """

    raters: np.ndarray
    bias: np.ndarray
    columns: np.ndarray | None

    def scores(self, rows: csr_matrix, blend: float = 0.0) -> np.ndarray:
        """Scores of all items for people with these ratings, beside a model that counts so much."""
        like = (LIKE + ALONG * blend) * self.bias
        scores = np.repeat((log_popularity(self.raters) + like)[None], rows.shape[0], 0)
        if self.columns is not None:
            tastes = taste(rows, self.columns, self.raters)
            scores += (1.0 + ALONG * blend) * tastes @ self.columns.T
        return scores


def standardised(scores: np.ndarray) -> np.ndarray:
    """Scores of a list model, each row with mean 0 and deviation 1; zeros where all are equal."""
    spread = scores.std(axis=1, keepdims=True)
    return np.asarray(
        (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    )


def choose_blend(
    kind: str,
    presence: Presence,
    choosing: Choosing,
    *,
    seed: int = 0,
    on: str = "cpu",
    n_threads: int | None = None,
) -> float:
    """Return how much a list model should count; 0 where it does not help.

    It is what suits a model of so many pairs of items, or half of it or nothing where lists of
    those who share get worse by that. ``ease`` is tried by ``_FOLDS`` folds of people, other kinds,
    which take longer to train, by one.

    Args:
        kind: The list model's.
        presence: Who rated what, of people who share.
        choosing: What it is added to.
        seed: Of the folds and of what is held out.
        on: As for ``train_list_model``.
        n_threads: As for ``train_list_model``.
    """
    known = density(presence, choosing.raters)
    most = round(MOST * known / (known + ENOUGH), 2)
    if most == 0.0:
        return 0.0
    tried = (0.0, most / 2.0, most)
    fold = np.random.default_rng(seed).permutation(presence.n_users) % _FOLDS
    found = []
    for number in range(_FOLDS if kind == "ease" else 1):
        judges = np.flatnonzero(fold == number)[:_MOST_JUDGES]
        kept, held = _hold_out(_of(presence, judges), seed)
        judges = np.unique(held.users)
        if len(judges) == 0:
            continue
        teachers = _of(presence, np.flatnonzero(fold != number)[:_MOST_TEACHERS])
        rows, wanted = kept.matrix[judges], held.matrix[judges]
        if kind == "ease":
            heads = np.sort(np.argsort(-teachers.raters, kind="stable")[:DENSE_ITEMS])
            model_scores = np.zeros(rows.shape)
            model_scores[:, heads] = ease_scores(teachers.only(heads), rows[:, heads], STRENGTH)
        else:
            model = train_list_model(kind, teachers, seed=seed, on=on, n_threads=n_threads)
            model_scores = model.many(rows)
        added, columns = standardised(model_scores), []
        for blend in tried:
            scores = choosing.scores(rows, blend) + blend * added
            scores[rows.nonzero()] = -np.inf
            columns.append(_ndcg(scores, wanted))
        found.append(np.column_stack(columns))
    return tried[_largest(np.concatenate(found))] if found else 0.0


def density(presence: Presence, raters: np.ndarray) -> float:
    """Return how often two items were rated by the same person, on average over items that count.

    Of a catalogue most items count little: n items of equal popularity have n^2 / 2 pairs, and as
    many as that have others of the same sum of squared shares.

    Args:
        presence: Who rated what, of people who share.
        raters: How often people choose items.
    """
    counts = np.minimum(np.bincount(presence.users, minlength=1), RATED).astype(np.float64)
    shares = raters / max(float(raters.sum()), 1e-9)
    return float((counts * (counts - 1.0)).sum() * (shares**2).sum() ** 2)


def _largest(ndcgs: np.ndarray) -> int:
    """Choose the last column that is not worse than the first on average; rows are people.

    To want a clear gain would cost more than it guards from: lists of 85 people whose model
    gains .02 for everybody showed .004, give or take .013, within ML-100K's training part.
    """
    if len(ndcgs) < 2:
        return 0
    gains = (ndcgs - ndcgs[:, :1]).mean(axis=0)
    return int(np.flatnonzero(gains >= 0)[-1])


def _hold_out(presence: Presence, seed: int) -> tuple[Presence, Presence]:
    """Part the pairs: a share of each user's is held out, and at least one is kept."""
    order = np.lexsort((np.random.default_rng(seed).random(len(presence.users)), presence.users))
    counts = np.bincount(presence.users, minlength=presence.n_users)
    position = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.zeros(len(order), bool)
    held[order] = position < np.repeat(np.floor(HELD_OUT * counts), counts)
    return presence.take(~held), presence.take(held)


def _of(presence: Presence, users: np.ndarray) -> Presence:
    """The pairs of some users, who keep their numbers."""
    chosen = np.zeros(presence.n_users, bool)
    chosen[users] = True
    return presence.take(chosen[presence.users])


def _ndcg(scores: np.ndarray, wanted: csr_matrix) -> np.ndarray:
    """NDCG of each row's first ten."""
    top = np.argpartition(-scores, min(_TOP, scores.shape[1] - 1), axis=1)[:, :_TOP]
    order = np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable")
    top = np.take_along_axis(top, order, 1)
    found = np.take_along_axis(wanted.toarray(), top, 1) > 0
    discounts = 1.0 / np.log2(np.arange(2, _TOP + 2))
    best = np.cumsum(discounts)[np.minimum(np.diff(wanted.indptr), _TOP) - 1]
    return np.asarray(found @ discounts[: top.shape[1]] / best)
