"""From sums of hidden ratings, bits of seen ones and open ones to item facts and a list model.

Everybody's sums say how good and how popular items are. Who rated what, of those who let it be
seen, says what goes with what, for everybody's stars and lists. Post-processing only: it costs no
privacy. Where nobody shares, facts are exactly those of ``hdp-sum``.

Those who share are not a random part of all. So their bits and ratings are only compared with each
other and with the sums of all: they may rate higher or lower on the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from hdpmf.common.data import RatingScale
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import NOISE, device_fit, taste_columns
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.coding import WEIGHT_SCALE, WEIGHT_UNITS, n_levels
from hdpmf.common.protocol import (
    BitContribution,
    ItemFacts,
    OpenContribution,
    SumContribution,
    Survey,
)
from hdpmf.common.protocol.oneround import bits_survey
from hdpmf.errors import ProtocolError
from hdpmf.untrusted.recommender.bits import (
    Similar,
    StarBits,
    bits_in_stars,
    explain,
    for_all,
    learn_similarity,
    mean_from_level,
    rating_patterns,
    similar_items,
    told_by_item,
)
from hdpmf.untrusted.recommender.deconvolution import Weights, deconvolve
from hdpmf.untrusted.recommender.item_weights import TYPICAL, raters_of, typical_weights
from hdpmf.untrusted.recommender.lists.blending import Choosing, choose_blend
from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.lists.training import train_list_model
from hdpmf.untrusted.recommender.pattern_choice import PATTERNS
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import (
    SPREAD,
    STARS,
    NoisySums,
    all_sums,
    facts_from_sums,
    item_facts,
    posterior_biases,
    scores_of_biases,
    sharp_biases,
)

DAMPING = 20.0
"""Raters added to every item where similarity comes from some people only; hdp-bit has 5. Within
ML-1M's training part (2,000 people, one seed), mean squared errors with 5, 20 and 60: .8254, .8192,
.8193 where 3 % share; .8093, .8074, .8081 with the liberal, who are 9 %."""

TRUST = 100.0
"""Similarity by n people counts n / (n + this). Errors there by what it counts; hdp-sum has .8312:
18 people .8304 at .05, .8298 at .15, .8306 at .3, .8376 at 1; 60 people .8278 at .1, .8268 at .2,
.8270 at .4, .8308 at 1; 181 people .8197 at .2, .8177 at .4, .8178 at .65, .8189 at 1; 544 people
.8078 at .8, .8077 at 1."""

STRENGTH = 128.0
"""How many users count for leaving the similarity's columns as they are, where the covariance of
vectors along them is learned: as many as there are columns. Without it 3 % of the people of ML-1M
learn so much of nothing that errors are .8776 there."""

PULL = 2.0
"""What vectors are drawn by, in what least squares on bits say. Within training parts, mean squared
errors with 1, 2 and 3 (ML-1M, 1,200 people): .8409, .8400, .8396 with the liberal, .8581, .8578,
.8575 with 3 %, .8308, .8298, .8305 with 25 %; ML-100K, the liberal, two seeds: .9434, .9435,
.9437."""

EASE_ENTRIES = 100
"""Single entries of EASE that are kept for each item; hdp-bit has 10. A model of few people needs
more: within ML-1M's training part, with the liberal, NDCG@10 is .1748 with 40 (1.42 MB on a
device), .1767 with 100 (2.08 MB) and .1766 by the whole matrix."""

COVERED = 0.6
"""The part of all hidden weight that must be on items whose weight somebody shows, for popularity
to be corrected. Within ML-100K's training part, NDCG@10 of lists without a model where popularity
is not corrected, is corrected, and by the true weights: .142, .130, .159 at .22; .142, .142, .158
at .48; .122, .137, .145 at .53; .139, .150, .151 at .64; .144, .160, .159 at .70; .128, .149, .148
at .74."""

OPEN_VARIANCE = 0.9
"""Of an open rating around its item's mean and its user's leniency, in stars squared."""

_LENIENCY = 5.0  # ratings that a leniency of 0 counts like

_CLEAR = 4.0  # deviations of the noise that all weights together must exceed to say anything


class Shared(NamedTuple):
    """The visible ratings of one client; senders are the same people in both.

    Attributes:
        bits: Of ratings that are seen.
    """

    bits: BitContribution
    opens: OpenContribution


class SharedFacts(NamedTuple):
    """The facts and the list model that the recommender publishes.

    Attributes:
        facts: For devices to fit their vectors to.
        lists: A model for lists; None where nobody shares or where it does not help.
    """

    facts: ItemFacts
    lists: ListModel | None


class _Visible(NamedTuple):
    """All that is in plain sight.

    Attributes:
        bits: As they were sent, of all clients.
        bit_users: Of each bit, counted from 0.
        level: The mean of bits on their curve.
        bit_stars: Bits in stars, less their own mean.
        open_stars: Open ratings in stars, with the variance of one.
    """

    presence: Presence
    bits: BitContribution
    bit_users: np.ndarray
    level: float
    bit_stars: StarBits
    open_stars: StarBits


class _Hidden(NamedTuple):
    """Estimates from the sums.

    Attributes:
        known: The weights behind items.
        noise: Scales of the noise, in those of one sum's, one per item.
    """

    observed: NoisySums
    known: Weights
    noise: np.ndarray


def facts_from_shares(
    survey: Survey,
    sums: Sequence[SumContribution],
    shared: Sequence[Shared],
    features: ItemFeatures | None,
    *,
    n_sums: float = 1,
    earlier: Sequence[SurveyAnswer] = (),
    retired: Sequence[int] = (),
    list_model: str = "ease",
    seed: int = 0,
    on: str = "cpu",
    n_threads: int | None = None,
) -> SharedFacts:
    """Item facts, and a model for lists, from everybody's sums and what some show.

    Args:
        survey: What was asked (design A).
        sums: Of hidden ratings.
        shared: Of those who share, one for each client.
        n_sums: As for ``facts_from_sums``, like the next two.
        earlier: What earlier runs released in sums.
        retired: Positions of items that this run did not ask about.
        seed: Of what is drawn in training it and in choosing how much it counts.
        on: As for ``train_list_model``.
        n_threads: As for ``train_list_model``.
    """
    visible = _visible(survey, shared)
    if visible is None:
        matrix = None if features is None else features.matrix
        return SharedFacts(facts_from_sums(survey, sums, matrix, n_sums, earlier, retired), None)
    observed, more = all_sums(survey, sums, n_sums, earlier, retired)
    scale = np.full(survey.n_items, more)
    known = deconvolve(observed.weights, more * WEIGHT_SCALE / survey.epsilon)
    hidden = _Hidden(observed, known, scale)
    facts = _facts(survey, hidden, visible, features)
    choosing = _choosing(facts, features)
    blend = choose_blend(
        list_model, visible.presence, choosing, seed=seed, on=on, n_threads=n_threads
    )
    if blend == 0.0:
        return SharedFacts(facts, None)
    options = {"per_item": EASE_ENTRIES} if list_model == "ease" else {}
    lists = train_list_model(
        list_model, visible.presence, seed=seed, on=on, n_threads=n_threads, **options
    )
    return SharedFacts(replace(facts, blend=blend), lists)


def _facts(
    survey: Survey,
    hidden: _Hidden,
    visible: _Visible,
    features: ItemFeatures | None,
) -> ItemFacts:
    n, presence = survey.n_items, visible.presence
    matrix = None if features is None else features.matrix
    patterns = rating_patterns(presence.users, presence.items, n, PATTERNS)
    similar = _similar(presence, patterns) if patterns.shape[1] else None
    clear = _is_clear(survey, hidden)
    mean = _mean(survey, hidden if clear else None, visible)
    first = sharp_biases(survey, *hidden, matrix) if clear else (np.zeros(n), np.full(n, SPREAD))
    stars = _compared(visible, mean, *first)
    groups = [] if matrix is None else [matrix]
    if similar is not None:
        groups += [patterns, for_all(similar, similar.columns, n)]
    bias, variance = _biases(survey, hidden if clear else None, stars, groups)
    shown = np.bincount(visible.bits.items, visible.bits.units / WEIGHT_UNITS, n)
    opened = TYPICAL * np.bincount(visible.open_stars.items, minlength=n)
    popularity = (hidden.known.size_biased if clear else 0.0) + shown + opened
    raters = _raters(survey, hidden, visible, matrix)
    if raters is not None:
        # Stars depend on how many people rate an item, too, not on how they guard it: errors are
        # .003 less so within ML-1M's training part, .001 within ML-100K's.
        popularity = raters * (popularity.sum() / raters.sum())
    facts = replace(item_facts(survey, mean, bias, variance, popularity), raters=raters)
    if similar is None:
        return facts
    similarity = learn_similarity(stars, facts, features, similar, STRENGTH)
    return replace(facts, similarity=replace(similarity, pull=PULL * similarity.pull))


def _similar(presence: Presence, patterns: np.ndarray) -> Similar:
    """Return the similarity of items, counting the less the fewer people it is by."""
    found = similar_items(presence, patterns, DAMPING)
    trust = presence.n_users / (presence.n_users + TRUST)
    return found._replace(columns=np.sqrt(trust) * found.columns, rest=trust * found.rest)


def _is_clear(survey: Survey, hidden: _Hidden) -> bool:
    """True if enough hidden weight is behind the sums for them to say anything."""
    noise = WEIGHT_SCALE / survey.epsilon * np.sqrt(2.0 * float((hidden.noise**2).sum()))
    return bool(hidden.observed.weights.sum() > _CLEAR * noise)


def _mean(survey: Survey, hidden: _Hidden | None, visible: _Visible) -> float:
    """The mean rating, in stars: of sums and open ratings, or else by what bits suggest."""
    weight = 0.0 if hidden is None else float(hidden.observed.weights.sum())
    opens = visible.open_stars.values
    if weight + len(opens) == 0:
        return mean_from_level(visible.level, bits_survey(survey).coding)
    total = float(opens.sum()) + (0.0 if hidden is None else weight * hidden.observed.mean)
    return total / (weight + len(opens))


def _compared(visible: _Visible, mean: float, bias: np.ndarray, variance: np.ndarray) -> StarBits:
    """Bits and open ratings as what they say beyond the mean, comparable with the sums.

    Those who share may be more lenient on the whole than others. What bits are off by on the whole,
    and each open user by the mean, is taken off.

    Args:
        visible: What is in plain sight.
        bias: First estimates of item biases.
        variance: Their variances.
    """
    bits, opens = visible.bit_stars, visible.open_stars
    if len(bits.items):
        told = 1.0 / (bits.variance + variance[bits.items])
        off = float((told * (bits.values - bias[bits.items])).sum() / told.sum())
        bits = bits._replace(values=bits.values - off)
    if len(opens.items):
        left = opens.values - mean - bias[opens.items]
        n_users = visible.presence.n_users
        counts = np.bincount(opens.users, minlength=n_users) + _LENIENCY
        lenient = np.bincount(opens.users, left, n_users) / counts
        opens = opens._replace(values=opens.values - mean - lenient[opens.users])
    return StarBits(*(np.concatenate(pair) for pair in zip(bits, opens, strict=True)))


def _biases(
    survey: Survey, hidden: _Hidden | None, stars: StarBits, groups: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return biases and their variances, from sums and from what is in plain sight together.

    Columns are regressed on both. Around what they say, bits and open ratings count as normal, and
    then sums by their exact likelihood, as in ``hdp-sum``.
    """
    told, seen = told_by_item(stars, survey.n_items)
    if hidden is None:
        found, _ = explain(told, seen, groups)
        unsure = found.own_variance + (1.0 - found.share) ** 2 * found.unsure
        return found.expected + found.own, unsure
    by_sums = scores_of_biases(survey, *hidden)
    more = by_sums.slopes**2 / by_sums.variance
    said = by_sums.slopes * by_sums.scores / by_sums.variance
    both = told + more
    found, spread = explain(both, (told * seen + said) / np.maximum(both, 1e-12), groups)
    gain = spread * told / (1.0 + spread * told)
    prior = found.expected + gain * (seen - found.expected)
    return posterior_biases(survey, *hidden, prior, spread * (1.0 - gain))


