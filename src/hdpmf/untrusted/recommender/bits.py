"""From released bits to item facts. Post-processing only: changing it costs no privacy.

Who rated what is visible in this design, so it is used: how often items were rated, how
similar they are by who rated them, and factors of who rates what with whom. Everything is in stars:
a rating scale is mapped to one to five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import NOISE, device_columns, log_popularity
from hdpmf.common.privacy.coding import WEIGHT_UNITS, bit_height, typical_curve
from hdpmf.common.protocol import BitContribution, ItemFacts, Survey
from hdpmf.common.protocol.messages import MAX_SIMILAR_ITEMS, Similarity
from hdpmf.errors import ProtocolError
from hdpmf.untrusted.recommender.lists.training import Presence
from hdpmf.untrusted.recommender.sums import MIDDLE, STARS, coding_of, item_facts

_DAMPING = 5.0  # raters added to every item, so that one with few cannot dominate a factor

_LIMIT = 3.0


@one_blas_thread()
def rating_patterns(
    users: np.ndarray, items: np.ndarray, n_items: int, n_patterns: int
) -> np.ndarray:
    """Item factors of the 0/1 matrix of ratings, scaled to variance 1 over ratings.

    The matrix is divided by the root of its row and column sums; the first singular vector, which
    is only popularity, is left out.
    """
    n_users = int(users.max()) + 1 if len(users) else 0
    wanted = min(n_patterns, min(n_users, n_items) - 3)
    if wanted < 1:
        return np.zeros((n_items, 0))
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import ArpackError, svds

    raters = np.bincount(items, minlength=n_items)
    by_user = 1.0 / np.sqrt(np.maximum(np.bincount(users, minlength=n_users), 1))
    by_item = 1.0 / np.sqrt(raters + _DAMPING)
    matrix = coo_matrix(
        (by_user[users] * by_item[items], (users, items)), shape=(n_users, n_items)
    ).tocsr()
    start = np.sqrt(raters + 1.0) if n_items <= n_users else np.ones(n_users)
    try:
        _, sizes, vectors = svds(matrix, k=wanted + 1, v0=start)
    except ArpackError:  # few people of few kinds: the iteration ends early, so find all of them
        _, sizes, vectors = np.linalg.svd(matrix.toarray(), full_matrices=False)
    factors = vectors[np.argsort(-sizes)[1 : wanted + 1]].T * by_item[:, None]
    # The sign of a singular vector is arbitrary: take the one that the most-rated item has
    # positive.
    factors *= np.where(factors[int(np.argmax(raters))] < 0, -1.0, 1.0)
    factors -= np.average(factors, axis=0, weights=raters)
    factors /= np.maximum(np.sqrt(np.average(factors**2, axis=0, weights=raters)), 1e-9)
    return np.asarray(np.clip(factors, -_LIMIT, _LIMIT))


COLUMNS = 128
"""With 256, held-out errors are 0.0003 to 0.0014 less on ML-1M and 0.0014 to 0.0024 more on
ML-100K (two seeds).
"""

CLOSE, SHARED, DAMPING = 1.5, 0.02, 5.0
"""Chosen on ratings held out within the training parts of ML-100K and ML-1M (docs/designs.md), out
of CLOSE .45 to 3.6, shares of C .3 to 1, SHARED 0 to .04, DAMPING 5 to 60."""

_PASSES, _SPARE = (
    8,
    32,
)  # 4 passes cost 0.0015 to 0.0025 on ratings held out, exact eigenvectors gain nothing


class Similar(NamedTuple):
    """The similarity of the most-rated items.

    Attributes:
        items: Their positions, ascending.
        columns: One row for each of them; all of them have variance 1 over users.
        rest: Variance that is each item's own.
    """

    items: np.ndarray
    columns: np.ndarray
    rest: np.ndarray


def similar_items(presence: Presence, patterns: np.ndarray) -> Similar:
    """Return the similarity of items, from who rated what.

    Only the ``MAX_SIMILAR_ITEMS`` most rated items have any, which bounds the memory.

    Args:
        patterns: Of who rates what with whom.
    """
    most = np.argsort(-presence.raters, kind="stable")[:MAX_SIMILAR_ITEMS]
    items = np.sort(most[presence.raters[most] > 0])
    known = presence.only(items)
    together = known.gram().astype(np.float32)
    scale = 1.0 / np.sqrt(known.raters + DAMPING).astype(np.float32)
    together *= scale[:, None]
    together *= scale
    shared = patterns[items].astype(np.float32)
    kernel = (CLOSE / 2.0) * (together + together**3) + SHARED * (shared @ shared.T)
    # Columns are for what people rate: an item counts by the root of its raters.
    importance = (known.raters + 1.0).astype(np.float32) ** 0.25
    kernel *= importance[:, None]
    kernel *= importance
    columns = _leading(kernel, min(COLUMNS, len(items))) / importance[:, None]
    whole = CLOSE + SHARED * (shared**2).sum(1)
    return Similar(items, columns, np.maximum(whole - (columns**2).sum(1), 0.0))


@one_blas_thread()
def _leading(kernel: np.ndarray, rank: int) -> np.ndarray:
    """Return F of ``rank`` columns with F F^T close to the kernel, by subspace iteration.

    It starts from fixed random vectors.
    """
    n = len(kernel)
    basis = np.random.default_rng(0).standard_normal((n, min(rank + _SPARE, n)), np.float32)
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(kernel @ basis)
    values, directions = np.linalg.eigh((basis.T @ (kernel @ basis)).astype(np.float64))
    kept = np.argsort(-values)[:rank]
    return np.asarray((basis @ directions[:, kept]) * np.sqrt(np.maximum(values[kept], 0.0)))


MOST_ROUNDS = 32
"""Of expectation maximisation: as many as the variance of a bit in stars squared (36 at epsilon 1,
5 at 16). The more noise, the smaller a step is. On ratings held out within the training parts, at
epsilon 1, twice as many cost 0.007 and 0.004 on ML-100K and gain 0.001 on ML-1M; at 2 to 16
(ML-100K, one seed) the best of 2, 4, 8, 16 is near."""

MOST_USERS = 20_000
"""The number of users that is enough to learn from."""

_AT_A_TIME = 1 << 16


class StarBits(NamedTuple):
    """Released bits in stars, each about one rating.

    Attributes:
        users: Who sent it, counted from 0.
        values: What it says of the rating without the mean rating, unbiased.
        variance: How uncertain that is.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    variance: np.ndarray

    def only(self, kept: np.ndarray) -> StarBits:
        """Return the bits that a mask keeps."""
        return StarBits(*(column[kept] for column in self))

    def of_some(self, n_users: int) -> StarBits:
        """Return the bits of at most ``n_users`` users, evenly chosen."""
        total = int(self.users.max()) + 1
        if total <= n_users:
            return self
        position = np.full(total, -1)
        position[np.linspace(0, total - 1, n_users).astype(np.int64)] = np.arange(n_users)
        kept = position[self.users] >= 0
        return StarBits(position[self.users][kept], *(column[kept] for column in self[1:]))


