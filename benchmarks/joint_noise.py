"""Noise on an item's score and weight in hdp-sum: as it is, by other splits, and drawn together.

    python benchmarks/joint_noise.py                              # ML-100K, forty seeds
    python benchmarks/joint_noise.py --data ml-1m --seeds 10
    python benchmarks/joint_noise.py --within --epsilon 0.5       # ratings held out in training
    python benchmarks/joint_noise.py --noises 2                   # two servers: each adds the whole

Every law costs a rating W epsilon against a change of its value. What its presence costs is in the
table, as are the variances of the noise on a score (in widths of the curve) and on a weight at
epsilon 1, and what all values and the presence of a person cost at delta 1e-5. Ten ratings per user
are held out, weights are the paper's. Behind differences are their standard errors.

The laws, for a rating that moves a score by x and a weight by y (in units of epsilon):

``split S``
    Independent Laplace noise, of scale S on the weight: cost .98 |x| + |y| / S. 4 is in use.
``ball T``
    Density exp(-N) with N = max(.98 |x| + |y| / 4, |y| / T): the ball of ``split 4``, cut off at
    weight T.
``hexagon``
    The same with T = 1/.74. Its corners are the largest moves of a rating: no smaller ball keeps
    all of them within the costs of ``split 4``.
``corners``
    Independent Laplace noise along the corners of that hexagon, at the same cost. Unlike a ``ball``
    it is a sum of independent shares.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hdpmf import HDPSum, PrivacySpec, PrivacyWeights, Ratings, load_dataset, make_model
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.model.device_fit import correct_popularity
from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS, sum_channels
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts, Survey
from hdpmf.models.one_round import wanted_features
from hdpmf.private.client.contributions import sums as contributed
from hdpmf.untrusted.recommender.deconvolution import deconvolve
from hdpmf.untrusted.recommender.sums import (
    coding_of,
    item_facts,
    make_survey,
    real_sums,
    sharp_biases,
)
from lists import find_data

SCORE = 0.98
"""What a move of a score by 1 costs; the rest of epsilon is for the total."""

TOTAL = 1.0 - SCORE
CORNER = SCORE / 2 + 1 / WEIGHT_SCALE
"""What the presence of a rating costs in score and weight of its item."""

DRAWS = 1_000_000
"""Draws that a person's cost is computed from: its error is below one in a hundred."""

Pair = tuple[np.ndarray, np.ndarray]
Source = Callable[[int], Pair]
"""Gives so many draws of the independent noise of a law's ``scale``."""


