"""The distinguishing game against taste labels (design C), both rounds, on the real client.

* ``sums``: the attacker is a recommender that cheats as far as devices allow. It names the audited
  item's score 1, all others 0, and the device's other items heads, so that the label says as much
  as it can about the rating and every sum of the device's items says something about the label. It
  sees popularity, per-label scores and weights, and the total, and knows everybody else's ratings
  and labels. Its score is the exact log-likelihood ratio, with both labels that the audited device
  may have drawn. Whether the audited item is a head too is for it to choose: that hides in which
  sums the rating is, but there the label shows. Where it is one, a further attacker is told the
  label: the proof allows for that.

The view ``final`` is that of every one-round design, in a world with enough weight for heads
(``labelled_world``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.coding import (
    SCORE_UNITS,
    bit_height,
    bit_probability,
    rare_label_probability,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import (
    BitContribution,
    Grouping,
    ItemFacts,
    Popularity,
    SumContribution,
    Survey,
)
from hdpmf.errors import ProtocolError
from hdpmf.lab.audit.scores import Halves, Scores, discriminated, log_discrete_laplace, log_share
from hdpmf.lab.audit.world import Design, Target, moved_by, rating_in_worlds, sharpened, with_rating
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender import OneRoundRecommender
from hdpmf.untrusted.recommender.sums import coding_of

Progress = Callable[[int], None]

# streams of the seed
_SUMS = 900_000
_BITS = 900_010
_FINAL = 900_020
_FINAL_LABELLED = 900_040

_REPORT_EVERY = 500


def sum_scores(
    target: Target,
    design: Design,
    view: str,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
) -> Scores:
    """Return scores against designs A and S in the view ``sums`` or ``messages``."""
    contributors = max(target.ratings.n_users, 2)
    n_users = contributors if view == "sums" else 1
    coding = coding_of(design.survey(target.ratings, contributors))
    channels = sum_channels(design.kind, coding, design.epsilon)
    worlds = []
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        alone, weights = _alone(target, rating)
        recommender = design.recommender(design.survey(alone, contributors))
        noise = SeededNoise(seed, _SUMS + world)
        entries = np.empty((runs, 3), np.int64)
        for run in range(runs):
            (sent,) = recommender.hear([design.client(alone, weights, noise, n_users)])
            if isinstance(sent, SumContribution):
                entries[run] = sent.scores[0], sent.weights[0], sent.total
            report_progress(progress, run, runs)
        worlds.append(entries)
    moved = [
        moved_by(target, coding, rating, target.row)
        for rating in rating_in_worlds(target, adjacency)
    ]

    def ratio(seen: np.ndarray) -> np.ndarray:
        total = np.zeros(len(seen))
        for column, channel in enumerate((channels.score, channels.weight, channels.total)):
            if channel is None or moved[0][column] == moved[1][column]:
                continue
            scale = float(channel.scale) * design.noise_factor
            for by, sign in ((moved[1], 1.0), (moved[0], -1.0)):
                noise = seen[:, column] - by[column]
                law = (
                    log_discrete_laplace(noise, scale)
                    if view == "sums"
                    else log_share(noise, scale, contributors)
                )
                total += sign * law
        # The law of a sum has a plateau: equal ratios must not differ by rounding, or a threshold
        # would split them.
        return np.asarray(np.round(total, 9))

    return Scores(ratio(worlds[0]), ratio(worlds[1]))


def report_progress(progress: Progress, run: int, runs: int) -> None:
    """Report every ``_REPORT_EVERY`` runs, and at the end."""
    if run % _REPORT_EVERY == _REPORT_EVERY - 1 or run == runs - 1:
        progress(run % _REPORT_EVERY + 1)


def bit_scores(target: Target, epsilon: float, view: str, runs: int, seed: int) -> Scores:
    """Return scores against design L in the view ``messages`` or ``sums``."""
    design = Design("L", epsilon)
    ratings = target.ratings
    rows = (
        np.array([target.row])
        if view == "messages"
        else np.flatnonzero(ratings.item_codes == target.item)
    )
    size = max(1, 200_000 // len(rows))
    worlds = []
    for world, rating in enumerate(target.ends):
        noise = SeededNoise(seed, _BITS + world)
        values = target.values(rating)[rows]
        blocks = []
        for begin in range(0, runs, size):
            n = min(size, runs - begin)
            copies = Ratings.from_arrays(
                np.arange(n * len(rows)),
                np.repeat(np.arange(n), len(rows)),
                np.tile(values, n),
                scale=ratings.scale,
            )
            weights = PrivacyWeights.per_rating(copies, np.tile(target.weights[rows], n))
            recommender = design.recommender(design.survey(copies, copies.n_users))
            (sent,) = recommender.hear([design.client(copies, weights, noise, copies.n_users)])
            if isinstance(sent, BitContribution):
                blocks.append(_bit_sums(sent, n, epsilon))
        worlds.append(np.concatenate(blocks))
    scores = Scores(worlds[0], worlds[1])
    return scores if view == "sums" else _bit_ratios(target, design, scores)


def _bit_sums(sent: BitContribution, n: int, epsilon: float) -> np.ndarray:
    """Return an item's sum of bits with inverse-variance weights."""
    signs = (2.0 * sent.plus - 1.0) / bit_height(sent.units, epsilon)
    return np.round(np.bincount(sent.items, signs, n), 9)


