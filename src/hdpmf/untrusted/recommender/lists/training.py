"""Pairs of user and item, list models by name, and those of linear algebra.

No rating's value and no test set is used: epochs and constants are chosen by held-out pairs.

EASE predicts each item from all others by ridge regression, in closed form (Steck 2019). The
regularisation grows with the root of how often an item was rated. The matrix has n_items squared
entries, too many for a device. A reduced-rank regression keeps the directions that matter for the
predictions (not for the matrix), and the largest entries that it misses are kept one by one.
Everything is in 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.methods.options import LIST_KINDS
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.errors import ConfigError, needs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


DAMPING = 20.0
"""Raters added to every item where items are compared, so that pairs of rare ones do not look
alike by chance.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Presence:
    """Pairs of user and item, each once."""

    users: np.ndarray
    items: np.ndarray
    n_users: int
    n_items: int

    @cached_property
    def matrix(self) -> csr_matrix:
        """0/1, one row per user."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self.users), np.float32)
        return csr_matrix((ones, (self.users, self.items)), shape=(self.n_users, self.n_items))

    @cached_property
    def raters(self) -> np.ndarray:
        """The number of users who rated each item."""
        return np.bincount(self.items, minlength=self.n_items)

    def gram(self) -> np.ndarray:
        """Return how many users rated both of two items."""
        return np.asarray((self.matrix.T @ self.matrix).todense(), np.float64)

    def only(self, heads: np.ndarray) -> Presence:
        """Return the pairs of some items (positions, ascending), with items renumbered."""
        positions = np.searchsorted(heads, self.items)
        known = heads[np.minimum(positions, len(heads) - 1)] == self.items
        return Presence(self.users[known], positions[known], self.n_users, len(heads))

    def hold_out(self, per_user: int, seed: int) -> tuple[Presence, Presence]:
        """Return the pairs to train on, and ``per_user`` held-out pairs of each user with enough.

        Enough is more than twice ``per_user``.
        """
        order = np.lexsort((np.random.default_rng(seed).random(len(self.users)), self.users))
        counts = np.bincount(self.users, minlength=self.n_users)
        position = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        apart = order[(position < per_user) & (np.repeat(counts, counts) > 2 * per_user)]
        chosen = np.zeros(len(order), bool)
        chosen[apart] = True
        return self.take(~chosen), self.take(chosen)

    def take(self, which: np.ndarray) -> Presence:
        """Return some of the pairs; users and items keep their numbers."""
        return Presence(self.users[which], self.items[which], self.n_users, self.n_items)


HELD_OUT = 3

PATIENCE = 4

_USERS = 1_000

_BLOCK = 250  # users scored at once

_TOP = 10


class Training(Protocol):
    """Something that is trained epoch by epoch."""

    def epoch(self) -> None:
        """Train for one more epoch."""

    def model(self) -> ListModel:
        """Return the model as it is now, for devices."""


def train_to_best(
    presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int
) -> ListModel:
    """The model of all pairs after as many epochs as are best for pairs held out."""
    chosen = best_epoch(presence, begin, epochs, seed)
    training = begin(presence)
    for _ in range(chosen):
        training.epoch()
    model = training.model()
    model.about.update(epochs=chosen)
    return model


def best_epoch(
    presence: Presence, begin: Callable[[Presence], Training], epochs: int, seed: int
) -> int:
    """Return the number of epochs that is best for held-out pairs, by early stopping.

    Without pairs to hold out it is ``epochs``.
    """
    train, held = presence.hold_out(HELD_OUT, seed)
    if len(held.users) == 0:
        return epochs
    training = begin(train)
    best, chosen = -1.0, 1
    for number in range(1, epochs + 1):
        training.epoch()
        found = ndcg(training.model(), train, held, seed)
        if found > best:
            best, chosen = found, number
        elif number - chosen >= PATIENCE:
            break
    return chosen


def ndcg(model: ListModel | _Beside, train: Presence, held: Presence, seed: int) -> float:
    """Measure how well lists find what was held out, over some users."""
    users = np.unique(held.users)
    if len(users) > _USERS:
        users = np.random.default_rng(seed).choice(users, _USERS, replace=False)
    discounts = 1.0 / np.log2(np.arange(2, _TOP + 2))
    total = 0.0
    for block in np.array_split(users, -(-len(users) // _BLOCK)) if len(users) else []:
        rated, wanted = train.matrix[block], held.matrix[block]
        scores = model.many(rated)
        scores[rated.nonzero()] = -np.inf
        top = np.argpartition(-scores, min(_TOP, scores.shape[1] - 1), axis=1)[:, :_TOP]
        top = np.take_along_axis(
            top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1
        )
        found = np.take_along_axis(wanted.toarray(), top, 1) > 0
        best = np.cumsum(discounts)[np.minimum(np.diff(wanted.indptr), _TOP) - 1]
        total += float((found @ discounts[: top.shape[1]] / best).sum())
    return total / max(len(users), 1)


FEW = 100.0
"""At how many rated items a list model's scores count less by root two than they do at most: of 10,
20 and 100 best for people with 1, 3 and 5 ratings, held out within the training parts of ML-100K
and of four worlds."""

_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def weight_beside_popularity(kind: str, presence: Presence, seed: int = 0) -> float:
    """Return how much deviations of a list model's scores count beside log popularity.

    The best of some for pairs held out; 1 where there are none to hold out.
    """
    train, held = presence.hold_out(HELD_OUT, seed)
    if len(held.users) == 0:
        return 1.0
    model = train_list_model(kind, train, seed=seed)
    found = {w: ndcg(_Beside(model, train.raters, w), train, held, seed) for w in _WEIGHTS}
    return max(_WEIGHTS, key=lambda weight: found[weight])


@dataclass(frozen=True, eq=False, repr=False)
class _Beside:
    """A list model beside popularity."""

    lists: ListModel
    raters: np.ndarray
    weight: float

    def many(self, own: csr_matrix) -> np.ndarray:
        """Scores of all items for many users."""
        heads = np.arange(self.lists.n_items) if self.lists.heads is None else self.lists.heads
        known = self.lists.many_known(own)
        deviation = np.maximum(known.std(axis=1, keepdims=True), 1e-12)
        rated = own[:, heads].getnnz(axis=1)[:, None]
        scores = np.repeat(log_popularity(self.raters)[None], own.shape[0], axis=0)
        trust = self.weight * np.sqrt(rated / (rated + FEW))
        scores[:, heads] += trust * (known - known.mean(axis=1, keepdims=True)) / deviation
        return scores


NEIGHBOURS = 200
"""Best of 20, 50, 200 and 500 on ratings held out within ML-100K (NDCG@10 .163, .166, .189, .180)
and ML-1M (.129, .131, .138, .137): ``python benchmarks/constants.py --only neighbours --users 1500
--seeds 2``."""


def popular_lists(popularity: np.ndarray) -> ListModel:
    """Return one order for everybody: by how often items are chosen."""
    n = len(popularity)
    order = log_popularity(popularity).astype(np.float32)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    return ListModel("linear", empty, empty, Entries.none(n), order)


def train_knn(presence: Presence, *, neighbours: int = NEIGHBOURS) -> ListModel:
    """Build nearest neighbours: for each item its most similar ones, by the damped cosine."""
    n = presence.n_items
    gram = presence.gram()
    length = np.sqrt(np.diag(gram) + DAMPING)
    similar = gram / length[:, None] / length
    np.fill_diagonal(similar, 0.0)
    empty = Bytes(np.zeros((n, 0), np.int8), np.zeros(0, np.float32))
    entries = Entries.largest(similar, min(neighbours, n - 1))
    return ListModel("linear", empty, empty, entries, np.zeros(n, np.float32))


_REGS = (2.0, 5.0, 10.0, 20.0, 40.0)

_RATED = 2.0
"""Confidence of a rated item beside 1 of all others."""


def train_ials(
    presence: Presence,
    *,
    rank: int = 64,
    reg: float | None = None,
    epochs: int = 5,
    seed: int = 0,
) -> ListModel:
    """Train implicit alternating least squares by ``implicit``, on one thread.

    Args:
        rank: Length of the vectors.
        reg: Regularisation. None: the best one of some for pairs held out.
        epochs: Passes over users and items.
        seed: Of the first vectors.
    """
    if reg is None:
        train, held = presence.hold_out(HELD_OUT, seed)
        found = {
            reg: ndcg(_ials(train, rank, reg, epochs, seed), train, held, seed) for reg in _REGS
        }
        reg = max(_REGS, key=lambda reg: found[reg])
    return _ials(presence, rank, reg, epochs, seed)


def _ials(presence: Presence, rank: int, reg: float, epochs: int, seed: int) -> ListModel:
    with needs("implicit", "bench"):
        from implicit.cpu.als import AlternatingLeastSquares
    rank = min(rank, presence.n_items)
    with one_blas_thread():
        training = AlternatingLeastSquares(
            rank,
            regularization=reg,
            alpha=_RATED,
            iterations=epochs,
            num_threads=1,
            random_state=seed,
        )
        training.fit(presence.matrix, show_progress=False)
    return ListModel(
        "factors",
        Bytes(np.zeros((0, rank), np.int8), np.ones(rank, np.float32)),
        Bytes.of(training.item_factors),
        Entries.none(presence.n_items),
        np.zeros(presence.n_items, np.float32),
        (reg, 1.0),
        about={"kind": "ials", "epochs": epochs, "reg": reg},
    )


STRENGTH = 40.0
"""Regularisation of an item is this times the root of its raters: best of 10 to 160 on ratings held
out within the training parts of ML-100K and ML-1M (NDCG@10 .2186 and .1867)."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemItem:
    """An item-item matrix, and what its compression needs.

    Attributes:
        matrix: B; its diagonal is zero.
        importance: B^T (G + Lambda) B: which directions of outputs carry the predictions.
    """

    matrix: np.ndarray
    importance: np.ndarray