def learn_columns(
    bits: StarBits,
    fixed: np.ndarray,
    ridges: np.ndarray,
    columns: np.ndarray,
) -> np.ndarray:
    """Scale columns by the root of their covariance: vectors have variance 1 along each.

    A user's information is taken as what all users rate together, times how much the user's bits
    tell; then a round takes a product of matrices instead of an inverse for every user.

    Args:
        bits: What users said, without what item biases explain.
        fixed: Columns whose spread is given, one row per item.
        ridges: Their precisions.
        columns: Those whose covariance is learned; it starts as the identity.
    """
    bits = bits.of_some(MOST_USERS)
    n_users, n_fixed = int(bits.users.max()) + 1, fixed.shape[1]
    features = np.column_stack([fixed, columns])
    told = 1.0 / bits.variance
    amount = np.bincount(bits.users, told, n_users)
    per_item = np.bincount(bits.items, told, len(features))
    information = features.T @ (features * per_item[:, None]) / per_item.sum()
    evidence = _sums_by_user(bits, told * bits.values, features, n_users)
    covariance = np.diag(np.concatenate([1.0 / ridges, np.ones(columns.shape[1])]))
    for _ in range(min(MOST_ROUNDS, round(1.0 / float(told.mean())))):
        root = np.linalg.cholesky(covariance)
        sizes, directions = np.linalg.eigh(root.T @ information @ root)
        basis = root @ directions
        uncertainty = 1.0 / (1.0 + amount[:, None] * np.maximum(sizes, 0.0))
        vectors = uncertainty * (evidence @ basis)
        spread = basis @ (vectors.T @ vectors + np.diag(uncertainty.sum(0))) @ basis.T
        covariance[n_fixed:, n_fixed:] = spread[n_fixed:, n_fixed:] / n_users
    return np.asarray(columns @ np.linalg.cholesky(covariance[n_fixed:, n_fixed:]))


