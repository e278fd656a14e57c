"""From noisy sums of pairs to a model. Post-processing only: it costs no privacy.

The matrix of pairs is brought to cosines, where popular items weigh as much as others, and its
noise, whose law is known, is taken off: what public features explain is believed sooner, the rest
only as far as it stands out. What is left is a few directions of taste, V.
"""

import math
from dataclasses import dataclass

import numpy as np

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.privacy.pairs import (
    LINEAR_BITS,
    MEAN_ENTRY,
    OWN_MEAN,
    PAIR_BITS,
    Heads,
    PairsPlan,
    limit_of,
)
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.messages import Similarity
from hdpmf.untrusted.recommender.deconvolution import Weights, deconvolve_gaussian, margin
from hdpmf.untrusted.recommender.sums import MIDDLE, regress, with_constant

_LINEAR = float(limit_of(LINEAR_BITS))

SHRINK, KNOWN, SOFT, EXPONENT = 0.8, 0.3, 0.5, -0.2
"""How much of the noise's edge is taken off eigenvalues, how much less of what features explain,
how much of it directions are damped by, and the power of popularity that brings rows to cosines.

Best of .6 to 1, .1 to .35, .4 to 1.2 and -.3 to -.15 on ratings held out within the training parts
of ML-100K (four splits) and ML-1M (two), over epsilon 1 to 8; all within .0015 around the best."""

STEEP, UNCLEAR, SPARSE, ENOUGH = 2.5, 0.25, 0.4, 16.0
"""How much lists believe pairs: nothing where so small a share of them is not noise, by how much
more with more of it, up to 1; and by how much the least share grows where people have fewer ratings
than enough. The best weight of 0 to 1 follows the share so in seven synthetic worlds, with seeds of
their own, and on ratings held out within ML-100K's training part."""

STAR_COLUMNS, STAR_SHARE, STAR_REST = 30, 1.5, 0.2
"""How many directions of taste vectors are fitted to, and the variance of a rating along them, in
stars squared, for each part of a head's square that they are; and what they leave."""

SLOPE, WITHIN, FEATURE_SPREAD, LEAST_SPREAD = 0.8, 0.6, 0.3, 0.1
"""What a star of bias moves a value by, in entries of presence; the variance of a value; the
deviation of what a feature is worth, in stars; and the least variance of biases beside that.

As ``REACH`` and the shares of the budget, by errors on ratings held out within the training parts
of ML-100K and ML-1M."""

_MEAN, _MEAN_SPREAD = 3.5, 0.4
"""Where people's own means usually are, and how far that is off."""

