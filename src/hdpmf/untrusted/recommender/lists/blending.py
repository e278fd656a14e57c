"""The weight of a list model beside popularity and taste, chosen on people who share.

A device adds what a list model says to what it would choose and like without one. How much that
should count depends on how many people the model has learned from. So it is tried: the model is
trained on some of those who share, and the lists of others, with some of their items held out, say
how good they are. All of it is in plain sight, so it costs no privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.taste import LIKE, taste
from hdpmf.untrusted.recommender.lists.ease import DENSE_ITEMS, STRENGTH, ease_scores
from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.lists.training import train_list_model

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

BLENDS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
"""What is tried."""

CAUTION = 1.0
"""Standard errors that a gain must exceed, so that few people do not choose by chance."""

HELD_OUT = 1 / 3
"""Of what a judge rated. With five items of each, gains are as noisy as blends differ: within
ML-1M's training part 3 % of people then choose .7 and the liberal .2, where .3 and .5 are best."""

NEARLY = 0.95
"""Of gains that are this part of the largest, that of the largest blend is taken: models are
trained on fewer people here, and judges keep fewer items, than in use, so that the best blend is a
little larger there."""

MOST, TRUST = 2.5, 200.0
"""The most that a model of n people may count is ``MOST`` n / (n + ``TRUST``): 9 people of ML-100K
once chose 1.4 by chance, and lists were a third worse."""

PAIRS = 50
"""People who rated m items on average, fewer than this, count as (m / ``PAIRS``)^2: they choose by
lists as short as their own, and what suits them does not suit others. The least active 9 % chose
.5 on ML-100K and 1.0 on ML-1M, and lists of all were .158 there; with .3 they are .184, and .188
without any sharers."""

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

    def scores(self, rows: csr_matrix) -> np.ndarray:
        """Scores of all items for people with these ratings."""
        scores = np.repeat((log_popularity(self.raters) + LIKE * self.bias)[None], rows.shape[0], 0)
        if self.columns is not None:
            scores += taste(rows, self.columns, self.raters) @ self.columns.T
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
    """Return how much a list model should count; 0 where it is not clear that it helps.

    It is the one of ``BLENDS`` with nearly the largest gain in NDCG over none, of those whose gain
    exceeds its standard error over people. Gains are averaged with those of the blends beside.
    ``ease`` is tried by ``_FOLDS`` folds of people, other kinds, which take longer to train, by
    one.

    Args:
        kind: The list model's.
        presence: Who rated what, of people who share.
        choosing: What it is added to.
        seed: Of the folds and of what is held out.
        on: As for ``train_list_model``.
        n_threads: As for ``train_list_model``.
    """
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
        added, usual = standardised(model_scores), choosing.scores(rows)
        usual[rows.nonzero()] = -np.inf
        found.append(np.column_stack([_ndcg(usual + blend * added, wanted) for blend in BLENDS]))
    rated = len(presence.users) / max(presence.n_users, 1)
    people = presence.n_users * min(1.0, rated / PAIRS) ** 2
    most = MOST * people / (people + TRUST)
    n_blends = int(np.searchsorted(BLENDS, most, side="right"))
    return BLENDS[_best(np.concatenate(found)[:, :n_blends])] if found else 0.0


def _best(ndcgs: np.ndarray) -> int:
    """Choose a column by gains over the first; rows are people."""
    if min(ndcgs.shape) < 2:
        return 0
    gains = ndcgs - ndcgs[:, :1]
    mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    beside = np.concatenate([mean, mean[-1:]])
    smooth = (beside[:-2] + 2.0 * beside[1:-1] + beside[2:]) / 4.0
    clear = np.concatenate([[0.0], np.where(smooth > CAUTION * error[1:], smooth, 0.0)])
    return int(np.flatnonzero(clear >= NEARLY * clear.max())[-1]) if clear.max() > 0 else 0


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