def learn_pull(bits: StarBits, columns: np.ndarray, centre: np.ndarray) -> float:
    """Learn how far user vectors are drawn to the mean columns of their items; at least 0.

    It is found by least squares on bits.

    Args:
        bits: What users said, without what item biases explain.
        columns: One row per item.
        centre: The mean of the columns over all ratings, from which the user's own mean is counted.
    """
    bits = bits.of_some(MOST_USERS)
    n_users = int(bits.users.max()) + 1
    counts = np.maximum(np.bincount(bits.users, minlength=n_users), 1)
    own = _sums_by_user(bits, np.ones(len(bits.users)), columns, n_users) / counts[:, None]
    own -= centre
    fits, total = 0.0, 1.0  # as if once before a pull of 0 had been seen, give or take 1
    for begin in range(0, len(bits.users), _AT_A_TIME):
        part = slice(begin, begin + _AT_A_TIME)
        likely = np.einsum("nk,nk->n", columns[bits.items[part]], own[bits.users[part]])
        told = 1.0 / (bits.variance[part] + 1.0)
        fits += float((told * likely * bits.values[part]).sum())
        total += float((told * likely**2).sum())
    return max(fits / total, 0.0)


def _sums_by_user(
    bits: StarBits, weights: np.ndarray, columns: np.ndarray, n_users: int
) -> np.ndarray:
    from scipy.sparse import csr_matrix

    return np.asarray(
        csr_matrix((weights, (bits.users, bits.items)), shape=(n_users, len(columns))) @ columns
    )


_SPREAD, _STEADY_ITEMS = 0.05, 30.0
"""First variance of item biases around what columns predict (stars squared), and how many items it
counts like.
"""

_EXPLAINED = 0.02  # what each group of columns explains of it, to begin with

_LEVEL = 0.1
"""Variance of the level of biases: items in general against items as they are rated."""

_HELD = 3.0
"""How many coefficients the first variance of a group counts like. Of ``_EXPLAINED`` from .3 to .02
and 0 to 10 of these, best or near it on ratings held out within the training parts of ML-100K and
of seven worlds (MSE at epsilon .1 on ML-100K .923; .944 with .3 and 0)."""

_ROUNDS = 30

_TEACHING_ITEMS = 4096  # those with most bits; others have little to say


