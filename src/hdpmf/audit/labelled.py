"""The distinguishing game against taste labels (design C), played with the real ``OneRoundShard``, both rounds of it.

* ``sums``: the attacker is a recommender that cheats as far as devices allow. It names the audited item's score 1, all
  others 0, and the device's other items heads, so that the label says as much as it can about the rating and every sum
  of the device's items says something about the label. It sees popularity, per-label scores and weights, and the
  total, and knows everybody else's ratings and labels. Its score is the exact log-likelihood ratio, with both labels
  that the audited device may have drawn. Whether the audited item is a head too is for it to choose: that hides in
  which sums the rating is, but there the label shows. Where it is one, a further attacker is told the label: the
  proof allows for that.
* ``final``: the recommender's honest grouping and post-processing, in a world with enough weight for heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from hdpmf.audit.bounds import Scores, fisher
from hdpmf.audit.one_round import Less, moved_by, rating_in_worlds, tell, with_rating
from hdpmf.audit.world import Target
from hdpmf.errors import ProtocolError
from hdpmf.models.one_round import HDPSum
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.coding import SCORE_UNITS, rare_label_probability, sum_channels
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import Grouping, Popularity, SumContribution, Survey
from hdpmf.ratings import Ratings
from hdpmf.recommender.item_bias import coding_of
from hdpmf.recommender.labels import facts_from_labels, make_grouping
from hdpmf.shard.contribution import OneRoundShard

Progress = Callable[[int], None]
Ask = Callable[[Popularity], Grouping]

LABELLED_ITEMS = 40
"""Items of the world of the view ``final``: with fewer than 30 heads a recommender publishes nothing about labels."""

_CATALOGUE = "audit"
_SUMS, _FINAL = 900_030, 900_040  # streams of the seed
_PUBLISHED = 5  # numbers per item, the mean of all among them


@dataclass(frozen=True, slots=True)
class LabelledDesign:
    """Taste labels as they are audited.

    Attributes:
        epsilon: Of the survey.
        noise_factor: 1 for the design as it is. Less makes a broken one, with so much of the noise on its sums: a
            control. The attacker knows the factor.
        label_factor: The same for the lot that labels are drawn by, whose logit is divided by it.
    """

    epsilon: float
    noise_factor: float = 1.0
    label_factor: float = 1.0

    def survey(self, ratings: Ratings, contributors: int) -> Survey:
        """What the recommender asks."""
        model = HDPSum(epsilon=self.epsilon, labels=True)
        return replace(model._survey(ratings, _CATALOGUE), contributors=contributors)

    def answer(
        self, ratings: Ratings, weights: PrivacyWeights, survey: Survey, noise: SeededNoise, ask: Ask
    ) -> Conversation:
        """Both rounds with a shard that has these ratings and everybody's noise."""
        plain = self.noise_factor == 1.0 and self.label_factor == 1.0
        source: Any = noise if plain else Less(noise, self.noise_factor, self.label_factor)
        shard = OneRoundShard(
            ratings,
            weights,
            source,
            epsilon=self.epsilon,
            catalogue=_CATALOGUE,
            n_users=survey.contributors,
            simulation=True,
        )
        shard.accept(survey)
        counted = shard.count()
        grouping = ask(counted)
        shard.group(grouping)
        sent = shard.contribute()
        if not isinstance(sent, SumContribution) or shard._labels is None:
            raise ProtocolError("a survey by labels was answered without them")
        return Conversation(counted, grouping, sent, shard._labels)


@dataclass(frozen=True, slots=True, repr=False)
class Conversation:
    """What was said in one run, and the labels, which nobody said.

    Attributes:
        counted: The first answer.
        grouping: What the recommender made of it.
        sent: The second answer.
        labels: What each device drew.
    """

    counted: Popularity
    grouping: Grouping
    sent: SumContribution
    labels: np.ndarray


def labelled_world(ratings: Ratings) -> Ratings:
    """The most rated items of a world and all who rated two of them, everybody twice: else too few would be heads."""
    items = np.argsort(-ratings.item_counts(), kind="stable")[:LABELLED_ITEMS]
    among = ratings.take(np.isin(ratings.item_codes, items))
    rows = among.take(among.user_counts()[among.user_codes] >= 2)
    users = np.unique(rows.user_codes, return_inverse=True)[1]
    return Ratings.from_arrays(
        np.concatenate((users, users + ratings.n_users)),
        np.tile(np.unique(rows.item_codes, return_inverse=True)[1], 2),
        np.tile(rows.values, 2),
        scale=rows.scale,
        name=f"{ratings.name}, its {LABELLED_ITEMS} most rated items, everybody twice",
    )


def labelled_scores(
    target: Target,
    design: LabelledDesign,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
    head: bool = True,
) -> dict[str, Scores]:
    """Scores in the view ``sums`` of who sees the ``sums``, and of who knows the audited device's ``label`` as well.

    Args:
        target: Whose rating.
        design: What is put to the test.
        runs: Of each world.
        seed: Of the noise.
        progress: Told how many runs are done.
        adjacency: What differs between the worlds.
        head: Whether the audited item is summed per label, as the device's other items are.
    """
    device = _device(target)
    n, contributors = len(device.own), max(target.ratings.n_users, 2)
    aimed = np.zeros(n, np.int64)
    aimed[device.place] = SCORE_UNITS
    is_head = np.full(n, True)
    is_head[device.place] = head
    grouping = Grouping(scores=aimed, heads=np.flatnonzero(is_head))
    ends = rating_in_worlds(device, adjacency)
    attacker = _Attacker(device, design, ends, is_head)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for world, rating in enumerate(ends):
        ratings, weights = with_rating(device, rating)
        survey = design.survey(ratings, contributors)
        noise = SeededNoise(seed, _SUMS + 2 * head + world)
        seen, labels = np.empty((runs, attacker.n_entries), np.int64), np.empty(runs, bool)
        for run in range(runs):
            said = design.answer(ratings, weights, survey, noise, lambda counted: grouping)
            sent = said.sent
            seen[run] = np.concatenate((said.counted.weights, sent.scores, sent.weights, [sent.total]))
            labels[run] = said.labels[0]
            tell(progress, run, runs)
        found.append(attacker.ratios(seen, labels))
    low, high = found
    return {"sums": Scores(low[0], high[0]), "label": Scores(low[1], high[1])}