@one_blas_thread()  # with more the last digits, and what is kept by them, depend on their number
def item_item(presence: Presence, strength: float = STRENGTH) -> ItemItem:
    """Return the item-item matrix."""
    from scipy.linalg.lapack import dpotrf, dpotri

    n = presence.n_items
    system = presence.gram()
    system[np.diag_indices(n)] += strength * np.sqrt(np.maximum(presence.raters, 1))
    factor, failed = dpotrf(system, lower=1)
    inverse, failed_too = dpotri(factor, lower=1)
    if failed or failed_too:
        raise ConfigError("the item-item regression is singular; use a larger regularisation")
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    scale = 1.0 / np.diag(inverse)
    # B = I - P D with P the inverse and D = diag(1 / P_jj); then B^T (G + Lambda) B = G + Lambda -
    # 2 D + D P D.
    importance = system + scale[:, None] * inverse * scale
    importance[np.diag_indices(n)] -= 2.0 * scale
    matrix = -inverse * scale
    np.fill_diagonal(matrix, 0.0)
    return ItemItem(matrix, importance)


@one_blas_thread()  # products of the matrix with one vector after the other
def compress(whole: ItemItem, rank: int, per_item: int) -> ListModel:
    """Return the nearest model of ``rank`` directions and ``per_item`` entries, in 8 bits."""
    n = whole.matrix.shape[0]
    rank = min(rank, n)
    if 4 * rank < n:
        from scipy.sparse.linalg import eigsh

        _, directions = eigsh(whole.importance, k=min(rank, n - 1), v0=np.ones(n))
    else:  # with this many directions it is faster to find all of them
        directions = np.linalg.eigh(whole.importance)[1][:, n - rank :]
    encode, decode = Bytes.of(np.asarray(whole.matrix @ directions)), Bytes.of(directions)
    entries = Entries.none(n)
    if per_item:
        missed = whole.matrix - encode.rows(np.arange(n)) @ decode.rows(np.arange(n)).T
        np.fill_diagonal(missed, 0.0)
        entries = Entries.largest(missed, min(per_item, n - 1))
    return ListModel("linear", encode, decode, entries, np.zeros(n, np.float32))