def _bit_ratios(target: Target, design: Design, scores: Scores) -> Scores:
    """Return log-likelihood ratios of single bits, from their signs."""
    coding = coding_of(design.survey(target.ratings, 1))
    units = weight_units(np.array([target.weight, target.weight]))
    plus = bit_probability(
        coding.encode(np.array(target.ends, np.float32)), units, coding, design.epsilon
    )
    if units[0] == 0:  # too small a weight: nothing was sent
        return scores
    up = np.log(plus[1] / plus[0])
    down = np.log((1.0 - plus[1]) / (1.0 - plus[0]))
    return Scores(np.where(scores.low > 0, up, down), np.where(scores.high > 0, up, down))


def final_scores(
    target: Target,
    design: Design,
    pilot: int,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
) -> Halves:
    """Return scores against what the recommender publishes."""
    worlds = []
    ratings = target.ratings
    # With labels: a public feature of about half of the items; the audited item is among those it
    # speaks for.
    feature = None
    if design.labels:
        feature = np.where((np.arange(ratings.n_items) - target.item) % 2 == 0, 1.0, -1.0)
    recommender = design.recommender(design.survey(ratings, ratings.n_users), feature)
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        present, weights = with_rating(target, rating)
        noise = SeededNoise(seed, (_FINAL_LABELLED if design.labels else _FINAL) + world)
        published = []
        for run in range(pilot + runs):
            client = design.client(present, weights, noise, ratings.n_users)
            published.append(_published(recommender.facts(recommender.hear([client])), target.item))
            report_progress(progress, run, pilot + runs)
        worlds.append(np.array(published))
    return discriminated(worlds[0], worlds[1], pilot).split(pilot)


def _published(facts: ItemFacts, item: int) -> tuple[float, ...]:
    about = (facts.mean, facts.bias[item], facts.variance[item])
    return (*about, facts.popularity[item], facts.patterns[item, 0]) if facts.labels else about


