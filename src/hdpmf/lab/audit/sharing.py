"""The distinguishing game against a hidden rating in a run where people share, on the real client.

The audited rating is the one that its owner keeps hidden; all others of the same person are in
plain sight, which is the hardest case: whatever of them depended on the hidden one would show. The
attacker knows everybody else's ratings and levels, and sees the sums (`hdp-share`'s view ``sums``)
together with all that is shown. Its score is the exact log-likelihood ratio of the sums, and
certainty wherever what is shown differs between the worlds.
"""

from __future__ import annotations

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.coding import sum_channels
from hdpmf.common.privacy.levels import HIDDEN, SEEN
from hdpmf.common.privacy.mechanisms import bound_contributions
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.lab.audit.one_round import Progress, report_progress
from hdpmf.lab.audit.scores import Scores, log_discrete_laplace
from hdpmf.lab.audit.world import Design, Target, moved_by, rating_in_worlds
from hdpmf.private.client.sharing import bound_by_level
from hdpmf.untrusted.recommender.sums import coding_of

_SHARED = 900_060  # stream of the seed

_CERTAIN = 1e6
"""Far beyond any log-likelihood ratio of noisy sums."""


def shared_scores(
    target: Target,
    design: Design,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
    most: int | None = None,
    one_limit: bool = False,
) -> Scores:
    """Return scores of an attacker who sees the sums and everything that is shown.

    Args:
        target: The rating that its owner hides.
        design: Design A; ``noise_factor`` plants too little noise.
        progress: Called with the runs done.
        adjacency: ``value`` or ``presence``.
        most: Limit on ratings of a person, as ``max_ratings``.
        one_limit: Plant one limit for hidden and visible ratings together: an audit must find it.
    """
    contributors = max(target.ratings.n_users, 2)
    coding = coding_of(design.survey(target.ratings, contributors))
    channels = sum_channels(design.kind, coding, design.epsilon)
    ends = rating_in_worlds(target, adjacency)
    moved = [moved_by(target, coding, rating, target.row) for rating in ends]
    worlds, shown = [], []
    for world, rating in enumerate(ends):
        ratings, weights = _person(target, rating)
        survey = design.sharing_survey(ratings, contributors)
        noise = SeededNoise(seed, _SHARED + world)
        entries = np.empty((runs, 3), np.int64)
        visible = np.empty(runs, np.int64)
        for run in range(runs):
            sent, its_weights = _limited(ratings, weights, noise, most, one_limit=one_limit)
            client = design.share_client(sent, its_weights, noise, contributors)
            client.accept(survey)
            sums = client.contribute()
            bits, published = client.shared()
            entries[run] = sums.scores[0], sums.weights[0], sums.total
            visible[run] = len(bits.items) + len(published.items)
            report_progress(progress, run, runs)
        worlds.append(entries)
        shown.append(visible)
    usual = int(shown[0].max())  # of the world where nothing is pushed out by the rating

    def ratio(seen: np.ndarray, visible: np.ndarray) -> np.ndarray:
        total = np.zeros(len(seen))
        for column, channel in enumerate((channels.score, channels.weight, channels.total)):
            if channel is None or moved[0][column] == moved[1][column]:
                continue
            scale = float(channel.scale) * design.noise_factor
            for by, sign in ((moved[1], 1.0), (moved[0], -1.0)):
                total += sign * log_discrete_laplace(seen[:, column] - by[column], scale)
        return np.asarray(np.round(total + _CERTAIN * (visible < usual), 9))

    return Scores(ratio(worlds[0], shown[0]), ratio(worlds[1], shown[1]))


def _person(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """The audited person: the rating is item 0 and hidden, all others are seen."""
    others = np.setdiff1d(target.own, [target.row])
    rows = np.concatenate(([target.row], others))
    values = target.ratings.values[rows].copy()
    values[0] = target.ends[1] if rating is None else rating
    world = Ratings.from_arrays(
        np.zeros(len(rows), np.int64),
        np.arange(len(rows)),
        values,
        scale=target.ratings.scale,
        name="one person",
    )
    own = target.weights[rows]
    levels = np.full(len(rows), SEEN, np.int8)
    levels[0] = HIDDEN
    kept = np.arange(rating is None, len(rows))
    weights = PrivacyWeights.per_rating(world, own).with_levels(users="seen", items=levels)
    return world.take(kept), weights.take(kept)


def _limited(
    ratings: Ratings,
    weights: PrivacyWeights,
    noise: SeededNoise,
    most: int | None,
    *,
    one_limit: bool,
) -> tuple[Ratings, PrivacyWeights]:
    if most is None:
        return ratings, weights
    draws = noise.uniforms(len(ratings))
    if not one_limit:
        return bound_by_level(ratings, weights, most, draws)
    rows = bound_contributions(ratings.user_codes, most, draws)
    return ratings.take(rows), weights.take(rows)