def train_ease(
    presence: Presence, *, rank: int = 128, per_item: int = 10, strength: float = STRENGTH
) -> ListModel:
    """EASE, small enough for a device.

    Args:
        rank: Directions that are kept.
        per_item: Single entries of each item that are kept besides.
    """
    return compress(item_item(presence, strength), rank, per_item)


MOST_ITEMS = dict.fromkeys(("ease", "bpr", "knn"), 5_000)
"""The most items that these take: of larger catalogues the most rated ones, because devices have
to hold them and an item-item matrix of 5,000 has 0.2 GB. What is left out is what few people rated
(docs/lists.md has what it costs)."""

LIST_MODELS = (*LIST_KINDS, "knn")


def train_list_model(kind: str, presence: Presence, *, seed: int = 0, **options: Any) -> ListModel:
    """Train a model for lists.

    Args:
        kind: One of ``LIST_MODELS``.
        seed: Where something is drawn.
        **options: Of that kind; see its module.
    """
    most = MOST_ITEMS.get(kind, presence.n_items)
    if presence.n_items > most:
        # Only of the most rated items; others come last.
        heads = np.sort(np.argsort(-presence.raters, kind="stable")[:most]).astype(np.int32)
        model = train_list_model(kind, presence.only(heads), seed=seed, **options)
        return replace(model, heads=heads, n_items=presence.n_items)
    if kind == "ease":
        model = train_ease(presence, **options)
    elif kind == "ials":
        model = train_ials(presence, seed=seed, **options)
    elif kind == "bpr":
        from hdpmf.untrusted.recommender.lists.bpr import train_bpr

        model = train_bpr(presence, seed=seed, **options)
    elif kind == "knn":
        model = train_knn(presence, **options)
    elif kind == "popular":
        model = popular_lists(presence.raters)
    else:
        raise ConfigError(
            f"there is no model {kind!r} for lists; choose from {', '.join(LIST_MODELS)}"
        )
    model.about.setdefault("kind", kind)
    return model
