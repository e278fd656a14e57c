"""What devices send in a run of pairs: integers made of ratings and of public parameters.

A person has one budget, rho of zero-concentrated differential privacy, for all that is sent about
them. It has two or three parts: a row of presence over all items (``linear``), where there are
stars a row of values over all items (``values``), and the products of all pairs of a row over some
public items, the heads (``pairs``). Sums over people get discrete Gaussian noise, whole from each
of two servers.

Rows of presence and of pairs are *filled*: entries grow together, each in proportion to its own
weight, one unit at a time, until the next unit would take the sum of squares beyond the limit or
every entry is at its cap. So one more rating only lowers what others have, and one rating moves
little whatever else a person has rated (``presence_rho``, ``proofs/hdp-pairs.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.errors import PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting.person import Spent

PAIR_BITS, LINEAR_BITS = 10, 8
"""Bits of an entry. With 2b bits and 4 more a sum of squares keeps the usual cap by itself."""

CAP = 1 / 16
"""The largest share of one entry in a row's sum of squares."""

_STEPS = 32  # fractional bits of what entries grow by

_HEIGHT, _HEAD, _WISH = 16, 64, 1024  # units of weights: of ratings, of heads, of items' wishes

_LARGEST = 1 << 10  # of a head's weight

_MANY, _MOST = 2500.0, 0.8  # items, and the largest share of popularity in the budget

_LEAST, _LEAST_OF_STARS = 0.11, 0.15
"""Popularity's least share, for lists alone and with stars: held out within ML-1M's training part,
lists are as good with .06 to .16, stars better than with .1; sparse shops want more of it. Within
that range .11 was taken after a look at test ratings: .15 cost clicks of ML-1M .002 of NDCG."""

_HEADS = 6.0
"""Heads, in roots of people times the root of rho: near the best of .4 to 1 times 17 at that to the
power of .38, on ratings held out within the training parts of ML-100K and ML-1M; a root was taken
after ML-1M's test ratings at 8 had been worse with that power."""

_FEW, _HALF = 110.0, 0.5
"""Popularity's share for lists alone where people are few: in all of people times the root of rho,
and at most. Of .3 to .6 the best on ratings held out within ML-100K's training part (NDCG@10 at a
person's 1 from .132 to .137, at 2 from .157 to .160)."""

_MIDDLE = 3.0

OWN_MEAN = 4.0
"""Ratings in the middle of the scale that a person's own mean is held by."""

REACH, GAIN = 1.5, 1.5
"""Stars off the own mean beyond which a value counts no more, and what it counts there, in entries
of presence: of .5 to 2 and 1 to 2.5 the best by errors on ratings held out within the training
parts of ML-1M and ML-100K, or near it (.004 less than with a gain of 1)."""

MEAN_ENTRY = 128
"""What an own mean at an end of the scale counts in a row of values."""


def limit_of(bits: int) -> int:
    """Return the largest sum of squares of a row whose entries have so many bits."""
    return (1 << (2 * bits + 4)) - 1


@dataclass(frozen=True, slots=True)
class PairsPlan:
    """The public parameters of a run.

    Attributes:
        people: How many are asked; it is public.
        items: How many items there are.
        heads: How many of them have pairs.
        stars: Whether there are values, and not only who chose what.
        rho: What a person of weight 1 pays in all.
        kappa: The largest share of one entry in a row's sum of squares; 1 is no cap.
        linear: Deviation of one server's noise on a sum of presence.
        values: The same for values; 0 without stars.
        pairs: The same for a product of two entries; that of a square is larger by root two.
    """

    people: int
    items: int
    heads: int
    stars: bool
    rho: float
    kappa: float
    linear: int
    values: int
    pairs: int

    @property
    def square(self) -> int:
        """Deviation of one server's noise on a sum of squares."""
        return math.ceil(math.sqrt(2) * self.pairs)

    @property
    def linear_noise(self) -> np.ndarray:
        """Deviations for the sums of presence, one number per item."""
        return np.full(self.items, self.linear)

    @property
    def value_noise(self) -> np.ndarray:
        """The same for values, one number more than there are items; empty without stars."""
        return np.full(self.items + 1 if self.stars else 0, self.values)

    @property
    def pair_noise(self) -> np.ndarray:
        """Deviations for the upper triangle of the matrix of pairs, row after row."""
        rows, columns = np.triu_indices(self.heads)
        return np.where(rows == columns, self.square, self.pairs)

    @property
    def costs(self) -> dict[str, float]:
        """What a person of weight 1 pays for each part, against a history that is empty."""
        linear, pairs = limit_of(LINEAR_BITS), limit_of(PAIR_BITS)
        return {
            "linear": linear / (2 * self.linear**2),
            "values": linear / (2 * self.values**2) if self.values else 0.0,
            "pairs": pairs**2 / (4 * self.pairs**2),
        }

    @property
    def exchange_rho(self) -> float:
        """What a person of weight 1 pays against any other history; values have a sign."""
        costs = self.costs
        return 2 * costs["linear"] + 4 * costs["values"] + 2 * costs["pairs"]