def facts_from_bits(
    survey: Survey,
    answer: BitContribution,
    features: ItemFeatures | None,
    n_patterns: int | None = None,
) -> ItemFacts:
    """Item facts from bits: a bias per item and, with patterns, how similar items are.

    Args:
        n_patterns: How many factors of who rates what with whom to look for; 0 does not use who
            rated what. None: ``PATTERNS``, and bits say how much similarity counts.
    """
    n = survey.n_items
    mean, bits = bits_in_stars(survey, answer)
    popularity = np.bincount(bits.items, minlength=n) * mean_weight(answer.units)
    groups = known_groups(popularity, features)
    wanted = PATTERNS if n_patterns is None else n_patterns
    patterns = rating_patterns(bits.users, bits.items, n, wanted)
    similar: Similar | None = None
    if patterns.shape[1]:
        similar = similar_items(
            Presence(bits.users, bits.items, int(bits.users.max()) + 1, n), patterns
        )
        groups += [patterns, for_all(similar, similar.columns, n)]
    bias, variance = item_biases(bits, groups)
    facts = item_facts(survey, mean, bias, variance, popularity)
    if similar is None:
        return facts
    found = learn_similarity(bits, facts, features, similar, choose=n_patterns is None)
    return msgspec.structs.replace(facts, similarity=found)


def mean_weight(units: np.ndarray) -> float:
    """Return the mean weight of ratings; 1 where there are none."""
    return float(units.mean()) / WEIGHT_UNITS if len(units) else 1.0


def known_groups(popularity: np.ndarray, features: ItemFeatures | None) -> list[np.ndarray]:
    """Columns to regress biases on that need no patterns: popularity and public features."""
    amount = log_popularity(popularity)
    amount -= np.average(amount, weights=np.maximum(popularity, 1e-6))
    groups = [np.column_stack([amount, amount**2 / 3.0])]
    return groups if features is None else [*groups, features.matrix]


_APART = 0.3
"""How far off a mean is, in stars, that is read off the coding's curve alone."""


def bits_in_stars(survey: Survey, answer: BitContribution) -> tuple[tuple[float, float], StarBits]:
    """The mean of all ratings in stars with its variance, and what each bit says beyond it.

    Bits about ratings themselves tell the mean; with it, the others' level and slope are known.
    Where there are few, the mean that goes with the others' level in general steadies them.
    """
    items = answer.items
    if len(items) and int(items.max()) >= survey.n_items:
        raise ProtocolError(
            f"a bit is about an item that the survey's {survey.n_items} do not have"
        )
    coding, ruler = coding_of(survey), answer.ruler == 1
    signs, heights = 2.0 * answer.plus - 1.0, bit_height(answer.units, survey.epsilon)
    told, of_curve = _level(signs, heights, ruler), _level(signs, heights, ~ruler)
    means, levels = typical_curve(coding)
    slopes = np.gradient(levels, means)
    read = float(np.interp(of_curve.level, levels, means))
    precise = [
        1.0 / max(told.variance * STARS**2, 1e-9),
        1.0 / (_APART**2 + of_curve.variance / max(np.interp(read, means, slopes), 0.05) ** 2),
    ]
    mean = float(np.average([MIDDLE + STARS * told.level, read], weights=precise))
    mean = float(np.clip(mean, means[0], means[-1]))
    slope = np.where(ruler, 1.0 / STARS, max(float(np.interp(mean, means, slopes)), 0.05))
    level = np.where(ruler, (mean - MIDDLE) / STARS, of_curve.level)
    values = (signs * heights - level) / slope
    return (mean, 1.0 / sum(precise)), StarBits(
        numbered(answer.senders), items, values, (heights / slope) ** 2
    )


class _Level(NamedTuple):
    """The mean of some bits on their curve, and its variance."""

    level: float
    variance: float


def _level(signs: np.ndarray, heights: np.ndarray, chosen: np.ndarray) -> _Level:
    told = max(float((heights[chosen] ** -2.0).sum()), 1e-9)
    return _Level(float((signs[chosen] / heights[chosen]).sum()) / told, 1.0 / told)


def numbered(senders: np.ndarray) -> np.ndarray:
    """Number the senders of bits from 0, in their order.

    Given numbers are not used: a card may claim any number of users, and what follows needs memory
    for every number.
    """
    return np.asarray(np.unique(senders, return_inverse=True)[1])