@dataclass(frozen=True)
class Law:
    """A law of noise on score and weight at epsilon 1.

    Attributes:
        name: As above.
        scale: Of the independent noise on the weight.
        top: Where a ``ball`` is cut off.
        along_corners: For ``corners``.
    """

    name: str
    scale: float = float(WEIGHT_SCALE)
    top: float = math.inf
    along_corners: bool = False

    @property
    def presence(self) -> float:
        """Epsilon per unit of W against presence."""
        return 0.5 + 1 / self.scale

    def draw(self, first: Source, again: Source, generator: np.random.Generator, n: int) -> Pair:
        """Return so many draws, made of independent noise, and of more where some is refused.

        A ball's norm N is at least that of the independent noise. So what is drawn there is kept
        with probability exp(-(N - that)), and else drawn again: exactly the density exp(-N).
        """
        score, weight = first(n)
        if self.along_corners:
            up, down = weight / (self.scale * CORNER), again(n)[1] / (self.scale * CORNER)
            return score + (up - down) / 2, up + down
        todo = np.arange(n)
        while len(todo := todo[~self._kept(score[todo], weight[todo], generator)]):
            score[todo], weight[todo] = again(len(todo))
        return score, weight

    def _kept(
        self, score: np.ndarray, weight: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        more = self.norm(score, weight) - self._independent(score, weight)
        return np.asarray(generator.standard_exponential(len(score)) >= more)

    def norm(self, score: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return minus the logarithm of the density, but for a constant. Not for ``corners``."""
        return np.maximum(self._independent(score, weight), np.abs(weight) / self.top)

    def _independent(self, score: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return SCORE * np.abs(score) + np.abs(weight) / self.scale

    def sample(self, seed: int) -> Pair:
        """Return many draws on the real line."""
        generator = np.random.default_rng(seed)

        def source(n: int) -> Pair:
            return generator.laplace(0.0, 1 / SCORE, n), generator.laplace(0.0, self.scale, n)

        return self.draw(source, source, generator, DRAWS)

    def losses(self, budget: float, about: str) -> np.ndarray:
        """Draws of the privacy loss of one rating."""
        if self.along_corners:
            # Along a corner the noise is one Laplace noise and more that is independent of it.
            cost = budget * (SCORE if about == "value" else CORNER)
            noise = np.random.default_rng(1).laplace(size=DRAWS)
            return np.asarray(np.abs(noise + cost) - np.abs(noise))
        x, y = (budget, 0.0) if about == "value" else (budget / 2, budget)
        score, noise = self.sample(1)
        return self.norm(score + x, noise + y) - self.norm(score, noise)


LAWS = (
    Law("split 4"),
    Law("split 3", 3.0),
    Law("split 2", 2.0),
    Law("split 1.5", 1.5),
    Law("hexagon", top=1 / CORNER),
    Law("ball 2", top=2.0),
    Law("ball 3", top=3.0),
    Law("corners", along_corners=True),
)


def person_cost(law: Law, about: str, ratings: int, budget: float, delta: float = 1e-5) -> float:
    """Return epsilon at delta of all ratings of a person, by the distribution of privacy losses.

    Each of them has the same budget, W epsilon.
    """
    step, size = 5e-4, 1 << 18
    total = ratings * budget * TOTAL * (1.0 if about == "value" else 0.5)
    noise = np.random.default_rng(2).laplace(size=DRAWS)

    def transformed(losses: np.ndarray) -> np.ndarray:
        places = np.ceil(losses / step).astype(np.int64) % size
        return np.fft.rfft(np.bincount(places, minlength=size) / len(losses))

    together = transformed(law.losses(budget, about)) ** ratings
    together *= transformed(np.abs(noise + total) - np.abs(noise))
    shares = np.maximum(np.fft.irfft(together, size), 0.0)
    losses = (np.arange(size) + size // 2) % size - size // 2
    losses = losses * step
    low, high = 0.0, float(losses.max())
    while high - low > 1e-4:
        middle = (low + high) / 2
        above = losses > middle
        left = float((shares[above] * -np.expm1(middle - losses[above])).sum())
        low, high = (middle, high) if left > delta else (low, middle)
    return high


@cache
def variances(law: Law) -> tuple[float, float]:
    """Return the variances of the noise on a score and on a weight at epsilon 1."""
    score, weight = law.sample(0)
    return float(score.var()), float(weight.var())


def scales(law: Law) -> tuple[float, float]:
    """Return the scales of Laplace noise with these variances."""
    if law.top == math.inf and not law.along_corners:
        return 1 / SCORE, law.scale
    score, weight = variances(law)
    return math.sqrt(score / 2), math.sqrt(weight / 2)


class Measured(HDPSum):
    """HDPSum that knows how large the noise on its sums of weights was."""

    weight_scale: float = float(WEIGHT_SCALE)

    def _popularity(self) -> np.ndarray:
        released = self.facts_.popularity.astype(np.float64)
        return correct_popularity(released, self.devices_.gamma, self.weight_scale / self.epsilon)


class _Without(SeededNoise):
    """No noise: it is added to the sums here."""

    def discrete_laplace(self, scale: Any, size: Any) -> np.ndarray:
        return np.zeros(size, np.int64)


def drawn_noise(law: Law, survey: Survey, seed: int, noises: int) -> tuple[np.ndarray, ...]:
    """Return noise in the units of the sums: of scores, weights and the total."""
    coding = coding_of(survey)
    channels = sum_channels(coding, survey.epsilon)
    total_scale = channels.total.scale
    weight_unit = WEIGHT_UNITS / survey.epsilon
    score_unit = weight_unit / coding.unit

    def source(noise: SeededNoise) -> Source:
        def draw(n: int) -> Pair:
            score = noise.discrete_laplace(channels.score.scale, n) / score_unit
            return score, noise.discrete_laplace(weight_unit * law.scale, n) / weight_unit

        return draw

    noise = SeededNoise(seed, stream=3)  # as the library draws, so that split 4 is hdp-sum
    more, generator = SeededNoise(seed, stream=5), np.random.default_rng(seed)
    scores, weights = np.zeros(survey.n_items, np.int64), np.zeros(survey.n_items, np.int64)
    total = np.zeros(1, np.int64)
    for _ in range(noises):
        score, weight = law.draw(source(noise), source(more), generator, survey.n_items)
        scores += np.rint(score * score_unit).astype(np.int64)
        weights += np.rint(weight * weight_unit).astype(np.int64)
        total += noise.discrete_laplace(total_scale, 1)
    return scores, weights, total


def facts_by(
    law: Law,
    train: Ratings,
    weights: PrivacyWeights,
    features: ItemFeatures | None,
    given: argparse.Namespace,
    seed: int,
) -> tuple[ItemFacts, float]:
    """Return item facts of one round with this noise, and the scale of that on weights."""
    survey = make_survey(
        "A",
        given.epsilon,
        train.scale,
        n_items=train.n_items,
        catalogue=fingerprint(train.items, features),
    )
    sums = contributed(train, weights, survey, _Without(0))
    scores, weighed, total = drawn_noise(law, survey, seed, given.noises)
    sums = type(sums)(
        scores=sums.scores + scores,
        weights=sums.weights + weighed,
        total=sums.total + int(total[0]),
    )
    # Estimators take every noise for Laplace noise of the same variance. The exact likelihood of
    # both together changes neither stars nor lists (tried for ``split`` and ``ball``).
    of_score, of_weight = scales(law)
    more = math.sqrt(given.noises)
    observed = real_sums(survey, sums)
    known = deconvolve(observed.weights, more * of_weight / survey.epsilon)
    relative = np.full(survey.n_items, more * of_score * SCORE)
    matrix = None if features is None else features.matrix
    bias, variance = sharp_biases(survey, observed, known, relative, matrix)
    return item_facts(survey, observed.mean, bias, variance, known.size_biased), of_weight


def measure(given: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Measure all laws, and what knows nothing, with one seed."""
    train, test = load_dataset(given.data).hold_out(10, rng=seed)
    if given.within:
        train, test = train.hold_out(10, rng=100 + seed)
    weights = PrivacySpec().draw(train, rng=seed)
    features = wanted_features("auto", train)
    rows = []
    for law in LAWS:
        facts, scale = facts_by(law, train, weights, features, given, seed)
        model = Measured(epsilon=given.epsilon, rng=seed, n_threads=1)
        model.weight_scale = scale
        model.with_facts(train, weights, facts)
        rows.append(
            {"law": law.name, "mse": model.score(test)["mse"], "ndcg": model.rank(test)["ndcg"]}
        )
    mean = make_model("user-mean").fit(train, weights)
    popular = make_model("most-popular").fit(train, weights)
    rows.append({"law": "user mean", "mse": mean.score(test)["mse"]})
    rows.append({"law": "most popular", "ndcg": popular.rank(test)["ndcg"]})
    for row in rows:
        row["seed"] = seed
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def shown(values: np.ndarray, base: np.ndarray) -> str:
    """A mean, and its difference to the law in use with the standard error of that."""
    off = values - base
    error = off.std(ddof=1) / math.sqrt(len(off)) if len(off) > 1 else 0.0
    return f"{values.mean():.4f} {off.mean():+.4f} ({error:.4f})"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--noises", type=int, default=1, help="how often the whole noise is added")
    parser.add_argument("--within", action="store_true", help="test within the training part")
    parser.add_argument("--ratings", type=int, default=106, help="of the person whose cost is told")
    parser.add_argument("--weight", type=float, default=23 / 64, help="of each of them")
    given = parser.parse_args()
    find_data()
    rows = [row for seed in range(given.seeds) for row in measure(given, seed)]

    def column(law: str, by: str) -> np.ndarray:
        return np.array([row[by] for row in rows if row["law"] == law])

    in_use = LAWS[0].name
    print(f"{given.data}, {given.seeds} seeds, epsilon {given.epsilon:g}, {given.noises} noises")
    print("law        presence  score weight  person: values presence  MSE     NDCG@10")
    for law in LAWS:
        score, weight = variances(law)
        values, presence = (
            person_cost(law, about, given.ratings, given.weight * given.epsilon)
            for about in ("value", "presence")
        )
        accuracy = "  ".join(
            shown(column(law.name, by), column(in_use, by)) for by in ("mse", "ndcg")
        )
        print(
            f"{law.name:10} {law.presence:6.3f}  {score:6.2f} {weight:6.2f}  {values:6.1f} "
            f"{presence:6.1f}  {accuracy}"
        )
    print(f"user mean: MSE {column('user mean', 'mse').mean():.4f}")
    print(f"most popular: NDCG@10 {column('most popular', 'ndcg').mean():.4f}")


if __name__ == "__main__":
    main()