class _Attacker:
    """The log-likelihoods of one device's part in all sums of both rounds, for each world and label."""

    def __init__(
        self, device: Target, design: LabelledDesign, ends: tuple[float | None, float], is_head: np.ndarray
    ) -> None:
        coding = coding_of(design.survey(device.ratings, device.ratings.n_users))
        channels = sum_channels("A", coding, design.epsilon, labels=True)
        if channels.popularity is None or channels.total is None:
            raise ProtocolError("a survey by labels has a round before, and a total")
        n, heads = len(is_head), np.flatnonzero(is_head)
        sizes = (n, n + len(heads), n + len(heads), 1)
        used = (channels.popularity, channels.score, channels.weight, channels.total)
        self._scales = np.repeat([float(one.scale) * design.noise_factor for one in used], sizes)
        self._added, self._log_labels = [], []
        for rating in ends:
            to_each = np.array([moved_by(device, coding, float(value), row) for row, value in
                                enumerate(device.ratings.values)])  # fmt: skip
            to_each[device.row] = moved_by(device, coding, rating, device.row)
            score, weight, total = to_each.T
            by_label = []
            for label in (False, True):
                # The device adds a head's part to the sums of its label, and nothing to those of the other.
                first, after = ~(is_head & label), np.full(len(heads), label)
                parts = [weight]
                parts += [np.concatenate((one * first, one[heads] * after)) for one in (score, weight)]
                by_label.append(np.concatenate((*parts, [total.sum()])))
            self._added.append(by_label)
            self._log_labels.append(_log_labels(int(weight[device.row]) * SCORE_UNITS, design))

    @property
    def n_entries(self) -> int:
        """How many numbers both rounds release."""
        return len(self._scales)

    def ratios(self, seen: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each run the log-likelihood ratio without and with knowledge of the label."""
        zero, one = ([self._log(seen, world, label) for world in (0, 1)] for label in (0, 1))
        hidden = np.logaddexp(zero[1], one[1]) - np.logaddexp(zero[0], one[0])
        known = np.where(labels, one[1] - one[0], zero[1] - zero[0])
        return _coarse(hidden), _coarse(known)

    def _log(self, seen: np.ndarray, world: int, label: int) -> np.ndarray:
        """Of these sums together with this label, but for a constant that all worlds and labels share."""
        noise = np.abs(seen - self._added[world][label])
        return np.asarray(self._log_labels[world][label] - noise @ (1.0 / self._scales))


def _coarse(ratios: np.ndarray) -> np.ndarray:
    """In twentieths."""
    # So many sums make every run's ratio another one. Among that many thresholds pilot runs would pick one far out, by
    # chance, and measured runs would not bear it out.
    return np.asarray(np.round(20.0 * ratios) / 20.0)


def _log_labels(total: int, design: LabelledDesign) -> tuple[float, float]:
    """Log probabilities of labels 0 and 1 for a device whose scores add up to ``total``, which is not negative."""
    rare = rare_label_probability(np.array([total]), design.epsilon)
    if design.label_factor != 1.0:
        rare = Less.sharpened(rare, design.label_factor)
    common = float(np.log1p(-rare[0]))
    return (float(np.log(rare[0])), common) if total > 0 else (common, float(np.log(rare[0])))


def labelled_final_scores(
    target: Target,
    design: LabelledDesign,
    pilot: int,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
) -> tuple[Scores, Scores]:
    """Scores of pilot and measured runs against what the recommender publishes after both rounds."""
    ratings, item = target.ratings, target.item
    survey = design.survey(ratings, ratings.n_users)
    # A public feature that is about half of the items': the audited item is among those it speaks for.
    features = np.where((np.arange(ratings.n_items) - item) % 2 == 0, 1.0, -1.0)[:, None]

    def ask(counted: Popularity) -> Grouping:
        return make_grouping(survey, [counted], features, np.ones(1), 0.0)

    worlds = []
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        present, weights = with_rating(target, rating)
        noise = SeededNoise(seed, _FINAL + world)
        published = np.empty((pilot + runs, _PUBLISHED))
        for run in range(pilot + runs):
            said = design.answer(present, weights, survey, noise, ask)
            facts = facts_from_labels(survey, [said.counted], said.grouping, [said.sent], features)
            published[run] = (
                facts.mean, facts.bias[item], facts.variance[item], facts.popularity[item], facts.patterns[item, 0],
            )  # fmt: skip
            tell(progress, run, pilot + runs)
        worlds.append(published)
    low, high = worlds
    direction = fisher(low[:pilot], high[:pilot])
    low_scores, high_scores = low @ direction, high @ direction
    return Scores(low_scores[:pilot], high_scores[:pilot]), Scores(low_scores[pilot:], high_scores[pilot:])


def _device(target: Target) -> Target:
    """A world of the audited user alone: what else is in the sums, the attacker knows and subtracts."""
    own = target.own
    ratings = Ratings.from_arrays(
        np.zeros(len(own), np.int64),
        np.arange(len(own)),
        target.ratings.values[own],
        scale=target.ratings.scale,
        name="one device",
    )
    return Target(ratings, target.weights[own], target.place, np.arange(len(own)))