def item_biases(bits: StarBits, groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Biases and their variances: a regression on groups of columns, and a part of each item's own.

    How much each group explains, and how much is left for items, is learned from the same bits by
    expectation maximisation.

    Args:
        bits: What users said.
        groups: Columns with a row per item; the coefficients of a group have one variance.
    """
    n_items = len(groups[0])
    told = np.bincount(bits.items, 1.0 / bits.variance, n_items)
    said = np.bincount(bits.items, bits.values / bits.variance, n_items)
    found = explain(told, said / np.maximum(told, 1e-12), groups)
    return found.expected + found.own, found.own_variance + (1.0 - found.share) ** 2 * found.unsure


@one_blas_thread()
def explain(told: np.ndarray, seen: np.ndarray, groups: Sequence[np.ndarray]) -> Explained:
    """Regress biases on groups of columns.

    Args:
        told: How much is known of each bias: a precision.
        seen: What it is known to be.
        groups: Columns with a row per item; the coefficients of a group have one variance.
    """
    columns = np.column_stack([np.ones(len(told)), *groups])
    group = np.repeat(np.arange(len(groups) + 1), [1, *(part.shape[1] for part in groups)])
    prior = np.array(
        [_LEVEL, *(_EXPLAINED / max(float((part**2).sum(1).mean()), 1e-9) for part in groups)]
    )
    spread, start = _SPREAD, prior.copy()
    most = np.argsort(-told, kind="stable")[: min(_TEACHING_ITEMS, int((told > 0).sum()))]
    teaching = columns[most], told[most], seen[most]
    for _ in range(_ROUNDS):
        found = _posterior(*teaching, prior[group], spread)
        moments = float((found.own**2 + found.own_variance + found.share**2 * found.unsure).sum())
        spread = (moments + _STEADY_ITEMS * _SPREAD) / (len(most) + _STEADY_ITEMS)
        sizes = (np.bincount(group, found.squares) + _HELD * start) / (np.bincount(group) + _HELD)
        prior[1:] = np.maximum(sizes[1:], 1e-9)
    return _posterior(columns, told, seen, prior[group], spread)


class Explained(NamedTuple):
    """The posterior of a regression of item biases on columns.

    Attributes:
        squares: Second moment of each coefficient.
        expected: The bias that the columns predict, of each item.
        unsure: Its variance.
        share: Share of what is left over that is the item's own bias and not noise.
        own: That part of the bias.
        own_variance: Its variance.
    """

    squares: np.ndarray
    expected: np.ndarray
    unsure: np.ndarray
    share: np.ndarray
    own: np.ndarray
    own_variance: np.ndarray


def _posterior(
    columns: np.ndarray, told: np.ndarray, seen: np.ndarray, prior: np.ndarray, spread: float
) -> Explained:
    weight = told / (1.0 + told * spread)
    uncertainty = np.linalg.inv(columns.T @ (columns * weight[:, None]) + np.diag(1.0 / prior))
    coefficients = uncertainty @ (columns.T @ (weight * seen))
    expected, share = columns @ coefficients, spread * weight
    unsure = np.einsum("nk,nk->n", columns @ uncertainty, columns)
    own = share * (seen - expected)
    return Explained(
        coefficients**2 + np.diag(uncertainty), expected, unsure, share, own, spread * (1.0 - share)
    )


def learn_similarity(
    bits: StarBits,
    facts: ItemFacts,
    features: ItemFeatures | None,
    similar: Similar,
    *,
    choose: bool = True,
) -> Similarity | None:
    """Return the similarity for devices, its columns scaled by how bits say vectors spread.

    Args:
        choose: Let it count by how well it explains what other people's bits say; None comes back
            where it counts for nothing. Otherwise it counts fully.
    """
    n = len(facts.bias)
    _, fixed, ridges = device_columns(facts, features)
    left = bits._replace(
        values=bits.values - facts.bias[bits.items],
        variance=bits.variance + facts.variance[bits.items],
    )
    ridges, whole = ridges / NOISE, for_all(similar, similar.columns, n)
    count = how_much_it_counts(left, fixed, ridges, whole) if choose else 1.0
    if count < LEAST_COUNT:
        return None
    columns = learn_columns(left, fixed, ridges, whole) * np.sqrt(count)
    centre = facts.popularity @ columns / max(float(facts.popularity.sum()), 1e-9)
    return Similarity(
        items=similar.items.astype(np.int64),
        columns=columns[similar.items].astype(np.float16),
        rest=(similar.rest * count).astype(np.float32),
        pull=learn_pull(left, columns, centre),
    )


PATTERNS = 8

LEAST_COUNT = 0.02

_AGREE, _SPREAD_OF_AGREE, _ENOUGH = 0.1, 0.07, 0.25
"""How much bits agree where similarity says so, before they are seen; how far that may be off; and
from where on similarity counts fully. On ratings held out within training parts, epsilon .1 to 4:
bits agree by .25 to 1.2 where similarity lowers the error (ML-100K, worlds of half stars, 0 to 10,
-10 to 10) and by at most 0 where it raises it (Yelp, sparse shops, 200 people)."""

_JUDGES = 2_000


def how_much_it_counts(
    left: StarBits, fixed: np.ndarray, ridges: np.ndarray, columns: np.ndarray
) -> float:
    """Return from 0 to 1 how much similarity is to count.

    Columns are learned from one half of the people. Among the bits of the others, products of a
    person's two bits are regressed on the covariance that the columns give them: 1 if it is right.
    """
    about, told = _AGREE / _SPREAD_OF_AGREE**2, _SPREAD_OF_AGREE**-2.0
    for half in (0, 1):
        teachers = left.users % 2 == half
        judges = left.only(~teachers)
        if not teachers.any() or not len(judges.users):
            continue
        own = left.only(teachers)
        own = own._replace(users=own.users // 2)
        agreed, variance = _agreement(judges, learn_columns(own, fixed, ridges, columns))
        about, told = about + agreed / variance, told + 1.0 / variance
    return float(np.clip(about / told / _ENOUGH, 0.0, 1.0))


@one_blas_thread()
def _agreement(bits: StarBits, columns: np.ndarray) -> tuple[float, float]:
    """The coefficient of products of bits on their covariance by columns, and its variance."""
    order = np.argsort(bits.users, kind="stable")
    begins = np.flatnonzero(np.diff(bits.users[order], prepend=-1))
    people = [rows for rows in np.split(order, begins[1:]) if len(rows) > 1]
    normal, noise, right = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2)
    for rows in people[:: max(1, len(people) // _JUDGES)]:
        own = columns[bits.items[rows]]
        pairs = np.triu_indices(len(rows), 1)
        told = 1.0 / bits.variance[rows]
        weight = (told[:, None] * told)[pairs]
        # A person's own mean makes all pairs agree a little: a constant beside the covariance.
        design = np.column_stack([np.ones(len(weight)), (own @ own.T)[pairs]])
        moments = design.T @ (design * weight[:, None])
        normal += moments / len(rows)
        noise += moments / len(rows) ** 2
        values = bits.values[rows]
        right += design.T @ (weight * (values[:, None] * values)[pairs]) / len(rows)
    normal += np.eye(2) * 1e-12
    inverse = np.linalg.inv(normal)
    return float((inverse @ right)[1]), max(float((inverse @ noise @ inverse)[1, 1]), 1e-12)


def for_all(similar: Similar, rows: np.ndarray, n_items: int) -> np.ndarray:
    """Rows of all items: zero where nothing is similar."""
    out = np.zeros((n_items, *rows.shape[1:]))
    out[similar.items] = rows
    return out