def _alone(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """Return a world of the one rating: the attacker knows and subtracts all others."""
    shown = target.ends[1] if rating is None else rating
    world = Ratings.from_arrays([0], [0], [shown], scale=target.ratings.scale, name="one rating")
    if rating is None:
        world = world.take(np.zeros(0, np.int64))
    return world, PrivacyWeights.per_rating(world, np.full(len(world), target.weight))


LABELLED_ITEMS = 40
"""Items of the world of the view ``final``: with fewer than 30 heads a recommender publishes
nothing about labels.
"""

_LABELLED_SUMS = 900_030  # stream of the seed


def labelled_world(ratings: Ratings) -> Ratings:
    """Return the most rated items and their users, everybody twice, so that enough are heads."""
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
    """Return scores of attackers who see the ``sums``, without and with the device's ``label``.

    With ``head`` the audited item is summed per label, as the device's other items are.
    """
    device = _device_alone(target)
    n = len(device.own)
    contributors = max(target.ratings.n_users, 2)
    aimed = np.zeros(n, np.int64)
    aimed[device.position] = SCORE_UNITS
    is_head = np.full(n, True)
    is_head[device.position] = head
    grouping = Grouping(scores=aimed, heads=np.flatnonzero(is_head))
    ends = rating_in_worlds(device, adjacency)
    attacker = _Attacker(device, design, ends, is_head)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for world, rating in enumerate(ends):
        ratings, weights = with_rating(device, rating)
        recommender = _Cheat(design.survey(ratings, contributors), grouping)
        noise = SeededNoise(seed, _LABELLED_SUMS + 2 * head + world)
        seen = np.empty((runs, attacker.n_entries), np.int64)
        labels = np.empty(runs, bool)
        for run in range(runs):
            client = design.client(ratings, weights, noise, contributors)
            seen[run] = recommender.listen(client)
            labels[run] = client.labels is not None and client.labels[0]
            report_progress(progress, run, runs)
        found.append(attacker.ratios(seen, labels))
    low, high = found
    return {"sums": Scores(low[0], high[0]), "label": Scores(low[1], high[1])}


class _Cheat(OneRoundRecommender):
    """A recommender that groups as it likes and keeps all that it receives."""

    def __init__(self, survey: Survey, grouping: Grouping) -> None:
        no_features = ItemFeatures((), np.zeros((survey.n_items, 0)), np.zeros(0), "audit")
        super().__init__(survey, no_features, score={})
        self._chosen = grouping
        self._counts = np.zeros(0, np.int64)

    def group(self, counted: Sequence[Popularity], n_sums: float = 1) -> Grouping:
        """Return the attacker's grouping."""
        self._counts = counted[0].weights
        return self._chosen

    def listen(self, client: OneRoundClient) -> np.ndarray:
        """Return all numbers of both rounds."""
        (sent,) = self.hear([client])
        if not isinstance(sent, SumContribution):
            raise ProtocolError("a survey by labels was answered without them")
        return np.concatenate((self._counts, sent.scores, sent.weights, [sent.total]))


class _Attacker:
    """Log-likelihoods of one device's part in all sums of both rounds, by world and label."""

    def __init__(
        self, device: Target, design: Design, ends: tuple[float | None, float], is_head: np.ndarray
    ) -> None:
        coding = coding_of(design.survey(device.ratings, device.ratings.n_users))
        channels = sum_channels("A", coding, design.epsilon, labels=True)
        if channels.popularity is None or channels.total is None:
            raise ProtocolError("a survey by labels has a round before, and a total")
        n = len(is_head)
        heads = np.flatnonzero(is_head)
        sizes = (n, n + len(heads), n + len(heads), 1)
        used = (channels.popularity, channels.score, channels.weight, channels.total)
        self._scales = np.repeat(
            [float(channel.scale) * design.noise_factor for channel in used], sizes
        )
        self._added = []
        self._log_labels = []
        for rating in ends:
            to_each = np.array([moved_by(device, coding, float(value), row) for row, value in
                                enumerate(device.ratings.values)])  # fmt: skip
            to_each[device.row] = moved_by(device, coding, rating, device.row)
            score, weight, total = to_each.T
            by_label = []
            for label in (False, True):
                # The device adds a head's part to the sums of its label, and nothing to those of
                # the other.
                first = ~(is_head & label)
                after = np.full(len(heads), label)
                parts = [weight]
                parts += [
                    np.concatenate((part * first, part[heads] * after)) for part in (score, weight)
                ]
                by_label.append(np.concatenate((*parts, [total.sum()])))
            self._added.append(by_label)
            self._log_labels.append(_log_labels(int(weight[device.row]) * SCORE_UNITS, design))

    @property
    def n_entries(self) -> int:
        """Count of the numbers that both rounds release."""
        return len(self._scales)

    def ratios(self, seen: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each run's log-likelihood ratio without and with knowledge of the label."""
        with_0, with_1 = ([self._log(seen, world, label) for world in (0, 1)] for label in (0, 1))
        hidden = np.logaddexp(with_0[1], with_1[1]) - np.logaddexp(with_0[0], with_1[0])
        known = np.where(labels, with_1[1] - with_1[0], with_0[1] - with_0[0])
        return _coarse(hidden), _coarse(known)

    def _log(self, seen: np.ndarray, world: int, label: int) -> np.ndarray:
        """Return the log-likelihood of sums and a label, up to a constant shared by all."""
        noise = np.abs(seen - self._added[world][label])
        return np.asarray(self._log_labels[world][label] - noise @ (1.0 / self._scales))


def _coarse(ratios: np.ndarray) -> np.ndarray:
    # With this many sums every run has its own ratio. Among as many thresholds pilot runs would
    # pick an extreme one by chance, and measured runs would not confirm it.
    return np.asarray(np.round(20.0 * ratios) / 20.0)


def _log_labels(total: int, design: Design) -> tuple[float, float]:
    """Return log probabilities of labels 0 and 1 for a non-negative total score."""
    rare = rare_label_probability(np.array([total]), design.epsilon)
    rare = sharpened(rare, design.label_factor)
    common = float(np.log1p(-rare[0]))
    return (float(np.log(rare[0])), common) if total > 0 else (common, float(np.log(rare[0])))


def _device_alone(target: Target) -> Target:
    """Return a world of the audited user alone: the attacker knows and subtracts all others."""
    own = target.own
    ratings = Ratings.from_arrays(
        np.zeros(len(own), np.int64),
        np.arange(len(own)),
        target.ratings.values[own],
        scale=target.ratings.scale,
        name="one device",
    )
    return Target(ratings, target.weights[own], target.position, np.arange(len(own)))
