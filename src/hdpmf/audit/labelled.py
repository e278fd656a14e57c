"""The distinguishing game against taste labels (design C), played with the real ``OneRoundShard``, both rounds of it.

* ``sums``: the attacker is a recommender that cheats as far as devices allow. It names the audited item's score 1, all
  others 0, and the device's other items heads, so that the label says as much as it can about the rating and every sum
  of the device's items says something about the label. It sees popularity, per-label scores and weights, and the
  total, and knows everybody else's ratings and labels. Its score is the exact log-likelihood ratio, with both labels
  that the audited device may have drawn. Whether the audited item is a head too is for it to choose: that hides in
  which sums the rating is, but there the label shows. Where it is one, a further attacker is told the label: the
  proof allows for that.

The view ``final`` is that of every one-round design, in a world with enough weight for heads (``labelled_world``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hdpmf.audit.bounds import Scores
from hdpmf.audit.designs import Design, Less, moved_by, rating_in_worlds, with_rating
from hdpmf.audit.one_round import tell
from hdpmf.audit.world import Target
from hdpmf.errors import ProtocolError
from hdpmf.privacy.coding import SCORE_UNITS, rare_label_probability, sum_channels
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import Grouping, Popularity, SumContribution, Survey
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender import OneRoundRecommender
from hdpmf.recommender.item_bias import coding_of
from hdpmf.shard.contribution import OneRoundShard

Progress = Callable[[int], None]

LABELLED_ITEMS = 40
"""Items of the world of the view ``final``: with fewer than 30 heads a recommender publishes nothing about labels."""

_SUMS = 900_030  # stream of the seed


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
    design: Design,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
    head: bool = True,
) -> dict[str, Scores]:
    """Scores in the view ``sums`` of who sees the ``sums``, and of who knows the audited device's ``label`` as well.

    With ``head`` the audited item is summed per label, as the device's other items are.
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
        recommender = _Cheat(design.survey(ratings, contributors), grouping)
        noise = SeededNoise(seed, _SUMS + 2 * head + world)
        seen, labels = np.empty((runs, attacker.n_entries), np.int64), np.empty(runs, bool)
        for run in range(runs):
            shard = design.shard(ratings, weights, noise, contributors)
            seen[run] = recommender.listen(shard)
            labels[run] = shard.labels is not None and shard.labels[0]
            tell(progress, run, runs)
        found.append(attacker.ratios(seen, labels))
    low, high = found
    return {"sums": Scores(low[0], high[0]), "label": Scores(low[1], high[1])}


class _Cheat(OneRoundRecommender):
    """A recommender that groups as it likes, whatever was counted, and keeps all that it hears."""

    def __init__(self, survey: Survey, grouping: Grouping) -> None:
        no_features = ItemFeatures((), np.zeros((survey.n_items, 0)), np.zeros(0), "audit")
        super().__init__(survey, no_features, score={})
        self._chosen = grouping
        self._counts = np.zeros(0, np.int64)

    def group(self, counted: Sequence[Popularity], n_sums: float = 1) -> Grouping:
        """As it likes."""
        self._counts = counted[0].weights
        return self._chosen

    def listen(self, shard: OneRoundShard) -> np.ndarray:
        """All numbers of both rounds."""
        (sent,) = self.hear([shard])
        if not isinstance(sent, SumContribution):
            raise ProtocolError("a survey by labels was answered without them")
        return np.concatenate((self._counts, sent.scores, sent.weights, [sent.total]))


class _Attacker:
    """The log-likelihoods of one device's part in all sums of both rounds, for each world and label."""

    def __init__(self, device: Target, design: Design, ends: tuple[float | None, float], is_head: np.ndarray) -> None:
        coding = coding_of(design.survey(device.ratings, device.ratings.n_users))
        channels = sum_channels("A", coding, design.epsilon, labels=True)
        if channels.popularity is None or channels.total is None:
            raise ProtocolError("a survey by labels has a round before, and a total")
        n, heads = len(is_head), np.flatnonzero(is_head)
        sizes = (n, n + len(heads), n + len(heads), 1)
        used = (channels.popularity, channels.score, channels.weight, channels.total)
        self._scales = np.repeat([float(channel.scale) * design.noise_factor for channel in used], sizes)
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
                parts += [np.concatenate((part * first, part[heads] * after)) for part in (score, weight)]
                by_label.append(np.concatenate((*parts, [total.sum()])))
            self._added.append(by_label)
            self._log_labels.append(_log_labels(int(weight[device.row]) * SCORE_UNITS, design))

    @property
    def n_entries(self) -> int:
        """How many numbers both rounds release."""
        return len(self._scales)

    def ratios(self, seen: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each run the log-likelihood ratio without and with knowledge of the label."""
        with_0, with_1 = ([self._log(seen, world, label) for world in (0, 1)] for label in (0, 1))
        hidden = np.logaddexp(with_0[1], with_1[1]) - np.logaddexp(with_0[0], with_1[0])
        known = np.where(labels, with_1[1] - with_1[0], with_0[1] - with_0[0])
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


def _log_labels(total: int, design: Design) -> tuple[float, float]:
    """Log probabilities of labels 0 and 1 for a device whose scores add up to ``total``, which is not negative."""
    rare = rare_label_probability(np.array([total]), design.epsilon)
    if design.label_factor != 1.0:
        rare = Less.sharpened(rare, design.label_factor)
    common = float(np.log1p(-rare[0]))
    return (float(np.log(rare[0])), common) if total > 0 else (common, float(np.log(rare[0])))


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