def _raters(
    survey: Survey, hidden: _Hidden, visible: _Visible, features: np.ndarray | None
) -> np.ndarray | None:
    """Estimate how often people choose each item; None where too few weights are shown.

    Open ratings show none. Without weights it would have to come from how often sharers rate an
    item, and they are not a random part of all.
    """
    shown = np.bincount(visible.bits.items, minlength=survey.n_items) > 0
    behind = hidden.known.size_biased
    if not shown.any() or behind[shown].sum() < COVERED * behind.sum():
        return None
    weights = typical_weights(visible.bits, visible.bit_users, survey.n_items, features)
    scale = hidden.noise * WEIGHT_SCALE / survey.epsilon
    found = raters_of(behind, weights, visible.presence.raters, scale)
    return found.astype(np.float32)


def _choosing(facts: ItemFacts, features: ItemFeatures | None) -> Choosing:
    """The order of items without a list model: raters, biases and taste columns."""
    raters = (facts.popularity if facts.raters is None else facts.raters).astype(np.float64)
    _, columns = taste_columns(device_fit(facts, features, None), raters)
    return Choosing(raters, facts.bias.astype(np.float64), columns)


def _visible(survey: Survey, shared: Sequence[Shared]) -> _Visible | None:
    """All that is in plain sight, senders counted from 0; None where there is nothing."""
    parts = [Shared(*part) for part in shared]
    if not any(len(part.bits.items) + len(part.opens.items) for part in parts):
        return None
    bit_users, open_users, total = [], [], 0
    for bits, opens in parts:
        distinct, position = np.unique(
            np.concatenate([bits.senders, opens.senders]), return_inverse=True
        )
        bit_users.append(position[: len(bits.senders)] + total)
        open_users.append(position[len(bits.senders) :] + total)
        total += len(distinct)
    users = np.concatenate(bit_users)
    level, stars = bits_in_stars(
        bits_survey(survey),
        [part.bits for part in parts],
        np.concatenate([part.bits.units for part in parts]),
    )
    opened = _opens_in_stars(survey, [part.opens for part in parts], np.concatenate(open_users))
    # A pair counts once, whatever a card sends.
    n = survey.n_items
    pairs = np.unique(
        np.concatenate([users, opened.users]) * n + np.concatenate([stars.items, opened.items])
    )
    return _Visible(
        Presence(pairs // n, pairs % n, total, n),
        BitContribution(
            senders=users,
            items=stars.items,
            units=np.concatenate([part.bits.units for part in parts]),
            plus=np.concatenate([part.bits.plus for part in parts]),
        ),
        users,
        level,
        stars._replace(users=users),
        opened,
    )


def _opens_in_stars(
    survey: Survey, opens: Sequence[OpenContribution], users: np.ndarray
) -> StarBits:
    items = np.concatenate([part.items for part in opens])
    steps = np.concatenate([part.steps for part in opens])
    levels = n_levels(RatingScale(survey.scale_low, survey.scale_high, survey.scale_step))
    if len(items) and (int(items.max()) >= survey.n_items or int(steps.max()) > levels):
        raise ProtocolError(
            f"an open rating is about an item that the survey's {survey.n_items} do not have, or "
            "off its scale"
        )
    variance = np.full(len(items), max(OPEN_VARIANCE, NOISE))
    return StarBits(users, items, 1.0 + STARS * steps / levels, variance)