_ACTIVITY, _NORMAL = (
    0.9,
    np.array([-1.64, -1.04, -0.67, -0.39, -0.13, 0.13, 0.39, 0.67, 1.04, 1.64]),
)
"""How unequally people rate, as on MovieLens: the deviation of the logarithm of how many ratings
they have; and a normal law in tenths."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PairsAnswer:
    """The sums of a run, with noise.

    Attributes:
        linear: Of rows of presence, one number per item.
        values: Of rows of values, and of own means at the end; empty without stars.
        heads: Which items have pairs.
        pairs: The upper triangle of their matrix, row after row.
        noises: How many times the whole noise is in each number: once for every server.
    """

    linear: np.ndarray
    values: np.ndarray
    heads: Heads
    pairs: np.ndarray
    noises: int


def popularity_of(plan: PairsPlan, linear: np.ndarray, noises: int) -> np.ndarray:
    """Return about how many people chose each item, from noisy sums of rows of presence."""
    return np.asarray(_behind(plan, linear, noises).size_biased / _average(plan, linear)[1])


def _behind(plan: PairsPlan, linear: np.ndarray, noises: int) -> Weights:
    return deconvolve_gaussian(linear.astype(np.float64), math.sqrt(noises) * plan.linear)


def _average(plan: PairsPlan, linear: np.ndarray) -> tuple[float, float]:
    """Return how many ratings an average person has, and what each counts in a row of presence.

    An entry is the root of limit / n where that is below the cap.
    """
    row = max(float(linear.sum()), 1.0) / plan.people
    each = min(_LINEAR / row, math.sqrt(plan.kappa * _LINEAR))
    return max(row / each, 1.0), each


def _popularity_margin(plan: PairsPlan, answer: PairsAnswer) -> np.ndarray:
    raised = margin(plan.items, gaussian=math.sqrt(answer.noises) * plan.linear)
    return np.full(plan.items, raised / _average(plan, answer.linear)[1], np.float32)


@one_blas_thread()
def facts_from_pairs(
    plan: PairsPlan, answer: PairsAnswer, features: ItemFeatures | None, catalogue: str
) -> tuple[ItemFacts, ListModel]:
    """Return facts about items and the model for lists."""
    behind = _behind(plan, answer.linear, answer.noises)
    popularity = behind.size_biased / _average(plan, answer.linear)[1]
    cosines = _cosines(plan, answer, popularity, features)
    mean, bias, variance = _biases(plan, answer, features, behind)
    similarity = _similarity(answer.heads, cosines) if plan.stars else None
    facts = ItemFacts(
        catalogue=catalogue,
        mean=mean,
        bias=bias.astype(np.float32),
        variance=variance.astype(np.float32),
        popularity=np.maximum(popularity, 0.0).astype(np.float32),
        similarity=similarity,
        popularity_margin=_popularity_margin(plan, answer),
    )
    return facts, _lists(plan, answer, cosines, popularity)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Cosines:
    """What is left of the matrix of cosines without its noise.

    Attributes:
        sizes: Eigenvalues, largest first.
        directions: Eigenvectors, one column each.
        edge: How large noise alone makes an eigenvalue.
        usual: The mean of the diagonal.
        roots: Of each head's popularity over the mean.
    """

    sizes: np.ndarray
    directions: np.ndarray
    edge: float
    usual: float
    roots: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """The share of each direction that is kept; more damping than EASE's ridge."""
        return np.asarray(self.sizes / (self.sizes + SOFT * self.edge + self.usual))

    @property
    def signal(self) -> float:
        """The share of what is kept, but for popularity, that noise alone does not explain.

        Eigenvalues of noise lie on a half circle up to the edge.
        """
        at = np.linspace(SHRINK, 1.0, 1001)
        sizes = (at - SHRINK) * self.edge
        kept = (sizes / (sizes + SOFT * self.edge + self.usual)) ** 2
        expected = float((kept * np.sqrt(1.0 - at**2)).mean()) * 2.0 / math.pi * (1.0 - SHRINK)
        found = float((self.kept[1:] ** 2).sum())
        return max(1.0 - len(self.roots) * expected / max(found, 1e-12), 0.0)


def _cosines(
    plan: PairsPlan, answer: PairsAnswer, popularity: np.ndarray, features: ItemFeatures | None
) -> _Cosines:
    m, limit = plan.heads, float(limit_of(PAIR_BITS))
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m)] = answer.pairs / limit
    matrix += np.triu(matrix, 1).T
    own = np.maximum(popularity[answer.heads.items], 1e-9)
    shares = np.maximum(own / own.mean(), 1e-2)
    scale = shares**EXPONENT
    noise = math.sqrt(answer.noises) * plan.pairs / limit
    edge = 2 * noise * math.sqrt(math.sqrt(float((scale**4).mean())) * float((scale**2).sum()))
    found = scale[:, None] * matrix * scale
    prior = np.sqrt(shares)[:, None] * _known(answer.heads.items, features)
    basis, _ = np.linalg.qr(prior)
    shrunk = found - SHRINK * edge * (np.eye(m) - KNOWN * basis @ basis.T)
    sizes, directions = np.linalg.eigh(shrunk)
    kept = np.flatnonzero(sizes > 0)[::-1]
    usual = max(float(np.trace(found)), edge) / m  # noise alone may take more of it than there is
    return _Cosines(sizes[kept], directions[:, kept], edge, usual, np.sqrt(shares))


