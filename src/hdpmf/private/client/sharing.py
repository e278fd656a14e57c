"""A client of people with levels: each rating leaves once, by the channel that its level allows.

Hidden ratings enter the secure sums, exactly as those of hdp-sum. Seen ones send one randomised bit
each, and open ones themselves, both in plain sight. Everybody takes part in the sums, whatever they
share: their numbers are zeros where they have no hidden rating.

Hidden ratings have to be protected from what is in plain sight beside them. So what is visible is
chosen as if there were no hidden ratings: limits count each part by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.coding import WEIGHT_UNITS, levels_of, weight_units
from hdpmf.common.privacy.levels import HIDDEN, OPEN, SEEN
from hdpmf.common.privacy.mechanisms import bound_contributions, bound_weights
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import (
    BitContribution,
    ItemFacts,
    OpenContribution,
    SumContribution,
    Survey,
)
from hdpmf.common.protocol.oneround import bits_survey
from hdpmf.errors import ProtocolError
from hdpmf.private.client.contributions import OneRoundClient, SurveyCharge
from hdpmf.private.client.outgoing import compose


class Part(NamedTuple):
    """Ratings of one level, over the same users and items as all. PRIVATE."""

    ratings: Ratings
    weights: PrivacyWeights


class Split(NamedTuple):
    """Ratings by level. PRIVATE."""

    hidden: Part
    seen: Part
    open: Part


def split_by_level(ratings: Ratings, weights: PrivacyWeights) -> Split:
    """Return the ratings by the channel that each may leave by."""
    levels = weights.levels_for(ratings)
    parts = (np.flatnonzero(levels == level) for level in (HIDDEN, SEEN, OPEN))
    return Split(*(Part(ratings.take(rows), weights.take(rows)) for rows in parts))


def bound_in_sums(ratings: Ratings, weights: PrivacyWeights, most: int, draws: np.ndarray) -> Part:
    """Return the ratings that enter secure sums under a limit, with the weights that are left.

    It is what ``most`` ratings of weight 1 are for each user (`bound_weights`).
    """
    return bound_by_level(ratings, weights.with_levels(users="hidden"), most, draws)


def bound_by_level(ratings: Ratings, weights: PrivacyWeights, most: int, draws: np.ndarray) -> Part:
    """Return at most ``most`` visible ratings of each user, and hidden ones up to a weight.

    Hidden ones enter with the weight of ``most`` ratings of weight 1 at most (`bound_weights`). The
    two are drawn apart: were they not, a hidden rating more would push a visible one out, in plain
    sight.
    """
    visible = weights.levels_for(ratings) > HIDDEN
    shown, hidden = np.flatnonzero(visible), np.flatnonzero(~visible)
    units = weight_units(weights.for_ratings(ratings))
    entered = units.copy()
    entered[hidden] = bound_weights(ratings.user_codes[hidden], most, draws[hidden], units[hidden])
    # Those that are too light to be sent are kept: a client says how many there are.
    kept = ~visible & ((entered > 0) | (units == 0))
    kept[shown[bound_contributions(ratings.user_codes[shown], most, draws[shown])]] = True
    rows = np.flatnonzero(kept)
    taken, short = ratings.take(rows), entered[rows] < units[rows]
    limits = np.where(short, entered[rows] / WEIGHT_UNITS, 1.0)
    return Part(taken, weights.take(rows).at_most(taken, limits))


class ShareClient:
    """One or more users of a run where those who want to share do.

    Its answers are two, each given once and at a moment of its own: `contribute` (or `entries`, for
    two servers) with the hidden ratings, and `shared` with the visible ones.

    Args:
        ratings: The ratings of these users; the items are those of the recommender's catalogue, in
            its order.
        weights: Their weights, with levels.
        epsilon: The largest budget that these users agree to, once.
        catalogue: Fingerprint of the item table that these users know.
        n_users: How many users take part here; those without ratings add their share of the noise
            too.
        simulation: Allow seeded noise. Never for anything that leaves this process.
    """

    def __init__(
        self,
        ratings: Ratings,
        weights: PrivacyWeights,
        noise: Noise,
        *,
        epsilon: float,
        catalogue: str,
        n_users: int | None = None,
        simulation: bool = False,
    ) -> None:
        split = split_by_level(ratings, weights)
        self._hidden, self._seen = (
            OneRoundClient(
                *part,
                noise,
                epsilon=epsilon,
                catalogue=catalogue,
                n_users=ratings.n_users if n_users is None else n_users,
                simulation=simulation,
            )
            for part in (split.hidden, split.seen)
        )
        self._open = split.open.ratings
        self._published = False

    def __repr__(self) -> str:
        return f"ShareClient({self._hidden!r})"

    @property
    def spent(self) -> SurveyCharge | None:
        """The price that hidden ratings have paid, or None."""
        return self._hidden.spent

    @property
    def shared_spent(self) -> SurveyCharge | None:
        """The price that seen ratings have paid, or None. Open ones pay nothing."""
        return self._seen.spent

    @property
    def n_silent(self) -> int:
        """Hidden and seen ratings that sent nothing, because their weight is below 1/64."""
        return self._hidden.n_silent + self._seen.n_silent

    def accept(self, survey: Survey) -> None:
        """Agree to a survey, or refuse it.

        Raises:
            ProtocolError: As `OneRoundClient.accept`, or nobody is asked to share.
        """
        if not survey.sharing:
            raise ProtocolError(
                "refused: the survey does not ask for anything beside sums; answer it as hdp-sum"
            )
        self._hidden.accept(survey)
        self._seen.accept(bits_survey(survey))

    def contribute(self) -> SumContribution:
        """The answer of hidden ratings, with a share of the noise. There is one."""
        answer = self._hidden.contribute()
        if not isinstance(answer, SumContribution):
            raise ProtocolError(
                "hidden ratings only enter sums; the survey asks for something else"
            )
        return answer

    def entries(self, n_users: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The answer of hidden ratings for two servers; see `OneRoundClient.entries`."""
        return self._hidden.entries(n_users)

    def shared(self) -> tuple[BitContribution, OpenContribution]:
        """The visible ratings: a bit of each that is seen, and those that are open. Given once.

        Raises:
            ProtocolError: No survey was accepted, or they have been given.
        """
        if self._published:
            raise ProtocolError("refused: what these users share is given once")
        published = self._open
        steps = levels_of(published.values, published.scale)  # what is off the scale is refused
        bits = self._seen.contribute()
        if not isinstance(bits, BitContribution):
            raise ProtocolError("seen ratings send bits; the survey asks for more")
        self._published = True
        return bits, compose(
            OpenContribution,
            senders=published.user_codes.astype(np.int64),
            items=published.item_codes.astype(np.int64),
            steps=steps.astype(np.int64),
        )

    def check(self, facts: ItemFacts) -> ItemFacts:
        """Item facts that belong to the answered survey, or a refusal. Nothing is sent in reply."""
        return self._hidden.check(facts)