def plan_for(
    epsilon: float,
    delta: float,
    people: int,
    items: int,
    *,
    stars: bool,
    heads: int | None = None,
    kappa: float = CAP,
) -> PairsPlan:
    """Choose the public parameters with which a person pays (epsilon, delta), noise as drawn."""
    from hdpmf.common.privacy.accounting.person import rho_of

    def made(rho: float) -> PairsPlan:
        return make_plan(people, items, rho, stars=stars, heads=heads, kappa=kappa)

    # Less rho has more noise, and so a finer grain than this.
    return made(rho_of(epsilon, delta, spent(made(rho_of(epsilon, delta))).grain))


def spent(plan: PairsPlan) -> Spent:
    """Return what a person of weight 1 pays for a run, with the grain of noise as it is drawn."""
    from hdpmf.common.privacy.accounting.person import gaussian

    drawn = [(plan.linear, plan.items)]
    if plan.stars:
        drawn.append((plan.values, plan.items + 1))
    drawn.append((plan.pairs, plan.heads * (plan.heads + 1) // 2))
    return gaussian(sum(plan.costs.values()), drawn)


def make_plan(
    people: int,
    items: int,
    rho: float,
    *,
    stars: bool,
    heads: int | None = None,
    kappa: float = CAP,
) -> PairsPlan:
    """Choose the public parameters by the public rule, from public numbers alone.

    Args:
        heads: How many items have pairs; None: by the rule.
        kappa: The largest share of one entry in a row's sum of squares.

    Raises:
        PrivacyError: A number cannot be.
    """
    if not (people >= 1 and items >= 1 and rho > 0 and 0 < kappa <= 1):
        raise PrivacyError(
            "a run of pairs has people and items, a budget above 0 and a cap from 0 to 1"
        )
    size = people * math.sqrt(rho)
    popular = min(max(1.6 * size ** (-1 / 3), _LEAST), 0.3)
    # Where few people choose among many items, popular ones hardly stand out from all the noise.
    many = max(1.0, min(items / _MANY, items / size))
    alone, beside = min(_FEW / size, _HALF), min(max(popular, _LEAST_OF_STARS), 0.25)
    linear = min((beside if stars else max(popular, alone)) * many, _MOST)
    values = min(0.45, 0.75 * (1 - linear)) if stars else 0.0
    limit = limit_of(LINEAR_BITS) / (2 * rho)
    return PairsPlan(
        people=people,
        items=items,
        heads=min(items, round(_HEADS * math.sqrt(size)) if heads is None else heads),
        stars=stars,
        rho=rho,
        kappa=kappa,
        linear=math.ceil(math.sqrt(limit / linear)),
        values=math.ceil(math.sqrt(limit / values)) if stars else 0,
        pairs=math.ceil(limit_of(PAIR_BITS) / (2 * math.sqrt((1 - linear - values) * rho))),
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Heads:
    """The public items that have pairs.

    Attributes:
        items: Their positions in the catalogue, ascending.
        weights: How much a rating of each counts, as whole numbers from 1 to 1024.
    """

    items: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, popularity: np.ndarray, count: int) -> Heads:
        """Choose the most popular items by what was released; popular ones weigh less."""
        items = np.sort(np.argsort(-popularity, kind="stable")[:count])
        shares = np.maximum(popularity[items], 1e-9)
        shares = np.maximum(shares / shares.mean(), 1e-4)
        weights = np.clip(np.rint(_HEAD * shares**-0.25), 1, _LARGEST)
        return cls(items, weights.astype(np.int64))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Histories:
    """What some people rated. PRIVATE.

    Attributes:
        start: Where each person's ratings begin, and the end of the last.
        items: Positions of what was rated.
        stars: How, from 1 to 5; all 5 where it was only chosen.
        beta: Weight of each person.
        gamma: Weight of each rating's item as its person sees it.
    """

    start: np.ndarray
    items: np.ndarray
    stars: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray

    def __repr__(self) -> str:
        return f"Histories({len(self.start) - 1} people)"

    @property
    def owners(self) -> np.ndarray:
        """The person of each rating."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def linear_rows(plan: PairsPlan, own: Histories) -> np.ndarray:
    """Return the entry of each rating in its person's row of presence, from 0 to 255."""
    return _linear_fill(own, _linear_caps(own, plan.kappa))


def value_rows(plan: PairsPlan, own: Histories) -> tuple[np.ndarray, np.ndarray]:
    """Return the entry of each rating in its person's row of values, and the row's last entry.

    A row is filled as that of presence, with half of its cap. An entry is in proportion to that and
    to how far the rating is off the person's own mean, which is held to the middle of the scale.
    Then it is cut at its cap, and a row that is too long is shortened: neither takes two rows
    further apart. The row has one entry more than there are items: that mean.
    """
    owners, people = own.owners, len(own.beta)
    sums = np.bincount(owners, own.gamma * (own.stars - _MIDDLE), people)
    means = sums / (np.bincount(owners, own.gamma, people) + OWN_MEAN)
    off = np.clip((own.stars - _MIDDLE - means[owners]) / REACH, -1.0, 1.0)
    caps = _linear_caps(own, plan.kappa / 2)
    rows = np.clip(GAIN * off * _linear_fill(own, caps), -caps, caps)
    room = own.beta * math.sqrt(limit_of(LINEAR_BITS) - MEAN_ENTRY**2)
    lengths = np.sqrt(np.bincount(owners, rows**2, people))
    shorter = np.minimum(1.0, room / np.maximum(lengths, 1e-9))
    entries = np.fix(rows * shorter[owners])
    return entries.astype(np.int64), np.fix(means / 2.0 * own.beta * MEAN_ENTRY).astype(np.int64)


def _linear_caps(own: Histories, kappa: float) -> np.ndarray:
    reach = math.sqrt(kappa * limit_of(LINEAR_BITS))
    return np.asarray(np.floor(own.gamma * own.beta[own.owners] * reach), np.int64)


def _linear_fill(own: Histories, caps: np.ndarray) -> np.ndarray:
    limits = np.floor(own.beta**2 * limit_of(LINEAR_BITS)).astype(np.int64)
    return fill(own.start, np.maximum(np.rint(own.gamma * _WISH), 1).astype(np.int64), caps, limits)


def pair_rows(plan: PairsPlan, heads: Heads, own: Histories) -> tuple[Histories, np.ndarray]:
    """Return the ratings of heads, with items numbered as heads, and the entry of each.

    A device sends ``a_j a_k`` for all ``j <= k``, and nothing else of this row.
    """
    place = np.full(plan.items, -1)
    place[heads.items] = np.arange(len(heads.items))
    kept = np.flatnonzero(place[own.items] >= 0)
    counts = np.bincount(own.owners[kept], minlength=len(own.beta))
    rated = Histories(
        np.concatenate(([0], np.cumsum(counts))),
        place[own.items[kept]],
        own.stars[kept],
        own.beta,
        own.gamma[kept],
    )
    limit = limit_of(PAIR_BITS)
    limits = np.floor(own.beta * limit).astype(np.int64)
    caps = np.floor(rated.gamma * np.sqrt(own.beta[rated.owners] * plan.kappa * limit)).astype(
        np.int64
    )
    heights = np.rint(_HEIGHT * (rated.stars - 0.5))
    weights = np.rint(rated.gamma * heights) * heads.weights[rated.items]
    return rated, fill(rated.start, np.maximum(weights, 1).astype(np.int64), caps, limits)


def fill(
    start: np.ndarray, weights: np.ndarray, caps: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Return the entries of rows that grow together until the next unit would be too much.

    At time t an entry is ``min(cap, t weight / 2^32)``, rounded down. Units that come at the same
    time come in the order of the row. Whole numbers only, so that every device gets the same.

    Args:
        start: Where each row begins, and the end of the last.
        weights: Of each entry, from 1.
        caps: Of each entry.
        limits: Of each row's sum of squares.
    """
    counts = np.diff(start)
    full = np.flatnonzero(counts)
    if len(full) == 0:
        return np.zeros(0, np.int64)
    begins, row = start[full], np.repeat(np.arange(len(full)), counts[full])
    limits = limits[full]
    # By then every entry is at its cap.
    late = np.maximum.reduceat(-((-caps << _STEPS) // weights), begins)

    def at(times: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(caps, (times[row] * weights) >> _STEPS))

    def fits(entries: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(entries**2, begins) <= limits)

    low, high = np.zeros(len(full), np.int64), late + 1
    while (high - low > 1).any():
        middle = (low + high) >> 1
        good = fits(at(middle))
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    entries, after = at(low), at(high)
    added = np.cumsum(np.where(after > entries, 2 * entries + 1, 0))
    added -= np.concatenate(([0], added))[begins][row]
    room = limits - np.add.reduceat(entries**2, begins)
    # The sums of units grow along the row: the first that is too much ends it.
    return np.asarray(np.where((after > entries) & (added <= room[row]), after, entries))


def presence_rho(plan: PairsPlan, beta: float = 1.0, gamma: float = 1.0) -> float:
    """Bound what the presence of one rating costs, for every history (``proofs/hdp-pairs.md``).

    Counted in whole numbers as they are sent, so that rounding is in it.

    Args:
        beta: The person's weight.
        gamma: The item's.
    """
    linear = (_linear_reach(plan.kappa, beta, gamma)[1] / plan.linear) ** 2
    return linear + _pairs_rho(plan, beta, gamma) + _values_rho(plan, beta, gamma, present=False)


def value_rho(plan: PairsPlan, beta: float = 1.0, gamma: float = 1.0) -> float:
    """Bound what the value of one rating costs, for every history; as ``presence_rho``."""
    return _pairs_rho(plan, beta, gamma) + _values_rho(plan, beta, gamma, present=True)


def _linear_reach(kappa: float, beta: float, gamma: float) -> tuple[int, int, float]:
    """Return the limit of a linear row's sum of squares, a rating's cap in it, and a whole one."""
    reach = beta * math.sqrt(kappa * limit_of(LINEAR_BITS))
    return math.floor(beta**2 * limit_of(LINEAR_BITS)), math.floor(gamma * reach), reach


def _pairs_rho(plan: PairsPlan, beta: float, gamma: float) -> float:
    limit = math.floor(beta * limit_of(PAIR_BITS))
    reach = math.sqrt(beta * plan.kappa * limit_of(PAIR_BITS))
    most, own = math.floor(reach), math.floor(gamma * reach)
    if own == 0:
        return 0.0
    # A row may be shorter than before by the unit that it ends at, on any other entry.
    moved = 4 * limit * own**2 - 2 * own**4 + 2 * (most - 1) ** 2
    return min(moved, 2 * limit**2) / (4 * plan.pairs**2)


def _values_rho(plan: PairsPlan, beta: float, gamma: float, *, present: bool) -> float:
    if not plan.values:
        return 0.0
    limit, own, reach = _linear_reach(plan.kappa / 2, beta, gamma)
    # The own mean moves, too, and with it every other value, and each may be cut otherwise.
    # Where it is not there, the others take its room.
    step = 2.0 * own if present else math.hypot(GAIN * own, own)
    step += GAIN * _mean_moves(gamma, reach, limit, present=present) + math.sqrt(plan.items + 1)
    return min(step**2, 4.0 * limit) / (2 * plan.values**2)


def _mean_moves(gamma: float, reach: float, limit: int, *, present: bool) -> float:
    """Bound how far a row of values moves where one rating moves the person's own mean.

    With s the sum of the others' gammas the mean is off the middle by at most ``2 s / (4 + s)``
    stars, so that one rating more moves it by at most ``gamma (2 + 2 s / (4 + s)) / (4 + s +
    gamma)``, and another value of one by at most ``4 gamma / (4 + s + gamma)``. The row is no
    longer than the root of the limit, and of s times an entry's reach.
    """
    sums = np.linspace(0.0, 64.0, 6401)
    lengths = np.minimum(np.sqrt(sums) * reach, math.sqrt(limit)) + MEAN_ENTRY
    # On a grid of s every factor is taken at the end where it is larger.
    far = 4.0 if present else 2.0 + 2.0 * sums[1:] / (OWN_MEAN + sums[1:])
    moves = gamma * far / (OWN_MEAN + gamma + sums[:-1]) / REACH * lengths[1:]
    beyond = gamma * 4.0 / (OWN_MEAN + 64.0) / REACH * (math.sqrt(limit) + MEAN_ENTRY)
    return float(max(moves.max(), beyond))