def _similarity(heads: Heads, cosines: _Cosines) -> Similarity:
    """Columns for the stars of heads: directions but the first, which is popularity."""
    kept = slice(1, STAR_COLUMNS + 1)
    sizes = cosines.sizes[kept]
    shares = cosines.signal * sizes * cosines.kept[kept] / cosines.usual
    columns = cosines.directions[:, kept] * np.sqrt(STAR_SHARE * shares)
    return Similarity(
        items=heads.items.astype(np.int64),
        columns=columns.astype(np.float16),
        rest=np.full(len(columns), STAR_REST, np.float32),
        pull=0.0,
    )


def _known(heads: np.ndarray, features: ItemFeatures | None) -> np.ndarray:
    """A constant and the public features of heads, as far as these have them."""
    columns = with_constant(None if features is None else features.matrix[heads], len(heads))
    kept = np.flatnonzero((columns != 0).any(axis=0))
    return np.asarray(columns[:, kept[: max(1, len(heads) // 2)]])


def _lists(
    plan: PairsPlan, answer: PairsAnswer, cosines: _Cosines, popularity: np.ndarray
) -> ListModel:
    vectors = np.ascontiguousarray(cosines.directions * np.sqrt(cosines.kept))
    largest = max(float(np.abs(vectors).max(initial=0.0)), 1e-12)
    few = 1.0 - min(_average(plan, answer.linear)[0] / ENOUGH, 1.0)
    weight = float(np.clip(STEEP * (cosines.signal - UNCLEAR - SPARSE * few), 0.0, 1.0))
    return ListModel(
        form="linear",
        encode=Bytes.of(vectors / cosines.roots[:, None]),
        decode=Bytes.of(vectors * (weight / largest)),  # what a deviation counts on devices
        entries=Entries.none(plan.heads),
        output=np.zeros(plan.heads, np.float32),
        heads=answer.heads.items,
        n_items=plan.items,
        about={"kind": "pairs", "heads": plan.heads, "directions": int(vectors.shape[1])},
    )


def _biases(
    plan: PairsPlan, answer: PairsAnswer, features: ItemFeatures | None, behind: Weights
) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean, and items' biases with how uncertain they are, in stars."""
    if not plan.stars:
        return MIDDLE, np.zeros(plan.items), np.zeros(plan.items)
    ratings, each = _average(plan, answer.linear)
    counts = ratings * np.exp(_ACTIVITY * _NORMAL - _ACTIVITY**2 / 2)
    per_star = plan.people * MEAN_ENTRY / 2.0 * float((counts / (counts + OWN_MEAN)).mean())
    error = math.sqrt(answer.noises) * plan.values / per_star
    trust = _MEAN_SPREAD**2 / (_MEAN_SPREAD**2 + error**2)
    found = float(np.clip(MIDDLE + answer.values[-1] / per_star, 1.0, 5.0))
    mean = _MEAN + trust * (found - _MEAN)

    slopes = SLOPE * min(1.0, math.sqrt(plan.kappa * _LINEAR / 2.0) / each) * behind.mean
    level = float(answer.values[:-1].sum()) / max(float(answer.linear.sum()), 1.0)
    scores = answer.values[:-1] - level * behind.mean
    variance = answer.noises * float(plan.values) ** 2 + WITHIN * behind.mean * each
    variance += (level * behind.deviation) ** 2
    columns = _bias_columns(behind.size_biased / each, features)
    coefficients, found_spread = regress(scores, slopes, variance, columns)
    spread = max(found_spread, LEAST_SPREAD)
    prior = with_constant(columns, plan.items) @ coefficients
    gain = spread * slopes / (slopes**2 * spread + variance)
    return mean, prior + gain * (scores - slopes * prior), spread * (1.0 - gain * slopes)


def _bias_columns(popularity: np.ndarray, features: ItemFeatures | None) -> np.ndarray:
    """What an item's bias is expected by: how popular it is, and its public features."""
    logs = log_popularity(popularity)
    logs = (logs - np.average(logs, weights=np.maximum(popularity, 1e-6))) / 1.5
    own = [logs, logs**2]
    return np.column_stack(own if features is None else [*own, FEATURE_SPREAD * features.matrix])
